// Readers of the configs of models with recurrent layers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "tests/model/config_fields.h"

namespace attend {
namespace {

using test::attention;
using test::expect_rejected;
using test::Fields;
using test::read;
using test::TempDir;
using test::with;
using testing::ElementsAre;

constexpr const char* kNext = "Qwen3NextForCausalLM";
constexpr const char* kText = "Qwen3_5ForCausalLM";

const GatedDeltaSpec& delta(const ModelSpec& spec, size_t layer = 0) {
  return std::get<GatedDeltaSpec>(spec.layers.at(layer).mixer);
}

std::vector<bool> recurrent_layers(const ModelSpec& spec) {
  std::vector<bool> recurrent;
  for (const LayerSpec& layer : spec.layers) recurrent.push_back(has_state(layer.mixer));
  return recurrent;
}

TEST(ReadQwen3Next, UsesTransformersDefaultsForAbsentFields) {
  const ModelSpec spec = read(kNext, {{"num_hidden_layers", "8"}, {"num_key_value_heads", ""}});
  EXPECT_THAT(recurrent_layers(spec), ElementsAre(true, true, true, false, true, true, true, false));
  EXPECT_EQ(delta(spec).num_k_heads, 16);
  EXPECT_EQ(delta(spec).num_v_heads, 32);
  EXPECT_EQ(delta(spec).head_dim_k, 128);
  EXPECT_EQ(delta(spec).head_dim_v, 128);
  EXPECT_EQ(delta(spec).conv_kernel, 4);
  EXPECT_TRUE(delta(spec).grouped_projections);
  const AttentionSpec& full = attention(spec, 3);
  EXPECT_EQ(full.num_kv_heads, 2);
  EXPECT_EQ(full.head_dim, 256);
  EXPECT_EQ(full.output_gate, OutputGate::kAfterQ);
  EXPECT_EQ(full.qk_norm, QkNormSpan::kHead);
  EXPECT_EQ(spec.ropes.at(0).rotary_dim, 64);
  EXPECT_TRUE(spec.zero_centered_norms);
  const auto& experts = std::get<MoeMlpSpec>(spec.layers.at(0).mlp);
  EXPECT_EQ(experts.num_experts, 512);
  EXPECT_EQ(experts.top_k, 10);
  EXPECT_EQ(experts.shared_intermediate_size, 512);
  EXPECT_TRUE(experts.shared_gate);
  EXPECT_EQ(experts.rule.weights, kernels::RouterWeights::kChosenExperts);
}

TEST(ReadQwen3Next, CachesDescribeStatesNextToKeysAndValues) {
  const ModelSpec spec = read(kNext, {{"num_hidden_layers", "4"}});
  EXPECT_TRUE(spec.has_states());
  EXPECT_EQ(spec.state_layer(3), 3);
  EXPECT_EQ(spec.cache_layer(3), 0);
  EXPECT_EQ(spec.geometry(DType::kF32, DType::kF32).layers.size(), 1u);
  const std::vector<CacheSpec> states = state_caches(spec.caches()), tokens = token_caches(spec.caches());
  ASSERT_EQ(states.size(), 1u);
  EXPECT_THAT(states[0].layers, ElementsAre(0, 1, 2));
  EXPECT_EQ(states[0].state, (StateShape{32, 128, 128, 3, 8192}));
  ASSERT_EQ(tokens.size(), 1u);
  EXPECT_THAT(tokens[0].layers, ElementsAre(3));
  EXPECT_FALSE(has_window_half(spec.caches()));
}

TEST(ReadQwen35, ProjectionsAreNotGroupedAndLayersAreDense) {
  const ModelSpec spec =
      read(kText, {{"layer_types", R"(["full_attention", "linear_attention", "linear_attention"])"}});
  EXPECT_THAT(recurrent_layers(spec), ElementsAre(false, true, true));
  EXPECT_FALSE(delta(spec, 1).grouped_projections);
  EXPECT_EQ(test::mlp(spec).intermediate_size, 96);
  EXPECT_FALSE(spec.image_token_id.has_value());
}

TEST(ReadQwen35, PublishedConfigsAreNested) {
  const TempDir dir;
  dir.write("config.json", R"({"architectures": ["Qwen3_5MoeForConditionalGeneration"], "text_config": {
      "hidden_size": 2048, "vocab_size": 248320, "num_hidden_layers": 40, "attn_output_gate": true,
      "mamba_ssm_dtype": "float32", "rope_parameters": {"mrope_interleaved": true,
      "mrope_section": [11, 11, 10], "rope_type": "default", "rope_theta": 10000000,
      "partial_rotary_factor": 0.25}}})");
  const ModelSpec spec = read_config(dir.path());
  EXPECT_EQ(spec.num_layers(), 40);
  EXPECT_EQ(spec.state_layer(40), 30);
  EXPECT_EQ(spec.image_token_id, 248056);
  EXPECT_EQ(spec.ropes.at(0).rotary_dim, 64);
  EXPECT_EQ(spec.ropes.at(0).theta, 1e7);
  const auto& experts = std::get<MoeMlpSpec>(spec.layers.at(39).mlp);
  EXPECT_EQ(experts.num_experts, 256);
  EXPECT_EQ(experts.top_k, 8);
  EXPECT_TRUE(experts.fused_experts && experts.fused_expert_rows);
}

const Fields kBamba = {{"mamba_n_heads", "8"}, {"attn_layer_indices", "[1]"}};

TEST(ReadBamba, LayersHaveMambaExceptThoseWithAttention) {
  const ModelSpec spec = read("BambaForCausalLM", kBamba);
  EXPECT_THAT(recurrent_layers(spec), ElementsAre(true, false, true));
  const auto& mamba = std::get<Mamba2Spec>(spec.layers.at(0).mixer);
  EXPECT_EQ(mamba.head_dim, 16);
  EXPECT_EQ(mamba.state_dim, 256);
  EXPECT_TRUE(mamba.conv_bias);
  EXPECT_FALSE(mamba.in_bias || mamba.out_bias);
  EXPECT_TRUE(std::isinf(mamba.max_step));
  EXPECT_EQ(spec.ropes.at(0).rotary_dim, 8);
  EXPECT_EQ(state_caches(spec.caches()).at(0).state, (StateShape{8, 16, 256, 3, 640}));
  const ModelSpec bounded =
      read("BambaForCausalLM", with(kBamba, {{"time_step_limit", R"([0.001, {"__float__": "Infinity"}])"}}));
  EXPECT_FLOAT_EQ(std::get<Mamba2Spec>(bounded.layers.at(0).mixer).min_step, 0.001f);
}

TEST(ReadBamba, RejectsContradictoryFields) {
  expect_rejected(with(kBamba, {{"mamba_d_head", "8"}}), ErrorCode::kCorruptFile,
                  {"mamba_n_heads 8 with mamba_d_head 8", "128"}, "BambaForCausalLM");
  expect_rejected(with(kBamba, {{"mamba_n_groups", "3"}}), ErrorCode::kCorruptFile,
                  {"mamba_n_groups 3", "a divisor of mamba_n_heads 8"}, "BambaForCausalLM");
  expect_rejected(with(kBamba, {{"time_step_limit", "[0.2, 0.1]"}}), ErrorCode::kCorruptFile,
                  {"time_step_limit", "smallest and the largest step"}, "BambaForCausalLM");
  expect_rejected(with(kBamba, {{"attn_layer_indices", "[3]"}}), ErrorCode::kCorruptFile,
                  {"attn_layer_indices"}, "BambaForCausalLM");
}

constexpr const char* kGranite = "GraniteMoeHybridForCausalLM";
const Fields kGraniteFields = {{"mamba_n_heads", "8"},
                               {"layer_types", R"(["mamba", "attention", "linear_attention"])"}};

TEST(ReadGraniteMoeHybrid, ExpertsAreNextToASharedMlp) {
  const ModelSpec spec = read(kGranite, kGraniteFields);
  EXPECT_THAT(recurrent_layers(spec), ElementsAre(true, false, true));
  EXPECT_EQ(attention(spec, 1).rope_set, -1);
  EXPECT_TRUE(spec.ropes.empty());
  const auto& experts = std::get<MoeMlpSpec>(spec.layers.at(0).mlp);
  EXPECT_EQ(experts.num_experts, 8);
  EXPECT_EQ(experts.intermediate_size, 96);
  EXPECT_EQ(experts.shared_intermediate_size, 1024);
  const ModelSpec dense = read(
      kGranite, with(kGraniteFields, {{"num_local_experts", "0"}, {"position_embedding_type", "\"rope\""}}));
  EXPECT_EQ(test::mlp(dense).intermediate_size, 1024);
  EXPECT_TRUE(test::mlp(dense).fused_gate_up);
  EXPECT_EQ(attention(dense, 1).rope_set, 0);
}

TEST(ReadGraniteMoeHybrid, MultipliersDoNotChangeTheEpsilonOfTheGatedNorm) {
  const ModelSpec spec = read(kGranite, with(kGraniteFields, {{"residual_multiplier", "0.5"}}));
  const float gated = std::get<Mamba2Spec>(spec.layers.at(0).mixer).norm_eps;
  EXPECT_FLOAT_EQ(spec.norm_eps, 4.0f * gated);
}

TEST(ReadGraniteMoeHybrid, RejectsOtherLayerTypes) {
  expect_rejected(with(kGraniteFields, {{"layer_types", R"(["mamba", "attention"])"}}),
                  ErrorCode::kCorruptFile, {"layer_types", "an array of 3 times"}, kGranite);
  expect_rejected(with(kGraniteFields, {{"layer_types", R"(["mamba", "attention", "conv"])"}}),
                  ErrorCode::kCorruptFile, {"layer_types", "\"mamba\" or"}, kGranite);
}

const Fields kFalcon = {{"mamba_n_heads", "8"}, {"mamba_d_ssm", "96"}};

TEST(ReadFalconH1, EachLayerHasKeysAndValuesAndAState) {
  const ModelSpec spec = read("FalconH1ForCausalLM", with(kFalcon, {{"ssm_multipliers", "[1, 2, 3, 4, 5]"},
                                                                    {"key_multiplier", "0.5"},
                                                                    {"mlp_multipliers", "[0.5, 0.25]"}}));
  EXPECT_EQ(spec.cache_layer(3), 3);
  EXPECT_EQ(spec.state_layer(3), 3);
  EXPECT_EQ(spec.geometry(DType::kF32, DType::kF32).layers.size(), 3u);
  EXPECT_THAT(state_caches(spec.caches()).at(0).layers, ElementsAre(0, 1, 2));
  EXPECT_THAT(token_caches(spec.caches()).at(0).layers, ElementsAre(0, 1, 2));
  const auto& both = std::get<AttentionMamba2Spec>(spec.layers.at(0).mixer);
  EXPECT_EQ(both.mamba.head_dim, 12);
  EXPECT_EQ(both.mamba.gate_order, kernels::GateOrder::kGateOnly);
  EXPECT_THAT(both.mamba.scales, ElementsAre(1.0f, 2.0f, 3.0f, 4.0f, 5.0f));
  EXPECT_FLOAT_EQ(both.attention.scale, 0.125f);
  EXPECT_EQ(test::mlp(spec).gate_scale, 0.5f);
  EXPECT_EQ(test::mlp(spec).up_scale, 0.25f);
}

TEST(ReadFalconH1, RejectsContradictoryFields) {
  expect_rejected(with(kFalcon, {{"ssm_multipliers", "[1, 2]"}}), ErrorCode::kCorruptFile,
                  {"ssm_multipliers", "an array of 5 numbers"}, "FalconH1ForCausalLM");
  expect_rejected(with(kFalcon, {{"mamba_d_head", "8"}}), ErrorCode::kCorruptFile,
                  {"mamba_d_head 8", "mamba_d_ssm, 96"}, "FalconH1ForCausalLM");
  expect_rejected(with(kFalcon, {{"attention_bias", "true"}, {"attention_out_multiplier", "0.5"}}),
                  ErrorCode::kUnsupported, {"attention_bias true", "a factor of 1"}, "FalconH1ForCausalLM");
}

constexpr const char* kNemotron = "NemotronHForCausalLM";
const Fields kNemotronFields = {{"hybrid_override_pattern", "\"M-*EM\""}, {"moe_latent_size", "24"}};

TEST(ReadNemotronH, EachLayerHasOneSublayer) {
  for (const auto& types :
       {R"("M-*EM")", R"(["mamba", "mlp", "full_attention", "moe", "linear_attention"])"}) {
    const bool is_list = types[0] == '[';
    const ModelSpec spec =
        read(kNemotron,
             with(kNemotronFields, {{is_list ? "layers_block_type" : "hybrid_override_pattern", types}}));
    EXPECT_THAT(recurrent_layers(spec), ElementsAre(true, false, false, false, true));
    EXPECT_TRUE(std::holds_alternative<std::monostate>(spec.layers.at(0).mlp));
    EXPECT_TRUE(std::holds_alternative<std::monostate>(spec.layers.at(1).mixer));
    EXPECT_EQ(std::get<PlainMlpSpec>(spec.layers.at(1).mlp).activation, kernels::PlainActivation::kRelu2);
    EXPECT_EQ(attention(spec, 2).rope_set, -1);
    EXPECT_EQ(spec.cache_layer(2), 0);
    EXPECT_EQ(spec.state_layer(4), 1);
    EXPECT_EQ(state_caches(spec.caches()).at(0).state, (StateShape{128, 64, 128, 3, 10240}));
    const auto& experts = std::get<MoeMlpSpec>(spec.layers.at(3).mlp);
    EXPECT_EQ(experts.latent_size, 24);
    EXPECT_EQ(experts.gate.num_products(), 1);
    EXPECT_TRUE(experts.correction);
  }
}

TEST(ReadNemotronH, RejectsOtherLayersAndActivations) {
  expect_rejected(with(kNemotronFields, {{"hybrid_override_pattern", "\"M-X\""}}), ErrorCode::kCorruptFile,
                  {"hybrid_override_pattern", "M, *, - or E"}, kNemotron);
  expect_rejected(with(kNemotronFields, {{"layers_block_type", R"(["mamba", "conv"])"}}),
                  ErrorCode::kCorruptFile, {"layers_block_type", "\"mamba\", \"attention\""}, kNemotron);
  expect_rejected(with(kNemotronFields, {{"mlp_hidden_act", "\"silu\""}}), ErrorCode::kUnsupported,
                  {"mlp_hidden_act", "relu2"}, kNemotron);
  expect_rejected(with(kNemotronFields, {{"mlp_bias", "true"}}), ErrorCode::kUnsupported, {"mlp_bias true"},
                  kNemotron);
}

TEST(ReadLfm2, AdjustsTheSizeOfTheMlp) {
  const ModelSpec spec = read("Lfm2ForCausalLM", {{"full_attn_idxs", "[1]"}, {"intermediate_size", "12288"}});
  EXPECT_THAT(recurrent_layers(spec), ElementsAre(true, false, true));
  EXPECT_EQ(test::mlp(spec).intermediate_size, 8192);
  EXPECT_EQ(attention(spec, 1).qk_norm, QkNormSpan::kHead);
  EXPECT_TRUE(spec.tie_word_embeddings);
  EXPECT_EQ(spec.ropes.at(0).theta, 1e6);
  EXPECT_EQ(state_caches(spec.caches()).at(0).state, (StateShape{0, 0, 0, 2, 64}));
  const ModelSpec own =
      read("Lfm2ForCausalLM", {{"block_ff_dim", "100"}, {"block_auto_adjust_ff_dim", "false"}});
  EXPECT_EQ(test::mlp(own).intermediate_size, 100);
  EXPECT_FALSE(own.has_states());
}

TEST(ReadLfm2, ExpertsFollowTheDenseLayers) {
  const ModelSpec spec =
      read("Lfm2MoeForCausalLM", {{"layer_types", R"(["conv", "full_attention", "conv"])"}});
  EXPECT_EQ(test::mlp(spec, 1).intermediate_size, 96);
  const auto& experts = std::get<MoeMlpSpec>(spec.layers.at(2).mlp);
  EXPECT_EQ(experts.num_experts, 32);
  EXPECT_EQ(experts.top_k, 4);
  EXPECT_TRUE(experts.correction);
  EXPECT_EQ(experts.rule.scores, kernels::RouterScores::kSigmoid);
  EXPECT_EQ(experts.rule.sum_epsilon, 1e-6f);
}

TEST(ReadLfm2, RejectsOtherLayerTypes) {
  expect_rejected({{"layer_types", R"(["conv", "conv", "mamba"])"}}, ErrorCode::kCorruptFile,
                  {"layer_types", "\"conv\" or"}, "Lfm2ForCausalLM");
  expect_rejected({{"full_attn_idxs", "[3]"}}, ErrorCode::kCorruptFile, {"full_attn_idxs"},
                  "Lfm2ForCausalLM");
  expect_rejected({{"conv_L_cache", "9"}}, ErrorCode::kUnsupported, {"conv_L_cache 9", "2 to 8"},
                  "Lfm2ForCausalLM");
}

constexpr const char* kKimi = "KimiLinearForCausalLM";

// linear_attn_config of three layers. `lists`: its layers.
std::string kda_config(const std::string& lists = R"("kda_layers": [1, 3], "full_attn_layers": [2])",
                       const std::string& head_dim = R"("head_dim": 16)") {
  return R"({"num_heads": 4, "short_conv_kernel_size": 4, )" + head_dim + ", " + lists + "}";
}
const Fields kKimiFields = {{"linear_attn_config", kda_config()},
                            {"kv_lora_rank", "512"},
                            {"max_position_embeddings", ""},
                            {"model_max_length", "1024"},
                            {"num_expert_group", "4"},
                            {"topk_group", "2"},
                            {"num_experts", "16"},
                            {"num_experts_per_token", "3"},
                            {"num_shared_experts", "2"},
                            {"moe_renormalize", "false"},
                            {"q_lora_rank", "null"}};

TEST(ReadKimiLinear, LayersAreNumberedFromOne) {
  const ModelSpec spec = read(kKimi, kKimiFields);
  EXPECT_THAT(recurrent_layers(spec), ElementsAre(true, false, true));
  EXPECT_TRUE(delta(spec).decays_per_channel && delta(spec).sigmoid_gate);
  EXPECT_EQ(delta(spec).gate_rank, 16);
  EXPECT_EQ(delta(spec).decay_features(), 64);
  EXPECT_EQ(state_caches(spec.caches()).at(0).state, (StateShape{4, 16, 16, 3, 192}));
  const auto& mla = std::get<MlaSpec>(spec.layers.at(1).mixer);
  EXPECT_EQ(mla.rope_set, -1);
  EXPECT_EQ(mla.q_lora_rank, 0);
  EXPECT_FLOAT_EQ(mla.scale, 1.0f / std::sqrt(192.0f));
  EXPECT_TRUE(spec.ropes.empty());
  EXPECT_EQ(spec.max_context_len(), 1024);
}

TEST(ReadKimiLinear, FieldsOfExpertsHaveOtherNamesThanDeepSeeks) {
  const ModelSpec spec = read(kKimi, kKimiFields);
  EXPECT_EQ(test::mlp(spec).intermediate_size, 96);
  const auto& experts = std::get<MoeMlpSpec>(spec.layers.at(1).mlp);
  EXPECT_EQ(experts.num_experts, 16);
  EXPECT_EQ(experts.top_k, 3);
  EXPECT_EQ(experts.shared_intermediate_size, 2 * 1024);
  EXPECT_EQ(experts.rule.groups.num_groups, 4);
  EXPECT_EQ(experts.rule.groups.top_groups, 2);
  EXPECT_EQ(experts.rule.weights, kernels::RouterWeights::kAllExperts);
  EXPECT_FLOAT_EQ(experts.rule.scale, 2.446f);
  EXPECT_TRUE(experts.correction);
}

TEST(ReadKimiLinear, RejectsContradictoryListsAndAbsentSizes) {
  const auto rejects = [](const std::string& linear, ErrorCode code,
                          std::initializer_list<std::string_view> parts) {
    expect_rejected(with(kKimiFields, {{"linear_attn_config", linear}}), code, parts, kKimi);
  };
  rejects(kda_config(R"("kda_layers": [1, 3], "full_attn_layers": [2, 3])"), ErrorCode::kCorruptFile,
          {"linear_attn_config.full_attn_layers[1] 3", "each layer once"});
  rejects(kda_config(R"("kda_layers": [1], "full_attn_layers": [2])"), ErrorCode::kCorruptFile,
          {"kda_layers: layer 3 is not listed"});
  rejects(kda_config(R"("kda_layers": [0, 1], "full_attn_layers": [2])"), ErrorCode::kCorruptFile,
          {"kda_layers[0]", "1 to 3"});
  rejects(kda_config(R"("kda_layers": [1, 2, 3])"), ErrorCode::kCorruptFile, {"full_attn_layers"});
  rejects(kda_config(R"("kda_layers": [1, 3], "full_attn_layers": [2])", R"("width": 16)"),
          ErrorCode::kCorruptFile, {"linear_attn_config.head_dim"});
  rejects(kda_config(R"("kda_layers": [1, 3], "full_attn_layers": [2])", R"("head_dim": 512)"),
          ErrorCode::kUnsupported, {"head_dim 512", "at most 256"});
  rejects("null", ErrorCode::kCorruptFile, {"linear_attn_config"});
  expect_rejected(with(kKimiFields, {{"mla_use_nope", "false"}}), ErrorCode::kUnsupported,
                  {"mla_use_nope false"}, kKimi);
  expect_rejected(with(kKimiFields, {{"num_expert_group", "3"}}), ErrorCode::kCorruptFile,
                  {"num_expert_group 3", "a divisor of 16"}, kKimi);
  expect_rejected(with(kKimiFields, {{"moe_router_activation_func", "\"softmax\""}}), ErrorCode::kUnsupported,
                  {"moe_router_activation_func", "sigmoid"}, kKimi);
}

constexpr const char* kOlmoHybrid = "OlmoHybridForCausalLM";

TEST(ReadOlmoHybrid, LayersHaveTheNormsOfTheirKind) {
  const ModelSpec spec =
      read(kOlmoHybrid, {{"num_hidden_layers", "4"}, {"rope_parameters", R"({"rope_theta": null})"}});
  EXPECT_THAT(recurrent_layers(spec), ElementsAre(true, true, true, false));
  EXPECT_TRUE(spec.layers[0].norms.before && !spec.layers[0].norms.after);
  EXPECT_TRUE(spec.layers[3].norms.after && !spec.layers[3].norms.before);
  EXPECT_EQ(attention(spec, 3).rope_set, -1);
  EXPECT_EQ(attention(spec, 3).qk_norm, QkNormSpan::kToken);
  EXPECT_EQ(delta(spec).num_k_heads, 4);
  EXPECT_EQ(delta(spec).head_dim_k, 12);  // 0.75 hidden_size / heads
  EXPECT_EQ(delta(spec).head_dim_v, 24);
  EXPECT_EQ(delta(spec).beta_scale, 2.0f);
  EXPECT_FLOAT_EQ(delta(spec).norm_eps, 1e-5f);
}

TEST(ReadOlmoHybrid, ReadsRopeAndSizes) {
  const ModelSpec spec = read(kOlmoHybrid, {{"rope_parameters", R"({"rope_theta": 5000.0})"},
                                            {"linear_allow_neg_eigval", "false"},
                                            {"linear_num_key_heads", "2"},
                                            {"linear_key_head_dim", "20"}});
  // Without a layer_types, the last one of up to three layers has attention.
  EXPECT_THAT(recurrent_layers(spec), ElementsAre(true, true, false));
  EXPECT_EQ(attention(spec, 2).rope_set, 0);
  EXPECT_EQ(spec.ropes.at(0).theta, 5000.0);
  EXPECT_EQ(read(kOlmoHybrid).ropes.at(0).theta, 10000.0);
  EXPECT_TRUE(read(kOlmoHybrid, {{"rope_theta", "null"}}).ropes.empty());
  EXPECT_EQ(delta(spec).num_v_heads, 4);
  EXPECT_EQ(delta(spec).head_dim_v, 40);
  EXPECT_EQ(delta(spec).beta_scale, 1.0f);
  expect_rejected({{"layer_types", R"(["linear_attention", "full_attention"])"}}, ErrorCode::kCorruptFile,
                  {"layer_types", "an array of 3 times"}, kOlmoHybrid);
  expect_rejected({{"linear_num_value_heads", "6"}}, ErrorCode::kCorruptFile,
                  {"linear_num_value_heads 6", "a multiple of linear_num_key_heads 4"}, kOlmoHybrid);
}

TEST(ReadQwen3Next, RejectsContradictoryAndUnsupportedFields) {
  expect_rejected({{"layer_types", R"(["linear_attention", "full_attention"])"}}, ErrorCode::kCorruptFile,
                  {"layer_types", "an array of 3 times"}, kNext);
  expect_rejected({{"layer_types", R"(["linear_attention", "full_attention", "mamba"])"}},
                  ErrorCode::kCorruptFile, {"layer_types", "\"linear_attention\" or"}, kNext);
  expect_rejected({{"linear_num_value_heads", "24"}}, ErrorCode::kCorruptFile,
                  {"linear_num_value_heads 24", "a multiple of linear_num_key_heads 16"}, kNext);
  expect_rejected({{"linear_key_head_dim", "512"}}, ErrorCode::kUnsupported,
                  {"linear_key_head_dim 512", "at most 256"}, kNext);
  expect_rejected({{"linear_conv_kernel_dim", "1"}}, ErrorCode::kUnsupported,
                  {"linear_conv_kernel_dim 1", "2 to 8"}, kNext);
  expect_rejected({{"mamba_ssm_dtype", "\"bfloat16\""}}, ErrorCode::kUnsupported,
                  {"mamba_ssm_dtype", "float32"}, kText);
  expect_rejected({{"output_gate_type", "\"sigmoid\""}}, ErrorCode::kUnsupported,
                  {"output_gate_type", "silu"}, kText);
}

}  // namespace
}  // namespace attend
