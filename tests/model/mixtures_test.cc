// Readers of the configs of architectures with experts, and of others with one module of their own.
#include <gtest/gtest.h>

#include <cmath>

#include "attend/model/config/model_spec.h"
#include "tests/model/config_fields.h"

namespace attend {
namespace {

using test::attention;
using test::expect_rejected;
using test::Fields;
using test::mlp;
using test::read;
using test::windows;
using test::with;
using testing::ElementsAre;

const MoeMlpSpec& moe_of(const ModelSpec& spec, size_t layer) {
  return std::get<MoeMlpSpec>(spec.layers.at(layer).mlp);
}
bool has_dense_mlp(const ModelSpec& spec, size_t layer) {
  return std::holds_alternative<GatedMlpSpec>(spec.layers.at(layer).mlp);
}

const Fields kMoeFields = {
    {"num_experts", "8"}, {"num_experts_per_tok", "2"}, {"moe_intermediate_size", "16"}};

TEST(ReadQwen2Moe, HasAGatedSharedExpertAndSlidesInEveryOtherLayer) {
  constexpr const char* kName = "Qwen2MoeForCausalLM";
  const ModelSpec spec = read(kName, with(kMoeFields, {{"use_sliding_window", "true"},
                                                       {"sliding_window", "16"},
                                                       {"max_window_layers", "2"},
                                                       {"mlp_only_layers", "[1]"}}));
  EXPECT_TRUE(moe_of(spec, 0).shared_gate);
  EXPECT_EQ(moe_of(spec, 0).shared_intermediate_size, 5632);
  EXPECT_TRUE(has_dense_mlp(spec, 1));
  EXPECT_TRUE(attention(spec).qkv_bias);
  EXPECT_THAT(windows(spec), ElementsAre(15, -1, -1));
  EXPECT_FALSE(attention(read(kName, with(kMoeFields, {{"qkv_bias", "false"}}))).qkv_bias);
}

TEST(ReadGraniteMoe, HasASharedExpertIfItsSizeIsNotZero) {
  const ModelSpec spec = read("GraniteMoeForCausalLM", {{"shared_intermediate_size", "24"}});
  EXPECT_EQ(moe_of(spec, 0).num_experts, 8);
  EXPECT_EQ(moe_of(spec, 0).shared_intermediate_size, 0) << "only GraniteMoeShared reads the field";
  EXPECT_EQ(moe_of(read("GraniteMoeSharedForCausalLM"), 0).shared_intermediate_size, 0);
  EXPECT_EQ(moe_of(read("GraniteMoeSharedForCausalLM", {{"shared_intermediate_size", "24"}}), 0)
                .shared_intermediate_size,
            24);
}

TEST(ReadErnie45Moe, SelectsLayersWithExperts) {
  constexpr const char* kName = "Ernie4_5_MoeForCausalLM";
  const ModelSpec spec = read(kName, {{"moe_k", "3"}, {"moe_num_experts", "12"}});
  EXPECT_TRUE(has_dense_mlp(spec, 0));
  EXPECT_EQ(moe_of(spec, 1).top_k, 3);
  EXPECT_EQ(moe_of(spec, 1).num_experts, 12);
  EXPECT_EQ(moe_of(spec, 2).shared_intermediate_size, 2 * 1536);
  EXPECT_EQ(moe_of(spec, 2).rule.scores, kernels::RouterScores::kSoftmax);
  const ModelSpec one = read(kName, {{"moe_layer_start_index", "0"}, {"moe_layer_interval", "2"}});
  EXPECT_TRUE(has_dense_mlp(one, 0) && !has_dense_mlp(one, 1) && has_dense_mlp(one, 2));
  EXPECT_TRUE(has_dense_mlp(read(kName, {{"moe_layer_end_index", "1"}}), 2));
  expect_rejected({{"use_bias", "true"}}, ErrorCode::kUnsupported, {"use_bias", "biases of experts"}, kName);
}

TEST(ReadHunYuan, StretchesTheBaseByAlpha) {
  constexpr const char* kName = "HunYuanDenseV1ForCausalLM";
  const Fields alpha = {{"rope_scaling", R"({"type": "dynamic", "alpha": 50.0, "factor": 1.0})"}};
  const ModelSpec spec = read(kName, alpha);
  EXPECT_EQ(spec.ropes[0].type, RopeType::kDefault);
  EXPECT_DOUBLE_EQ(spec.ropes[0].theta, 10000.0 * std::pow(50.0, 16.0 / 14.0));
  EXPECT_EQ(spec.max_context_len(), 256);
  EXPECT_EQ(attention(spec).qk_norm, QkNormSpan::kHeadAfterRopeWeighted);
  expect_rejected({{"use_cla", "true"}}, ErrorCode::kUnsupported, {"use_cla"}, kName);
  expect_rejected({{"rope_scaling", R"({"type": "yarn", "alpha": 50.0})"}}, ErrorCode::kUnsupported,
                  {"type \"yarn\"", "dynamic"}, kName);
}

TEST(ReadHunYuan, ReadsExpertsPerTokenByLayer) {
  constexpr const char* kName = "HunYuanMoEV1ForCausalLM";
  const ModelSpec spec = read(kName, {{"num_experts", "8"}, {"moe_topk", "[1, 2, 3]"}});
  EXPECT_EQ(moe_of(spec, 2).top_k, 3);
  EXPECT_EQ(moe_of(spec, 0).shared_intermediate_size, 96);
  EXPECT_EQ(moe_of(read(kName, {{"num_experts", "8"}, {"moe_topk", "4"}}), 2).top_k, 4);
  expect_rejected({{"num_experts", "8"}, {"moe_topk", "[1, 2]"}}, ErrorCode::kCorruptFile, {"moe_topk"},
                  kName);
  expect_rejected({{"num_experts", "8"}, {"moe_topk", "[1, 2, 9]"}}, ErrorCode::kCorruptFile, {"moe_topk[2]"},
                  kName);
}

TEST(ReadHyV3, ScalesTheWeightsOfExperts) {
  const ModelSpec spec = read("HYV3ForCausalLM", kMoeFields);
  EXPECT_TRUE(has_dense_mlp(spec, 0));
  EXPECT_FLOAT_EQ(moe_of(spec, 1).rule.scale, 2.826f);
  EXPECT_TRUE(moe_of(spec, 1).correction);
  expect_rejected(with(kMoeFields, {{"mlp_bias", "true"}}), ErrorCode::kUnsupported, {"mlp_bias"},
                  "HYV3ForCausalLM");
}

TEST(ReadExaoneMoe, HasNormsBeforeSublayers) {
  const ModelSpec spec = read("ExaoneMoeForCausalLM", with(kMoeFields, {{"sliding_window_pattern", "2"}}));
  EXPECT_TRUE(spec.layers[0].norms.before && !spec.layers[0].norms.after);
  EXPECT_THAT(windows(spec), ElementsAre(4095, -1, 4095));
  EXPECT_EQ(attention(spec, 1).rope_set, -1);
  EXPECT_TRUE(has_dense_mlp(spec, 0));
  EXPECT_FLOAT_EQ(moe_of(spec, 1).rule.scale, 2.5f);
}

TEST(ReadKimiK25, ReadsDeepseekV3AsTextModel) {
  for (const char* name : {"KimiK25ForConditionalGeneration", "Kimi_K25ForConditionalGeneration"}) {
    const ModelSpec spec =
        read(name, {{"text_config", R"({"num_hidden_layers": 2, "kv_lora_rank": 512, "n_group": 1,
                                        "topk_group": 1, "n_routed_experts": 384})"},
                    {"tie_word_embeddings", "false"}});
    EXPECT_EQ(spec.num_layers(), 2);
    EXPECT_EQ(spec.image_token_id, 163605);
    EXPECT_FALSE(spec.tie_word_embeddings);
  }
}

TEST(ReadCohere2Moe, RotatesDenseLayersWithoutWindows) {
  constexpr const char* kName = "Cohere2MoeForCausalLM";
  const ModelSpec spec = read(kName, with(kMoeFields, {{"first_k_dense_replace", "1"},
                                                       {"sliding_window_pattern", "2"},
                                                       {"num_shared_experts", "1"}}));
  EXPECT_THAT(windows(spec), ElementsAre(-1, 4095, -1));
  EXPECT_EQ(attention(spec, 0).rope_set, 0);
  EXPECT_EQ(attention(spec, 2).rope_set, -1);
  EXPECT_EQ(moe_of(spec, 1).rule.scale, 0.5f);
  EXPECT_EQ(moe_of(spec, 1).shared_scale, 0.5f);
  EXPECT_EQ(spec.norm_kind, kernels::NormKind::kLayer);
  EXPECT_EQ(read(kName, with(kMoeFields, {{"rms_norm_eps", "1e-6"}})).norm_kind, kernels::NormKind::kRms);
  expect_rejected(with(kMoeFields, {{"expert_selection_fn", "\"argmax\""}}), ErrorCode::kUnsupported,
                  {"expert_selection_fn", "argmax"}, kName);
  expect_rejected(
      with(kMoeFields, {{"num_shared_experts", "1"}, {"shared_expert_combination_strategy", "\"max\""}}),
      ErrorCode::kUnsupported, {"shared_expert_combination_strategy", "max", "sum"}, kName);
}

TEST(ReadMistral4, RotatesAShareOfEachHead) {
  constexpr const char* kName = "Mistral4ForCausalLM";
  const auto rope = [](const std::string& more) {
    return R"({"rope_type": "yarn", "factor": 8, "original_max_position_embeddings": 32)" + more + "}";
  };
  const Fields fields = {{"kv_lora_rank", "32"}, {"qk_nope_head_dim", "48"}, {"qk_rope_head_dim", "16"}};
  const ModelSpec spec = read(kName, with(fields, {{"rope_parameters", rope("")}}));
  EXPECT_EQ(spec.ropes[0].rotary_dim, 16);
  EXPECT_EQ(moe_of(spec, 0).num_experts, 128);
  EXPECT_EQ(std::get<MlaSpec>(spec.layers[0].mixer).temperature.slope, 0.0f);
  expect_rejected(with(fields, {{"rope_parameters", rope(R"(, "partial_rotary_factor": 0.5)")}}),
                  ErrorCode::kUnsupported, {"qk_rope_head_dim 16", "32"}, kName);
  expect_rejected(with(fields, {{"rope_parameters", rope("")}, {"n_group", "4"}, {"topk_group", "2"}}),
                  ErrorCode::kUnsupported, {"topk_group"}, kName);
  expect_rejected(fields, ErrorCode::kCorruptFile, {"rope_parameters"}, kName);
}

TEST(ReadMiniCpm3, TurnsScalesOffIfTheyAreNull) {
  constexpr const char* kName = "MiniCPM3ForCausalLM";
  const Fields latent = {{"kv_lora_rank", "32"}, {"rms_norm_eps", "1e-5"}};
  const ModelSpec spec = read(kName, latent);
  EXPECT_FLOAT_EQ(spec.final_logit_scale, 4.0f) << "256 / 64";
  EXPECT_FLOAT_EQ(spec.embedding_scale, 12.0f / (1.4f / std::sqrt(3.0f)));
  const auto& mla = std::get<MlaSpec>(spec.layers[0].mixer);
  EXPECT_EQ(mla.v_dim, 16) << "hidden_size / num_attention_heads";
  EXPECT_EQ(mla.rope_dim, 32);
  EXPECT_FALSE(spec.ropes[0].interleaved);
  const ModelSpec plain =
      read(kName, with(latent, {{"scale_depth", "null"}, {"dim_model_base", "null"}, {"scale_emb", "1"}}));
  EXPECT_FLOAT_EQ(plain.final_logit_scale, 1.0f);
  EXPECT_FLOAT_EQ(plain.embedding_scale, 1.0f);
  EXPECT_FLOAT_EQ(plain.norm_eps, 1e-5f);
}

TEST(ReadPhiMoe, MixesTwoExperts) {
  for (const char* name : {"PhiMoEForCausalLM", "PhimoeForCausalLM"}) {
    const ModelSpec spec = read(name, {{"lm_head_bias", "true"}, {"router_jitter_noise", "0.05"}});
    EXPECT_EQ(moe_of(spec, 0).rule.weights, kernels::RouterWeights::kNearExperts);
    EXPECT_FLOAT_EQ(moe_of(spec, 0).rule.near, 0.1f);
    EXPECT_TRUE(spec.head_bias && spec.norm_biases);
    expect_rejected({{"num_experts_per_tok", "3"}}, ErrorCode::kCorruptFile, {"num_experts_per_tok", "2"},
                    name);
  }
  const auto longrope = [](const std::string& long_scale) {
    return Fields{{"rope_scaling", R"({"type": "longrope", "original_max_position_embeddings": 64,
      "short_factor": [1, 1, 1, 1, 1, 1, 1, 1], "long_factor": [2, 2, 2, 2, 2, 2, 2, 2],
      "short_mscale": 1.25, "long_mscale": )" +
                                       long_scale + "}"}};
  };
  EXPECT_EQ(read("PhiMoEForCausalLM", longrope("1.25")).ropes[0].attention_factor, 1.25);
  expect_rejected(longrope("1.5"), ErrorCode::kUnsupported, {"long_mscale"}, "PhiMoEForCausalLM");
}

TEST(ReadLaguna, HasGatesAndHeadsByLayer) {
  constexpr const char* kName = "LagunaForCausalLM";
  const ModelSpec spec = read(kName, with(kMoeFields, {{"num_attention_heads_per_layer", "[4, 6, 4]"}}));
  EXPECT_EQ(attention(spec, 1).num_q_heads, 6);
  EXPECT_EQ(attention(spec).output_gate, OutputGate::kPerHead);
  EXPECT_EQ(attention(spec).gate_function, kernels::GateFunction::kSoftplus);
  EXPECT_EQ(spec.ropes[0].rotary_dim, 64) << "half of 128";
  EXPECT_EQ(spec.ropes[1].rotary_dim, 128);
  EXPECT_EQ(moe_of(spec, 1).rule.logit_cap, 0.0f);
  EXPECT_EQ(attention(read(kName, with(kMoeFields, {{"gating", "\"per-element\""}}))).output_gate,
            OutputGate::kPerElement);
  expect_rejected(with(kMoeFields, {{"gating", "false"}}), ErrorCode::kCorruptFile, {"gating", "per-head"},
                  kName);
  expect_rejected(with(kMoeFields, {{"attention_bias", "true"}}), ErrorCode::kUnsupported, {"attention_bias"},
                  kName);
  expect_rejected(with(kMoeFields, {{"num_attention_heads_per_layer", "[4, 5, 4]"}}), ErrorCode::kCorruptFile,
                  {"num_attention_heads_per_layer[1]", "multiple of"}, kName);
}

TEST(ReadMiMoV2Flash, DoublesKeyHeadsInLayersWithAWindow) {
  constexpr const char* kName = "MiMoV2FlashForCausalLM";
  const Fields fields = {{"num_hidden_layers", "7"},
                         {"num_attention_heads", "8"},
                         {"n_routed_experts", "8"},
                         {"num_experts_per_tok", "2"}};
  const ModelSpec spec = read(kName, fields);
  EXPECT_THAT(windows(spec), ElementsAre(-1, 128, 128, 128, 128, -1, 128));
  EXPECT_EQ(attention(spec, 0).num_kv_heads, 2);
  EXPECT_EQ(attention(spec, 1).num_kv_heads, 4);
  EXPECT_TRUE(!attention(spec, 0).sinks && attention(spec, 1).sinks);
  EXPECT_EQ(spec.ropes[0].rotary_dim, 64);
  const AttentionLayer layer = attention_layer(attention(spec), 0);
  EXPECT_EQ(layer.head_dim_qk, 192);
  EXPECT_EQ(layer.head_dim_v, 128);
  EXPECT_FLOAT_EQ(attention(spec).output_scale, 0.707f);
  EXPECT_FLOAT_EQ(attention(read(kName, with(fields, {{"attention_value_scale", "null"}}))).output_scale,
                  1.0f);
  EXPECT_EQ(windows(read(kName, with(fields, {{"sliding_window_size", "128"}})))[1], 128);
}

TEST(ReadApertus, HasXieluAndScaledRope) {
  const ModelSpec spec = read("ApertusForCausalLM");
  EXPECT_EQ(std::get<PlainMlpSpec>(spec.layers[0].mlp).activation, kernels::PlainActivation::kXielu);
  EXPECT_EQ(spec.ropes[0].type, RopeType::kLlama3);
  EXPECT_EQ(spec.ropes[0].theta, 12e6);
}

TEST(ReadMuseGlimmer, RotatesLayersWithABase) {
  constexpr const char* kName = "MuseGlimmerForConditionalGeneration";
  const auto read_text = [&](const std::string& more) {
    return read(kName, {{"text_config", R"({"num_hidden_layers": 5)" + more + "}"}});
  };
  const ModelSpec spec = read_text("");
  EXPECT_THAT(windows(spec), ElementsAre(-1, 2047, 2047, 2047, -1));
  EXPECT_EQ(attention(spec, 0).rope_set, -1);
  EXPECT_EQ(attention(spec, 1).rope_set, 0);
  EXPECT_EQ(attention(read_text(R"(, "layer_rope_theta": [10000.0, 0, 0, 0, 0])"), 1).rope_set, -1);
  expect_rejected({{"text_config", R"({"num_hidden_layers": 1, "layer_rope_theta": [500.0]})"}},
                  ErrorCode::kUnsupported, {"layer_rope_theta[0]", "10000"}, kName);
}

TEST(ReadFalcon, HasANormForEachSublayerInLargeModels) {
  const Fields fields = {{"new_decoder_architecture", "true"}, {"num_kv_heads", "2"}};
  const ModelSpec two = read("FalconForCausalLM", fields);
  EXPECT_TRUE(two.layers[0].norms.parallel && !two.layers[0].norms.shared);
  EXPECT_TRUE(
      read("FalconForCausalLM", with(fields, {{"num_ln_in_parallel_attn", "1"}})).layers[0].norms.shared);
}

}  // namespace
}  // namespace attend
