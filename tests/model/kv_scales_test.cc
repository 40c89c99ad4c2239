// k_scale and v_scale tensors of a checkpoint.
#include <gtest/gtest.h>

#include <limits>

#include "attend/kv/storage/cache_storage_config.h"
#include "attend/kv/window/swa_slots.h"
#include "attend/model/model.h"
#include "tests/model/config_fields.h"

namespace attend {
namespace {

using test::expect_error;
using test::TempDir;
using test::TestTensor;

TestTensor kv_scale(const std::string& name, float value) {
  return {"model.layers." + name, "F32", {}, test::bytes_of({value})};
}

std::vector<KvScales> scales_of(std::vector<TestTensor> tensors, const ModelSpec& spec = test::llama()) {
  const TempDir dir;
  tensors.push_back({"model.embed_tokens.weight", "F32", {1}, test::bytes_of({1.0f})});
  dir.write("model.safetensors", test::safetensors_bytes(tensors));
  return read_kv_scales(*open_checkpoint(dir.path())->open_tensors(), spec);
}

CacheSpec latent_layers(int num_layers) {
  CacheSpec cache{.kind = CacheKind::kLatent, .num_kv_heads = 1, .head_dim_qk = 576, .head_dim_v = 512};
  for (int layer = 0; layer < num_layers; ++layer) cache.layers.push_back(layer);
  return cache;
}

ModelSpec latent_model() { return test::read("DeepseekV3ForCausalLM", {{"kv_lora_rank", "512"}}); }

TEST(KvScalesOfACheckpoint, AreFoundUnderEveryKnownName) {
  EXPECT_TRUE(scales_of({}).empty());
  const std::vector<KvScales> scales = scales_of(
      {kv_scale("0.self_attn.k_scale", 0.5f), kv_scale("0.self_attn.v_scale", 0.25f),
       kv_scale("1.self_attn.k_proj.k_scale", 2.0f), kv_scale("1.self_attn.v_proj.v_scale", 4.0f),
       kv_scale("2.self_attn.k_proj.output_scale", 8.0f), kv_scale("2.self_attn.v_proj.output_scale", 3.0f)});
  ASSERT_EQ(scales.size(), 3u);
  EXPECT_EQ(scales[0].k, 0.5f);
  EXPECT_EQ(scales[0].v, 0.25f);
  EXPECT_EQ(scales[1].k, 2.0f);
  EXPECT_EQ(scales[1].v, 4.0f);
  EXPECT_EQ(scales[2].k, 8.0f);
  EXPECT_EQ(scales[2].v, 3.0f);
}

TEST(KvScalesOfACheckpoint, DefaultToOneAndAreSharedByKAndV) {
  const std::vector<KvScales> scales =
      scales_of({kv_scale("0.self_attn.kv_scale", 0.5f), kv_scale("1.self_attn.k_scale", -1.0f)});
  ASSERT_EQ(scales.size(), 3u);
  EXPECT_EQ(scales[0].v, 0.5f);
  EXPECT_EQ(scales[1].k, 1.0f);
  EXPECT_EQ(scales[2].k, 1.0f);
}

// Latent attention stores K and V in one row, which has one scale.
TEST(KvScalesOfACheckpoint, UseTheKScaleForLatentAttention) {
  const std::vector<KvScales> scales = scales_of(
      {kv_scale("0.self_attn.k_proj.k_scale", 0.5f), kv_scale("0.self_attn.v_proj.v_scale", 0.25f),
       kv_scale("1.self_attn.kv_a_proj_with_mqa.k_scale", 2.0f),
       kv_scale("2.self_attn.attn_mqa.k_scale", 4.0f), kv_scale("2.self_attn.attn_mqa.v_scale", 8.0f)},
      latent_model());
  ASSERT_EQ(scales.size(), 3u);
  for (size_t layer = 0; layer < 3; ++layer) {
    const float expected[] = {0.5f, 2.0f, 4.0f};
    EXPECT_EQ(scales[layer].k, expected[layer]);
    EXPECT_EQ(scales[layer].v, expected[layer]);
  }
  CacheStorageConfig pool = make_cache_storage_config({latent_layers(3)}, 64, DType::kF8E4M3);
  set_kv_scales(pool, scales);
  EXPECT_EQ(make_kv_pool(pool)->layer(1).k_scale, 2.0f);
}

TEST(KvScalesOfACheckpoint, RejectInvalidValues) {
  expect_error(ErrorCode::kCorruptFile, {"model.layers.1.self_attn.v_scale without a k_scale"},
               [] { scales_of({kv_scale("1.self_attn.v_scale", 1.0f)}); });
  expect_error(ErrorCode::kCorruptFile, {"\"model.layers.0.self_attn.k_scale\"", "expected a finite number"},
               [] { scales_of({kv_scale("0.self_attn.k_scale", std::numeric_limits<float>::infinity())}); });
  TestTensor two = kv_scale("0.self_attn.k_scale", 1.0f);
  two.shape = {2};
  two.data += two.data;
  expect_error(ErrorCode::kCorruptFile, {"2 elements: expected one"}, [&] { scales_of({two}); });
}

TEST(KvScalesOfACheckpoint, AreSetInTheLayersOfEveryKindOfPool) {
  const std::vector<KvScales> scales = {{1.0f, 2.0f}, {3.0f, 4.0f}, {5.0f, 6.0f}};
  const auto layer_of = [](int layer, int window_left) {
    return CacheSpec{.kind = window_left < 0 ? CacheKind::kFull : CacheKind::kWindow,
                     .layers = {layer},
                     .num_kv_heads = 1,
                     .head_dim_qk = 16,
                     .head_dim_v = 16,
                     .window_left = window_left};
  };
  CacheStorageConfig pool =
      make_cache_storage_config({layer_of(0, -1), layer_of(1, -1), layer_of(2, -1)}, 1, DType::kF8E4M3);
  set_kv_scales(pool, scales);
  EXPECT_EQ(make_kv_pool(pool)->layer(2).v_scale, 6.0f);
  pool = make_cache_storage_config({layer_of(0, 3), layer_of(1, -1), layer_of(2, 3)}, 1, DType::kF8E4M3, {},
                                   SwaHalf{});
  set_kv_scales(pool, scales);
  const SwaSlots slots(1, pool.num_pages, pool.num_window_pages());
  const auto made = make_kv_pool(pool, slots.slot_map());
  for (int layer = 0; layer < 3; ++layer) {
    EXPECT_EQ(made->layer(layer).k_scale, scales[static_cast<size_t>(layer)].k);
    EXPECT_EQ(made->layer(layer).v_scale, scales[static_cast<size_t>(layer)].v);
  }
  pool = make_cache_storage_config({latent_layers(3)}, 64, DType::kF8E4M3);
  expect_error(ErrorCode::kInvalidArgument, {"k_scale 1 and v_scale 2 of layer 0", "expected equal scales"},
               [&] { set_kv_scales(pool, scales); });
  expect_error(ErrorCode::kInvalidArgument, {"scales of 1 layers: the pool has 3"},
               [&] { set_kv_scales(pool, std::span(scales).first(1)); });
}

}  // namespace
}  // namespace attend
