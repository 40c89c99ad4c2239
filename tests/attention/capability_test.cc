#include "attend/attention/capability.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "attend/attention/backend.h"
#include "attend/base/error.h"

namespace attend {
namespace {

using testing::HasSubstr;
using testing::Not;

AttentionLayer llama_layer() {
  return {.num_q_heads = 32, .num_kv_heads = 8, .head_dim_qk = 128, .head_dim_v = 128};
}

TEST(PageSizes, ContainsOnlyTheSpecifiedSizes) {
  constexpr PageSizes sizes{16, 64};
  EXPECT_TRUE(sizes.contains(16));
  EXPECT_TRUE(sizes.contains(64));
  for (int size : {-16, 0, 1, 32, 48, 80, 512}) EXPECT_FALSE(sizes.contains(size)) << size;
  EXPECT_EQ(sizes.to_string(), "16, 64");
}

TEST(PageSizes, IntersectToCommonSizes) {
  EXPECT_EQ(PageSizes({1, 64, 128}).intersect({64, 128, 256}), PageSizes({64, 128}));
  EXPECT_TRUE(PageSizes({128}).intersect({64}).empty());
  EXPECT_EQ(PageSizes().to_string(), "none");
  EXPECT_EQ(PageSizes::all().to_string(), "any");
}

TEST(PageSizes, SatisfyEveryConditionOfARequirement) {
  const Capability can{.page_sizes = {1, 16, 64, 128},
                       .tree_page_sizes = {1, 16, 64},
                       .window_tree_page_sizes = {1, 64, 128},
                       .no_gqa_page_sizes = {16, 64, 128}};
  Requirement needs{.q_heads_per_kv = 4};
  EXPECT_EQ(page_sizes_for(can, needs), PageSizes({1, 16, 64, 128}));
  needs.window = true;
  EXPECT_EQ(page_sizes_for(can, needs), PageSizes({1, 16, 64, 128}));
  needs.speculation = Speculation::kChain;
  EXPECT_EQ(page_sizes_for(can, needs), PageSizes({1, 16, 64, 128}));
  needs.speculation = Speculation::kTree;
  EXPECT_EQ(page_sizes_for(can, needs), PageSizes({1, 64}));
  needs.window = false;
  EXPECT_EQ(page_sizes_for(can, needs), PageSizes({1, 16, 64}));
  needs.q_heads_per_kv = 1;
  EXPECT_EQ(page_sizes_for(can, needs), PageSizes({16, 64}));
}

TEST(Set, ListsItsMembers) {
  EXPECT_EQ(to_string(Set<Architecture>{Architecture::kHopper, Architecture::kAmpere}), "ampere, hopper");
  EXPECT_EQ(to_string(Set<Architecture>{}), "nothing");
  EXPECT_EQ(to_string(Set<DType>{DType::kBF16, DType::kF8E4M3}), "bfloat16, fp8_e4m3");
}

TEST(MakeRequirement, IsTheUnionOverTheLayers) {
  ModelGeometry model{
      .layers = {llama_layer(), llama_layer()}, .dtype = DType::kBF16, .kv_dtype = DType::kF8E4M3};
  Requirement plain = make_requirement(model);
  EXPECT_EQ(plain.kind, KvKind::kMha);
  EXPECT_EQ(plain.num_q_heads, 32);
  EXPECT_EQ(plain.q_heads_per_kv, 4);
  EXPECT_EQ(plain.head_dims, (HeadDims{128, 128}));
  EXPECT_EQ(plain.dtype, DType::kBF16);
  EXPECT_EQ(plain.kv_dtype, DType::kF8E4M3);
  EXPECT_FALSE(plain.window || plain.chunk || plain.logit_cap || plain.sinks || plain.cross ||
               plain.bidirectional || plain.kv_scales || plain.deterministic || plain.graphs);

  const float sinks[32] = {};
  model.layers[0].window_left = 0;  // a window of one key
  model.layers[1].num_kv_heads = 32;
  model.layers[1].head_dim_qk = 192;
  model.layers[1].chunk = 8192;
  model.layers[1].logit_cap = 50.0f;
  model.layers[1].sinks = sinks;
  const Requirement rich = make_requirement(model);
  EXPECT_TRUE(rich.window && rich.chunk && rich.logit_cap && rich.sinks);
  EXPECT_FALSE(rich.cross || rich.bidirectional);
  EXPECT_EQ(rich.q_heads_per_kv, 1);
  EXPECT_EQ(rich.head_dims, (HeadDims{192, 128}));
}

TEST(MakeRequirement, DistinguishesAttentionTypes) {
  ModelGeometry model{.layers = {llama_layer()}};
  model.layers[0].type = AttentionType::kCross;
  EXPECT_TRUE(make_requirement(model).cross);
  EXPECT_FALSE(make_requirement(model).bidirectional);
  model.layers[0].type = AttentionType::kEncoderOnly;
  EXPECT_TRUE(make_requirement(model).bidirectional);
  model.layers[0].type = AttentionType::kDecoderBidirectional;
  EXPECT_TRUE(make_requirement(model).bidirectional);
  EXPECT_FALSE(make_requirement(model).cross);
  model.layers[0].type = AttentionType::kDecoder;
  model.layers[0].window_right = -1;
  EXPECT_TRUE(make_requirement(model).bidirectional);
  EXPECT_FALSE(make_requirement(model).window);
  model.layers[0].window_right = 16;
  EXPECT_TRUE(make_requirement(model).bidirectional && make_requirement(model).window);
  model.layers[0].kind = KvKind::kMla;
  EXPECT_EQ(make_requirement(model).kind, KvKind::kMla);
}

TEST(MakeRequirement, RejectsALayerWithoutKvHeads) {
  ModelGeometry model{.layers = {llama_layer()}};
  model.layers[0].num_kv_heads = 0;
  EXPECT_THROW(make_requirement(model), Error);
}

TEST(Describe, ListsSupportedFeaturesOnly) {
  const BackendEntry entry{.name = "x",
                           .mha = {.prefill = {Architecture::kHopper},
                                   .decode = {Architecture::kHopper, Architecture::kBlackwell},
                                   .page_sizes = {16, 64},
                                   .kv_dtypes = {DType::kBF16},
                                   .sinks = false,
                                   .speculation = Speculation::kChain}};
  const std::string text = describe(entry);
  EXPECT_THAT(text,
              testing::StartsWith("MHA: pages 16, 64; head dims to 256/256; KV bfloat16; window, chunk,"));
  EXPECT_THAT(text, HasSubstr("draft chains"));
  EXPECT_THAT(text, HasSubstr("prefill on hopper; decode on hopper, blackwell"));
  EXPECT_THAT(text, Not(HasSubstr("sinks")));
  EXPECT_THAT(text, Not(HasSubstr("MLA")));
  EXPECT_THAT(text, Not(HasSubstr("\n")));
}

}  // namespace
}  // namespace attend
