#include "attend/kv/cache_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "attend/kv/storage/cache_storage.h"
#include "tests/support/error_message.h"

namespace attend {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing_support::error_message;

CacheSpec make_layer(int layer, int window_left = -1) {
  return {.kind = window_left >= 0 ? CacheKind::kWindow : CacheKind::kFull,
          .layers = {layer},
          .num_kv_heads = 2,
          .head_dim_qk = 8,
          .head_dim_v = 16,
          .window_left = window_left};
}

std::vector<CacheSpec> make_groups(const std::vector<CacheSpec>& layers) {
  std::vector<CacheSpec> caches;
  for (const CacheSpec& layer : layers) add_layer(caches, layer);
  return caches;
}

TEST(CacheSpec, GroupsLayersOfOneKindAndGeometryWithTheWidestWindow) {
  const auto caches =
      make_groups({make_layer(0, 3), make_layer(1), make_layer(2, 7), make_layer(3, 5), make_layer(4)});
  ASSERT_EQ(caches.size(), 2u);
  EXPECT_EQ(caches[0].kind, CacheKind::kWindow);
  EXPECT_THAT(caches[0].layers, ElementsAre(0, 2, 3));
  EXPECT_EQ(caches[0].window_left, 7);
  EXPECT_EQ(caches[1].kind, CacheKind::kFull);
  EXPECT_THAT(caches[1].layers, ElementsAre(1, 4));
  EXPECT_EQ(caches[1].window_left, -1);
  EXPECT_TRUE(has_window_half(caches));
  EXPECT_EQ(widest_window_left(caches), 7);
}

TEST(CacheSpec, HasNoWindowHalfForLayersOfOneKind) {
  EXPECT_FALSE(has_window_half(make_groups({make_layer(0, 3), make_layer(1, 7)})));
  EXPECT_FALSE(has_window_half(make_groups({make_layer(0), make_layer(1)})));
  EXPECT_EQ(widest_window_left(make_groups({make_layer(0)})), 0);
}

TEST(CacheStorageConfig, CountsBytesPerTokenOfAllLayers) {
  const auto caches = make_groups({make_layer(0, 3), make_layer(1), make_layer(2, 7)});
  CacheStorageConfig config = make_cache_storage_config(caches, 4, DType::kBF16);
  EXPECT_EQ(config.num_window_pages(), 0);
  EXPECT_EQ(config.token_bytes(), 3u * 2 * (8 + 16) * 2);
  EXPECT_EQ(config.page_bytes(), 4.0 * 3 * 2 * (8 + 16) * 2);
  config.num_pages = 9;
  const auto pool = make_kv_pool(config);
  EXPECT_EQ(pool->num_pages(), 9);
  EXPECT_EQ(pool->page_size(), 4);
  EXPECT_EQ(pool->dtype(), DType::kBF16);
  EXPECT_EQ(pool->bytes_per_token(), config.token_bytes());
  EXPECT_EQ(pool->layer(2).k.shape[3], 8);
  EXPECT_EQ(pool->layer(2).v.shape[3], 16);
  EXPECT_EQ(make_window_slots(config), nullptr);
}

TEST(CacheStorageConfig, HasAWindowHalfOnRequest) {
  const auto caches = make_groups({make_layer(0, 3), make_layer(1), make_layer(2, 7)});
  CacheStorageConfig config = make_cache_storage_config(caches, 4, DType::kBF16, {}, SwaHalf{0.5, 0});
  config.num_pages = 8;
  EXPECT_EQ(config.num_window_pages(), 5);  // ceil(7 / 2) and the padding page
  CacheStorageConfig whole = make_cache_storage_config(caches, 4, DType::kBF16);
  whole.num_pages = 8;
  EXPECT_LT(config.num_bytes(), whole.num_bytes());
  const ReqToTokenPool rows(1, 8);
  const auto window_slots = make_window_slots(config);
  ASSERT_NE(window_slots, nullptr);
  EXPECT_EQ(window_slots->num_total_pages(), 4);
  const CacheStorage storage(config, {.rows = rows, .window_slots = window_slots.get()});
  const KvPool& pool = storage.kv_pool();
  EXPECT_EQ(pool.layer(1).k.shape[0], 8);
  EXPECT_EQ(pool.layer(1).slot_map, nullptr);
  for (const int windowed : {0, 2}) {
    EXPECT_EQ(pool.layer(windowed).k.shape[0], 5);
    EXPECT_EQ(pool.layer(windowed).slot_map, window_slots->slot_map().as<int32_t>());
  }
  config.window_half->min_tokens = 22;
  EXPECT_EQ(config.num_window_pages(), 7);
  config.window_half->min_tokens = 100;
  EXPECT_EQ(config.num_window_pages(), 8);
  // Without layers of the other kind there are no halves.
  EXPECT_FALSE(
      make_cache_storage_config(make_groups({make_layer(0, 3)}), 4, DType::kBF16, {}, SwaHalf{}).window_half);
  EXPECT_THAT(error_message(ErrorCode::kInvalidArgument,
                            [&] { make_cache_storage_config(caches, 4, DType::kBF16, {}, SwaHalf{1.5}); }),
              HasSubstr("swa_full_tokens_ratio 1.5: above 0 and at most 1"));
}

// Gemma 4: wide heads in layers with full attention, more heads in layers with a window.
TEST(CacheStorageConfig, SupportsOneGeometryPerHalf) {
  CacheSpec wide = make_layer(1);
  wide.num_kv_heads = 1;
  wide.head_dim_qk = wide.head_dim_v = 32;
  const auto caches = make_groups({make_layer(0, 3), wide, make_layer(2, 3)});
  for (const auto& swa : {std::optional<SwaHalf>(), std::optional(SwaHalf{0.5, 0})}) {
    CacheStorageConfig config = make_cache_storage_config(caches, 4, DType::kBF16, {}, swa);
    config.num_pages = 9;
    set_kv_scales(config, std::vector<KvScales>{{1.0f, 2.0f}, {3.0f, 4.0f}, {5.0f, 6.0f}});
    const ReqToTokenPool rows(1, 8);
    const auto window_slots = make_window_slots(config);
    EXPECT_EQ(window_slots != nullptr, swa.has_value());
    const CacheStorage storage(config, {.rows = rows, .window_slots = window_slots.get()});
    const KvPool& pool = storage.kv_pool();
    EXPECT_EQ(pool.bytes_per_token(), 2u * (2 * 2 * (8 + 16) + 64));
    for (const int layer : {0, 2}) {
      EXPECT_EQ(pool.layer(layer).k.shape[2], 2);
      EXPECT_EQ(pool.layer(layer).v.shape[3], 16);
    }
    EXPECT_EQ(pool.layer(1).k.shape[0], 9);
    EXPECT_EQ(pool.layer(1).k.shape[2], 1);
    EXPECT_EQ(pool.layer(1).v.shape[3], 32);
    for (const int layer : {0, 1, 2})
      EXPECT_EQ(pool.layer(layer).v_scale, static_cast<float>(2 * layer + 2)) << layer;
    EXPECT_NE(pool.layer(0).k.data, pool.layer(2).k.data);
    EXPECT_THROW(pool.layer(3), Error);
  }
}

TEST(CacheStorageConfig, KeepsLatentRows) {
  const CacheSpec latent{
      .kind = CacheKind::kLatent, .layers = {0, 1}, .num_kv_heads = 1, .head_dim_qk = 576, .head_dim_v = 512};
  const CacheStorageConfig config = make_cache_storage_config({latent}, 64, DType::kU8);
  EXPECT_EQ(config.token_bytes(), 2u * 656);
  EXPECT_EQ(make_kv_pool(config)->latent(1).shape[2], 656);
}

TEST(CacheStorageConfig, NamesTheFirstLayersOfGroupsWithDifferentHeads) {
  CacheSpec wide = make_layer(2);
  wide.num_kv_heads = 4;
  EXPECT_THAT(error_message(ErrorCode::kUnsupported,
                            [&] {
                              make_cache_storage_config(make_groups({make_layer(0), make_layer(1, 3), wide}),
                                                        4, DType::kBF16, {}, SwaHalf{});
                            }),
              HasSubstr("layer 2 stores 4 heads of 8/16, layer 0 stores 2 of 8/16: all layers of a half"));
  EXPECT_THAT(
      error_message(ErrorCode::kInvalidArgument, [&] { make_cache_storage_config({}, 4, DType::kBF16); }),
      HasSubstr("KV pool: the model has no attention layers"));
}

}  // namespace
}  // namespace attend
