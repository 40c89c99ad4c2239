#include "attend/kv/cache_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "attend/kv/kv_pool_config.h"
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

TEST(KvPoolConfig, HasAWindowHalfOnRequest) {
  const auto caches = make_groups({make_layer(0, 3), make_layer(1), make_layer(2, 7)});
  const KvPoolConfig whole = make_kv_pool_config(caches, 4, DType::kBF16);
  const auto& mha = std::get<MhaKvPool::Config>(whole);
  EXPECT_EQ(mha.num_layers, 3);
  EXPECT_EQ(mha.num_kv_heads, 2);
  EXPECT_EQ(mha.head_dim_qk, 8);
  EXPECT_EQ(mha.head_dim_v, 16);
  EXPECT_EQ(mha.page_size, 4);
  EXPECT_EQ(mha.dtype, DType::kBF16);
  const KvPoolConfig halved = make_kv_pool_config(caches, 4, DType::kBF16, {}, SwaHalf{0.5, 12});
  const auto& swa = std::get<SwaKvPoolConfig>(halved);
  EXPECT_THAT(swa.windowed, ElementsAre(true, false, true));
  EXPECT_EQ(swa.full.num_layers, 1);
  EXPECT_EQ(swa.swa.num_layers, 2);
  EXPECT_EQ(swa.swa_full_tokens_ratio, 0.5);
  EXPECT_EQ(swa.min_swa_tokens, 12);
  // Without layers of the other kind there are no halves.
  EXPECT_TRUE(std::holds_alternative<MhaKvPool::Config>(
      make_kv_pool_config(make_groups({make_layer(0, 3)}), 4, DType::kBF16, {}, SwaHalf{})));
}

TEST(KvPoolConfig, KeepsLatentRows) {
  const CacheSpec latent{
      .kind = CacheKind::kLatent, .layers = {0, 1}, .num_kv_heads = 1, .head_dim_qk = 576, .head_dim_v = 512};
  const KvPoolConfig config = make_kv_pool_config({&latent, 1}, 64, DType::kU8);
  const auto& mla = std::get<MlaKvPool::Config>(config);
  EXPECT_EQ(mla.num_layers, 2);
  EXPECT_EQ(mla.kv_lora_rank, 512);
  EXPECT_EQ(mla.rope_dim, 64);
  EXPECT_EQ(mla.dtype, DType::kU8);
}

TEST(KvPoolConfig, NamesTheFirstLayersOfGroupsWithDifferentHeads) {
  CacheSpec wide = make_layer(2);
  wide.num_kv_heads = 4;
  EXPECT_THAT(
      error_message(
          ErrorCode::kUnsupported,
          [&] {
            make_kv_pool_config(make_groups({make_layer(0), make_layer(1, 3), wide}), 4, DType::kBF16);
          }),
      HasSubstr("layer 2 stores 4 heads of 8/16, layer 0 stores 2 of 8/16"));
  EXPECT_THAT(error_message(ErrorCode::kInvalidArgument, [&] { make_kv_pool_config({}, 4, DType::kBF16); }),
              HasSubstr("without attention layers has no KV pool"));
}

}  // namespace
}  // namespace attend
