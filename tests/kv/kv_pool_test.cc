#include "attend/kv/kv_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "attend/tensor/arena.h"
#include "tests/support/error_message.h"

namespace attend {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using testing_support::error_message;

std::vector<int64_t> extents(const TensorView& view) {
  return {view.shape.begin(), view.shape.begin() + view.rank};
}
std::vector<int64_t> strides(const TensorView& view) {
  return {view.strides.begin(), view.strides.begin() + view.rank};
}

// Calls fn for every element of a [pages, tokens, heads, dim] view, with its indices.
template <class Fn>
void for_each_element(const TensorView& view, Fn&& fn) {
  for (int64_t page = 0; page < view.shape[0]; ++page)
    for (int64_t token = 0; token < view.shape[1]; ++token)
      for (int64_t head = 0; head < view.shape[2]; ++head)
        for (int64_t d = 0; d < view.shape[3]; ++d) fn(view[page][token][head].as<float>()[d]);
}

MhaKvPool::Config small_mha(KvLayout layout) {
  return {.num_layers = 2,
          .num_kv_heads = 3,
          .head_dim_qk = 8,
          .head_dim_v = 16,
          .page_size = 4,
          .num_pages = 5,
          .dtype = DType::kF32,
          .layout = layout,
          .scales = {}};
}
MlaKvPool::Config small_mla() {
  return {.num_layers = 2,
          .kv_lora_rank = 16,
          .rope_dim = 8,
          .page_size = 4,
          .num_pages = 5,
          .dtype = DType::kF32,
          .scales = {}};
}

TEST(MhaKvPool, HeadMajorStoresTheTokensOfAHeadContiguously) {
  const MhaKvPool pool(small_mha(KvLayout::kHeadMajor));
  const LayerKv kv = pool.layer(1);
  EXPECT_THAT(extents(kv.k), ElementsAre(5, 4, 3, 8));
  EXPECT_THAT(strides(kv.k), ElementsAre(4 * 3 * 8, 8, 4 * 8, 1));
  EXPECT_THAT(extents(kv.v), ElementsAre(5, 4, 3, 16));
  EXPECT_THAT(strides(kv.v), ElementsAre(4 * 3 * 16, 16, 4 * 16, 1));
  EXPECT_EQ(kv.slot_map, nullptr);
}

TEST(MhaKvPool, TokenMajorStoresTheHeadsOfATokenContiguously) {
  const MhaKvPool pool(small_mha(KvLayout::kTokenMajor));
  const LayerKv kv = pool.layer(0);
  EXPECT_THAT(extents(kv.k), ElementsAre(5, 4, 3, 8));
  EXPECT_THAT(strides(kv.k), ElementsAre(4 * 3 * 8, 3 * 8, 8, 1));
  EXPECT_THAT(strides(kv.v), ElementsAre(4 * 3 * 16, 3 * 16, 16, 1));
}

TEST(MhaKvPool, StartsAsZerosWithDistinctAddresses) {
  for (KvLayout layout : {KvLayout::kHeadMajor, KvLayout::kTokenMajor}) {
    const MhaKvPool pool(small_mha(layout));
    float next = 1;
    for (int layer_id : {0, 1})
      for (const TensorView& view : {pool.layer(layer_id).k, pool.layer(layer_id).v})
        for_each_element(view, [&](float& element) {
          ASSERT_EQ(element, 0.0f);
          element = next++;
        });
    float expected = 1;
    for (int layer_id : {0, 1})
      for (const TensorView& view : {pool.layer(layer_id).k, pool.layer(layer_id).v})
        for_each_element(view, [&](float& element) { ASSERT_EQ(element, expected++); });
    EXPECT_EQ(expected, 1 + 2 * 5 * 4 * 3 * (8 + 16));
  }
}

TEST(MhaKvPool, EveryLayerStartsOnACacheLine) {
  MhaKvPool::Config config = small_mha(KvLayout::kHeadMajor);
  config.page_size = 1;
  config.num_pages = 3;
  config.num_kv_heads = 1;
  config.dtype = DType::kBF16;
  const MhaKvPool pool(config);
  for (int layer_id : {0, 1})
    for (const TensorView& view : {pool.layer(layer_id).k, pool.layer(layer_id).v})
      EXPECT_EQ(reinterpret_cast<uintptr_t>(view.data) % 64, 0u);
}

TEST(MhaKvPool, CountsItsSlotsAndBytes) {
  MhaKvPool::Config config = small_mha(KvLayout::kHeadMajor);
  config.dtype = DType::kBF16;
  const MhaKvPool pool(config);
  EXPECT_EQ(pool.page_size(), 4);
  EXPECT_EQ(pool.num_pages(), 5);
  EXPECT_EQ(pool.num_slots(), 20);
  EXPECT_EQ(pool.dtype(), DType::kBF16);
  EXPECT_EQ(pool.bytes_per_token(), 2u * 3 * (8 + 16) * 2);
  EXPECT_EQ(MhaKvPool::num_bytes(config), 20 * pool.bytes_per_token());
  config.dtype = DType::kF8E4M3;
  EXPECT_EQ(MhaKvPool(config).bytes_per_token(), 2u * 3 * (8 + 16));
}

TEST(MhaKvPool, HasPerLayerScales) {
  MhaKvPool::Config config = small_mha(KvLayout::kHeadMajor);
  EXPECT_EQ(MhaKvPool(config).layer(1).k_scale, 1.0f);
  EXPECT_EQ(MhaKvPool(config).layer(1).v_scale, 1.0f);
  config.scales = {{.k = 0.5f, .v = 2.0f}, {.k = 0.25f, .v = 4.0f}};
  const MhaKvPool pool(config);
  EXPECT_EQ(pool.layer(0).k_scale, 0.5f);
  EXPECT_EQ(pool.layer(1).k_scale, 0.25f);
  EXPECT_EQ(pool.layer(1).v_scale, 4.0f);
}

TEST(MhaKvPool, RejectsPageSizesThatAreNotPowersOfTwoUpTo256) {
  MhaKvPool::Config config = small_mha(KvLayout::kHeadMajor);
  for (int page_size : {0, 3, 512}) {
    config.page_size = page_size;
    EXPECT_EQ(error_message(ErrorCode::kInvalidArgument, [&] { MhaKvPool pool(config); }),
              "page_size " + std::to_string(page_size) + ": expected a power of two from 1 to 256");
  }
  for (int page_size : {1, 2, 64, 256}) {
    config.page_size = page_size;
    EXPECT_EQ(MhaKvPool(config).layer(0).k.shape[1], page_size);
  }
}

TEST(MhaKvPool, NamesInvalidGeometry) {
  const auto error_text = [](auto change) {
    MhaKvPool::Config config = small_mha(KvLayout::kHeadMajor);
    change(config);
    return error_message(ErrorCode::kInvalidArgument, [&] { MhaKvPool pool(config); });
  };
  EXPECT_EQ(error_text([](auto& config) { config.num_layers = 0; }),
            "num_layers 0: MhaKvPool needs at least 1");
  EXPECT_EQ(error_text([](auto& config) { config.num_kv_heads = -1; }),
            "num_kv_heads -1: MhaKvPool needs at least 1");
  EXPECT_EQ(error_text([](auto& config) { config.head_dim_qk = 0; }),
            "head_dim_qk 0: MhaKvPool needs at least 1");
  EXPECT_EQ(error_text([](auto& config) { config.head_dim_v = 0; }),
            "head_dim_v 0: MhaKvPool needs at least 1");
  EXPECT_THAT(error_text([](auto& config) { config.num_pages = 1; }), StartsWith("num_pages 1: "));
  EXPECT_THAT(error_text([](auto& config) { config.num_pages = 1 << 30; }),
              HasSubstr("at most 536870911 pages"));
  EXPECT_THAT(error_text([](auto& config) { config.dtype = DType::kI32; }),
              StartsWith("dtype int32: KvPool supports"));
  EXPECT_EQ(error_text([](auto& config) { config.scales.resize(3); }),
            "scales of 3 layers: MhaKvPool needs none or 2");
  for (float scale : {0.0f, -1.0f, std::nanf(""), std::numeric_limits<float>::infinity()}) {
    EXPECT_THAT(error_text([&](auto& config) {
                  config.scales = {{.k = scale, .v = 1}, {}};
                }),
                StartsWith("scale "));
    EXPECT_THAT(error_text([&](auto& config) {
                  config.scales = {{}, {.k = 1, .v = scale}};
                }),
                StartsWith("scale "));
  }
}

TEST(MhaKvPool, RejectsLayersThatItDoesNotSupport) {
  const MhaKvPool pool(small_mha(KvLayout::kHeadMajor));
  EXPECT_EQ(error_message(ErrorCode::kInvalidArgument, [&] { pool.layer(2); }),
            "layer 2: MhaKvPool has layers 0 to 1");
  EXPECT_THROW(pool.layer(-1), Error);
}

TEST(MhaKvPool, HasNoLatentRows) {
  const MhaKvPool pool(small_mha(KvLayout::kHeadMajor));
  EXPECT_EQ(error_message(ErrorCode::kUnsupported, [&] { pool.latent(0); }),
            "latent rows of layer 0: MhaKvPool stores K and V, only MlaKvPool has latent rows");
}

TEST(MhaKvPool, ReportsRequiredAndFreeBytesIfMemoryIsShort) {
  MhaKvPool::Config config = small_mha(KvLayout::kHeadMajor);
  config.num_layers = 80;
  config.num_kv_heads = 8;
  config.head_dim_qk = config.head_dim_v = 128;
  config.num_pages = 1 << 28;
  const std::string needed = std::to_string(size_t{80} * 8 * 256 * 4 * 4 << 28);
  EXPECT_THAT(error_message(ErrorCode::kOutOfMemory, [&] { MhaKvPool pool(config); }),
              AllOf(StartsWith("MhaKvPool: needed " + needed + " bytes ("), HasSubstr(" GB), free ")));
}

TEST(MlaKvPool, RowIsKWithOneHeadAndItsStartIsV) {
  const MlaKvPool pool(small_mla());
  const TensorView rows = pool.latent(1);
  EXPECT_THAT(extents(rows), ElementsAre(5, 4, 24));
  EXPECT_TRUE(rows.is_contiguous());
  const LayerKv kv = pool.layer(1);
  EXPECT_THAT(extents(kv.k), ElementsAre(5, 4, 1, 24));
  EXPECT_THAT(extents(kv.v), ElementsAre(5, 4, 1, 16));
  for (int64_t page = 0; page < 5; ++page)
    for (int64_t token = 0; token < 4; ++token) {
      EXPECT_EQ(kv.k[page][token][0].data, rows[page][token].data);
      EXPECT_EQ(kv.v[page][token][0].data, rows[page][token].data);
    }
  EXPECT_EQ(kv.k.strides[3], 1);
  EXPECT_EQ(kv.v.strides[3], 1);
}

TEST(MlaKvPool, StartsAsZerosAndLayersDoNotOverlap) {
  const MlaKvPool pool(small_mla());
  for (int layer_id : {0, 1}) {
    const View<float> rows = pool.latent(layer_id).span<float>();
    EXPECT_TRUE(std::all_of(rows.begin(), rows.end(), [](float element) { return element == 0.0f; }));
    std::fill(rows.begin(), rows.end(), 1.0f);
  }
}

TEST(MlaKvPool, CountsItsBytesAndSharesOneScaleBetweenKAndV) {
  MlaKvPool::Config config = small_mla();
  config.dtype = DType::kF8E4M3;
  EXPECT_EQ(MlaKvPool(config).layer(0).v_scale, 1.0f);
  config.scales = {0.5f, 0.25f};
  const MlaKvPool pool(config);
  EXPECT_EQ(pool.bytes_per_token(), 2u * 24);
  EXPECT_EQ(MlaKvPool::num_bytes(config), 2u * Arena::padded_bytes(20 * 24));
  EXPECT_EQ(pool.layer(1).k_scale, 0.25f);
  EXPECT_EQ(pool.layer(1).v_scale, 0.25f);
}

TEST(MlaKvPool, StoresIndexKeysOfSomeLayers) {
  MlaKvPool::Config config = small_mla();
  EXPECT_TRUE(MlaKvPool(config).index_keys(0).empty());
  config.index_dims = {0, 12};
  const MlaKvPool pool(config);
  EXPECT_TRUE(pool.index_keys(0).empty());
  EXPECT_THAT(extents(pool.index_keys(1)), ElementsAre(5, 4, 12));
  EXPECT_EQ(pool.index_keys(1).dtype, DType::kF32);
  EXPECT_EQ(pool.bytes_per_token(), (2u * 24 + 12) * 4);
  EXPECT_EQ(MlaKvPool::num_bytes(config),
            2u * Arena::padded_bytes(20 * 24 * 4) + Arena::padded_bytes(20 * 12 * 4));
  for (const DType dtype : {DType::kF8E4M3, DType::kF8E5M2}) {
    config.dtype = dtype;
    EXPECT_EQ(MlaKvPool(config).index_keys(1).dtype, DType::kBF16);
    EXPECT_EQ(MlaKvPool(config).bytes_per_token(), 2u * 24 + 12 * 2);
  }
  config.index_dims = {12};
  EXPECT_EQ(error_message(ErrorCode::kInvalidArgument, [&] { MlaKvPool rejected(config); }),
            "index_dims of 1 layers: MlaKvPool needs none or 2");
}

TEST(MlaKvPool, ScaledRowsNeed656BytesPerTokenAndLayer) {
  MlaKvPool::Config config = small_mla();
  config.dtype = DType::kU8;
  EXPECT_EQ(error_message(ErrorCode::kInvalidArgument, [&] { MlaKvPool pool(config); }),
            "kv_lora_rank 16 and rope_dim 8: rows of fp8_ds_mla have 512 and 64");
  config.kv_lora_rank = 512;
  config.rope_dim = 64;
  const MlaKvPool pool(config);
  EXPECT_EQ(pool.dtype(), DType::kU8);
  EXPECT_EQ(pool.bytes_per_token(), 2u * 656);
  EXPECT_EQ(MlaKvPool::num_bytes(config), 2u * Arena::padded_bytes(20 * 656));
  EXPECT_THAT(extents(pool.latent(1)), ElementsAre(5, 4, 656));
  EXPECT_TRUE(pool.latent(1).is_contiguous());
  EXPECT_EQ(pool.layer(1).k.data, pool.latent(1).data);
  MhaKvPool::Config mha = small_mha(KvLayout::kTokenMajor);
  mha.dtype = DType::kU8;
  EXPECT_THAT(error_message(ErrorCode::kInvalidArgument, [&] { MhaKvPool rejected(mha); }),
              StartsWith("dtype fp8_ds_mla: MhaKvPool supports float32"));
}

TEST(MlaKvPool, NamesInvalidArguments) {
  const auto error_text = [](auto change) {
    MlaKvPool::Config config = small_mla();
    change(config);
    return error_message(ErrorCode::kInvalidArgument, [&] { MlaKvPool pool(config); });
  };
  EXPECT_EQ(error_text([](auto& config) { config.page_size = 48; }),
            "page_size 48: expected a power of two from 1 to 256");
  EXPECT_EQ(error_text([](auto& config) { config.kv_lora_rank = 0; }),
            "kv_lora_rank 0: MlaKvPool needs at least 1");
  EXPECT_EQ(error_text([](auto& config) { config.rope_dim = 0; }), "rope_dim 0: MlaKvPool needs at least 1");
  EXPECT_EQ(error_text([](auto& config) { config.scales = {1.0f}; }),
            "scales of 1 layers: MlaKvPool needs none or 2");
  EXPECT_THAT(error_text([](auto& config) {
                config.scales = {1.0f, 0.0f};
              }),
              StartsWith("scale 0: MlaKvPool"));
  const MlaKvPool pool(small_mla());
  EXPECT_EQ(error_message(ErrorCode::kInvalidArgument, [&] { pool.layer(2); }),
            "layer 2: MlaKvPool has layers 0 to 1");
}

TEST(MlaKvPool, ReportsRequiredAndFreeBytesIfMemoryIsShort) {
  MlaKvPool::Config config = small_mla();
  config.num_layers = 1000;
  config.num_pages = 1 << 28;
  EXPECT_THAT(
      error_message(ErrorCode::kOutOfMemory, [&] { MlaKvPool pool(config); }),
      AllOf(StartsWith("MlaKvPool: needed " + std::to_string(size_t{1000} * 24 * 4 * 4 << 28) + " bytes ("),
            HasSubstr(" GB), free ")));
}

}  // namespace
}  // namespace attend
