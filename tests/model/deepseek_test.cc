// Readers of DeepSeek-V2 and V3 configs, and unsupported configs.
#include <gtest/gtest.h>

#include <cmath>

#include "attend/attention/capability.h"
#include "tests/model/config_fields.h"

namespace attend {
namespace {

using test::expect_rejected;
using test::Fields;
using test::mlp;
using test::read;
using test::with;
using testing::ElementsAre;

constexpr const char* kV2 = "DeepseekV2ForCausalLM";
constexpr const char* kV3 = "DeepseekV3ForCausalLM";

const Fields kLatent{{"kv_lora_rank", "512"}};
const Fields kV2Fields = with(kLatent, {{"num_experts_per_tok", "6"}});

const MlaSpec& mla(const ModelSpec& spec, size_t layer = 0) {
  return std::get<MlaSpec>(spec.layers.at(layer).mixer);
}
const MoeMlpSpec& moe(const ModelSpec& spec, size_t layer) {
  return std::get<MoeMlpSpec>(spec.layers.at(layer).mlp);
}

// YaRN fields as published for V2-Lite and V3.
const Fields kYarnLite{{"max_position_embeddings", "163840"},
                       {"rope_scaling",
                        R"({"type": "yarn", "factor": 40, "beta_fast": 32, "beta_slow": 1, "mscale": 0.707,
                            "mscale_all_dim": 0.707, "original_max_position_embeddings": 4096})"}};
const Fields kYarnV3{{"max_position_embeddings", "163840"},
                     {"rope_scaling",
                      R"({"type": "yarn", "factor": 40, "beta_fast": 32, "beta_slow": 1, "mscale": 1.0,
                          "mscale_all_dim": 1.0, "original_max_position_embeddings": 4096})"}};

TEST(ReadDeepseekV2, UsesTransformersDefaultsForAbsentFields) {
  const ModelSpec spec = read(kV2, kV2Fields);
  EXPECT_EQ(mla(spec).num_heads, 4);
  EXPECT_EQ(mla(spec).q_lora_rank, 1536);
  EXPECT_EQ(mla(spec).nope_dim, 128);
  EXPECT_EQ(mla(spec).rope_dim, 64);
  EXPECT_EQ(mla(spec).v_dim, 128);
  EXPECT_FLOAT_EQ(mla(spec).latent_eps, 1e-6f);
  EXPECT_FALSE(mla(spec).bias);
  EXPECT_EQ(moe(spec, 0).num_experts, 64);
  EXPECT_EQ(moe(spec, 0).top_k, 6);
  EXPECT_EQ(moe(spec, 0).intermediate_size, 1407);
  EXPECT_EQ(moe(spec, 0).shared_intermediate_size, 2 * 1407);
  EXPECT_EQ(moe(spec, 0).rule.scores, kernels::RouterScores::kSoftmax);
  EXPECT_EQ(moe(spec, 0).rule.weights, kernels::RouterWeights::kAllExperts);
  EXPECT_FLOAT_EQ(moe(spec, 0).rule.scale, 1.0f);
  EXPECT_FALSE(moe(spec, 0).rule.groups.is_limited());
  EXPECT_FALSE(moe(spec, 0).correction);
  EXPECT_EQ(spec.ropes[0].rotary_dim, 64);
  EXPECT_TRUE(spec.ropes[0].interleaved);
}

TEST(ReadDeepseekV2, GroupsExpertsByTopkMethod) {
  const Fields groups = with(kV2Fields, {{"n_group", "8"}, {"topk_group", "3"}, {"n_routed_experts", "160"}});
  EXPECT_FALSE(moe(read(kV2, groups), 0).rule.groups.is_limited()) << "topk_method greedy ignores groups";
  const ModelSpec limited = read(
      kV2, with(groups, {{"topk_method", "\"group_limited_greedy\""}, {"routed_scaling_factor", "16.0"}}));
  EXPECT_EQ(moe(limited, 0).rule.groups.num_groups, 8);
  EXPECT_EQ(moe(limited, 0).rule.groups.top_groups, 3);
  EXPECT_FLOAT_EQ(moe(limited, 0).rule.scale, 16.0f);
}

TEST(ReadDeepseekV3, UsesTransformersDefaultsForAbsentFields) {
  const ModelSpec spec = read(kV3, with(kLatent, {{"num_hidden_layers", "5"}}));
  EXPECT_EQ(mla(spec).q_lora_rank, 1536);
  EXPECT_EQ(mlp(spec, 2).intermediate_size, 96);
  const MoeMlpSpec& experts = moe(spec, 3);
  EXPECT_EQ(experts.num_experts, 256);
  EXPECT_EQ(experts.top_k, 8);
  EXPECT_EQ(experts.intermediate_size, 2048);
  EXPECT_EQ(experts.shared_intermediate_size, 2048);
  EXPECT_EQ(experts.rule.scores, kernels::RouterScores::kSigmoid);
  EXPECT_EQ(experts.rule.weights, kernels::RouterWeights::kChosenExperts);
  EXPECT_EQ(experts.rule.groups.num_groups, 8);
  EXPECT_EQ(experts.rule.groups.top_groups, 4);
  EXPECT_FLOAT_EQ(experts.rule.scale, 2.5f);
  EXPECT_TRUE(experts.correction);
  EXPECT_FALSE(read(kV3, with(kLatent, {{"rope_interleave", "false"}})).ropes[0].interleaved);
}

TEST(ReadDeepseekV3, AcceptsKimiK2WithOneExpertGroup) {
  const ModelSpec spec = read(kV3, with(kLatent, {{"num_attention_heads", "64"},
                                                  {"n_routed_experts", "384"},
                                                  {"n_group", "1"},
                                                  {"topk_group", "1"},
                                                  {"first_k_dense_replace", "1"},
                                                  {"routed_scaling_factor", "2.827"}}));
  EXPECT_EQ(moe(spec, 1).num_experts, 384);
  EXPECT_FALSE(moe(spec, 1).rule.groups.is_limited());
}

TEST(ReadDeepseek, AppliesTheYarnTemperatureSquaredToTheScale) {
  const Fields no_q_latent{{"q_lora_rank", "null"}};
  const ModelSpec lite = read(kV2, with(with(kV2Fields, kYarnLite), no_q_latent));
  EXPECT_EQ(mla(lite).q_lora_rank, 0);
  EXPECT_NEAR(mla(lite).scale, 0.114721, 1e-6);
  EXPECT_NEAR(mla(read(kV3, with(kLatent, kYarnV3))).scale, 0.135234, 1e-6);
  EXPECT_FLOAT_EQ(mla(read(kV3, kLatent)).scale, 1.0f / std::sqrt(192.0f));
  EXPECT_EQ(read(kV3, with(kLatent, kYarnV3)).max_context_len(), 163840);
}

TEST(ReadDeepseek, CachesOneLatentRowForAllHeads) {
  const ModelGeometry geometry = read(kV3, kLatent).geometry(DType::kBF16, DType::kBF16);
  const AttentionLayer& layer = geometry.layers.at(1);
  EXPECT_EQ(layer.kind, KvKind::kMla);
  EXPECT_EQ(layer.num_q_heads, 4);
  EXPECT_EQ(layer.num_kv_heads, 1);
  EXPECT_EQ(layer.head_dim_qk, 576);
  EXPECT_EQ(layer.head_dim_v, 512);
  EXPECT_EQ(layer.rope_dim, 64);
  const std::vector<CacheSpec> caches = read(kV3, kLatent).caches();
  ASSERT_EQ(caches.size(), 1u);
  EXPECT_EQ(caches[0].kind, CacheKind::kLatent);
  EXPECT_EQ(caches[0].layers.size(), geometry.layers.size());
  EXPECT_EQ(caches[0].num_kv_heads, 1);
  EXPECT_EQ(caches[0].head_dim_qk, 576);
  EXPECT_EQ(caches[0].head_dim_v, 512);
}

constexpr const char* kV32 = "DeepseekV32ForCausalLM";
constexpr const char* kGlm = "GlmMoeDsaForCausalLM";

TEST(ReadDeepseekV32, HasAnIndexerInEveryLayer) {
  const ModelSpec spec = read(kV32, kLatent);
  for (size_t layer = 0; layer < spec.layers.size(); ++layer) {
    ASSERT_TRUE(mla(spec, layer).has_own_indexer());
    const IndexerSpec& indexer = *mla(spec, layer).indexer;
    EXPECT_EQ(indexer.top_k, 2048);
    EXPECT_EQ(indexer.num_heads, 64);
    EXPECT_EQ(indexer.head_dim, 128);
    EXPECT_FALSE(indexer.interleaved_rope);
  }
  EXPECT_TRUE(spec.ropes[0].interleaved) << "attention rotates other pairs than the indexer";
  const AttentionLayer layer = spec.attention_layers().at(1);
  EXPECT_EQ(layer.indexer.top_k, 2048);
  EXPECT_EQ(layer.indexer.num_heads, 64);
  EXPECT_TRUE(make_requirement(spec.geometry(DType::kF32, DType::kF32)).indexer);
  EXPECT_FALSE(make_requirement(read(kV3, kLatent).geometry(DType::kF32, DType::kF32)).indexer);
  ASSERT_EQ(spec.caches().size(), 1u);
  EXPECT_EQ(spec.caches()[0].index_dim, 128);
}

std::string shared_layers(const Fields& fields) {
  const ModelSpec spec = read(kGlm, with(kLatent, with({{"num_hidden_layers", "7"}}, fields)));
  std::string shared;
  for (size_t layer = 0; layer < spec.layers.size(); ++layer)
    shared += mla(spec, layer).indexer->is_shared ? 'S' : 'F';
  return shared;
}

TEST(ReadGlmMoeDsa, SharesSelectionsByTheFirstFieldThatTheConfigHas) {
  EXPECT_EQ(shared_layers({}), "FFFFFFF");
  const Fields freq{{"index_topk_freq", "4"}, {"index_skip_topk_offset", "3"}};
  EXPECT_EQ(shared_layers(freq), "FFFSSSF") << "GLM-5.2";
  EXPECT_EQ(shared_layers({{"index_topk_freq", "2"}}), "FFSFSFS");
  const Fields pattern = with(freq, {{"index_topk_pattern", "\"FSFSFSS\""}});
  EXPECT_EQ(shared_layers(pattern), "FSFSFSS");
  EXPECT_EQ(
      shared_layers(with(
          pattern, {{"indexer_types", R"(["full", "full", "shared", "shared", "full", "full", "shared"])"}})),
      "FFSSFFS");
  const ModelSpec spec =
      read(kGlm, with(kLatent, {{"num_hidden_layers", "3"}, {"index_topk_pattern", "\"FSF\""}}));
  EXPECT_EQ(mla(spec).indexer->num_heads, 32);
  EXPECT_TRUE(mla(spec).indexer->interleaved_rope);
  EXPECT_EQ(spec.attention_layers().at(1).indexer.num_heads, 0);
  EXPECT_EQ(spec.attention_layers().at(1).indexer.top_k, 2048);
  ASSERT_EQ(spec.caches().size(), 2u) << "layers that share a selection have no index keys";
  EXPECT_THAT(spec.caches()[0].layers, ElementsAre(0, 2));
  EXPECT_EQ(spec.caches()[0].index_dim, 128);
  EXPECT_THAT(spec.caches()[1].layers, ElementsAre(1));
  EXPECT_EQ(spec.caches()[1].index_dim, 0);
}

TEST(ReadGlmMoeDsa, RejectsOtherSelections) {
  const auto expect = [](const Fields& fields, ErrorCode code,
                         std::initializer_list<std::string_view> parts) {
    expect_rejected(with(kLatent, fields), code, parts, kGlm);
  };
  expect({{"index_topk_pattern", "\"SFF\""}}, ErrorCode::kCorruptFile, {"index_topk_pattern", "the first F"});
  expect({{"index_topk_pattern", "\"FF\""}}, ErrorCode::kCorruptFile, {"index_topk_pattern", "3 layers"});
  expect({{"index_topk_pattern", "\"FXF\""}}, ErrorCode::kCorruptFile, {"index_topk_pattern", "F or S"});
  expect({{"indexer_types", R"(["full", "none", "full"])"}}, ErrorCode::kCorruptFile,
         {"indexer_types", "\"shared\""});
  expect({{"indexer_types", R"(["shared", "full", "full"])"}}, ErrorCode::kCorruptFile,
         {"indexer_types", "the first \"full\""});
  expect({{"index_topk_freq", "3"}, {"index_skip_topk_offset", "0"}}, ErrorCode::kCorruptFile,
         {"index_skip_topk_offset", "layer 0"});
  expect({{"index_topk", "0"}}, ErrorCode::kCorruptFile, {"index_topk"});
  expect({{"index_head_dim", "64"}}, ErrorCode::kUnsupported,
         {"index_head_dim 64", "above qk_rope_head_dim"});
  expect({{"index_head_dim", "136"}}, ErrorCode::kUnsupported, {"index_head_dim 136", "up to 128"});
  expect({{"q_lora_rank", "null"}}, ErrorCode::kCorruptFile, {"q_lora_rank", "index queries"});
}

TEST(ReadDeepseek, RejectsConfigsWithoutLatentAttention) {
  expect_rejected({}, ErrorCode::kCorruptFile, {"kv_lora_rank"}, kV3);
  expect_rejected(with(kLatent, {{"qk_rope_head_dim", "63"}}), ErrorCode::kCorruptFile,
                  {"qk_rope_head_dim", "63", "even"}, kV3);
  expect_rejected(with(kLatent, {{"qk_rope_head_dim", "80"}, {"kv_lora_rank", "496"}}),
                  ErrorCode::kUnsupported, {"qk_rope_head_dim", "80", "at most 64"}, kV3);
  expect_rejected(with(kLatent, {{"num_attention_heads", "65536"}, {"kv_lora_rank", "65536"}}),
                  ErrorCode::kCorruptFile, {"num_attention_heads", "65536", "kv_lora_rank"}, kV3);
  expect_rejected(with(kLatent, {{"attention_bias", "true"}, {"q_lora_rank", "null"}}),
                  ErrorCode::kUnsupported, {"attention_bias", "q_lora_rank null"}, kV3);
}

TEST(ReadDeepseek, RejectsUnsupportedRouters) {
  expect_rejected(with(kLatent, {{"scoring_func", "\"softmax\""}}), ErrorCode::kUnsupported,
                  {"scoring_func", "softmax", "sigmoid"}, kV3);
  expect_rejected(with(kLatent, {{"topk_method", "\"greedy\""}}), ErrorCode::kUnsupported,
                  {"topk_method", "greedy", "noaux_tc"}, kV3);
  expect_rejected(with(kV2Fields, {{"topk_method", "\"noaux_tc\""}}), ErrorCode::kUnsupported,
                  {"topk_method", "noaux_tc", "group_limited_greedy"}, kV2);
  expect_rejected(with(kV2Fields, {{"norm_topk_prob", "true"}}), ErrorCode::kUnsupported,
                  {"norm_topk_prob", "without normalized weights"}, kV2);
  expect_rejected(with(kLatent, {{"n_group", "7"}}), ErrorCode::kCorruptFile,
                  {"n_group", "7", "divisor of 256 experts"}, kV3);
  expect_rejected(with(kLatent, {{"topk_group", "9"}}), ErrorCode::kCorruptFile,
                  {"topk_group", "9", "at most 8 groups"}, kV3);
  expect_rejected(with(kLatent, {{"n_group", "64"}, {"topk_group", "1"}}), ErrorCode::kCorruptFile,
                  {"n_group", "64", "at most 32"}, kV3);
  expect_rejected(with(kLatent, {{"moe_layer_freq", "2"}}), ErrorCode::kCorruptFile, {"moe_layer_freq", "2"},
                  kV3);
  expect_rejected(with(kLatent, {{"n_routed_experts", "4"}}), ErrorCode::kCorruptFile,
                  {"num_experts_per_tok", "8"}, kV3);
}

TEST(ReadDeepseekV3, HasFp8WeightsInBlocks) {
  const Quantization read_quantization =
      read(kV3,
           with(kLatent, {{"quantization_config",
                           R"({"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 64]})"}}))
          .quantization;
  EXPECT_EQ(read_quantization.storage, WeightStorage::kFp8);
  EXPECT_EQ(read_quantization.group_outs, 128);
  EXPECT_EQ(read_quantization.group_ins, 64);
}

}  // namespace
}  // namespace attend
