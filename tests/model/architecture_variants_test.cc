// Readers of the configs of architectures that combine the parts of other architectures.
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
using test::TempDir;
using test::windows;
using test::with;
using testing::ElementsAre;

// rope_set of each layer.
std::vector<int> rope_sets(const ModelSpec& spec) {
  std::vector<int> sets;
  for (size_t i = 0; i < spec.layers.size(); ++i) sets.push_back(attention(spec, i).rope_set);
  return sets;
}

const MoeMlpSpec& experts_of(const ModelSpec& spec, size_t layer) {
  return std::get<MoeMlpSpec>(spec.layers.at(layer).mlp);
}

TEST(ReadGemma, ScalesByHeadDimAndHasOnlyPreNorms) {
  const ModelSpec spec = read("GemmaForCausalLM", {{"hidden_act", "\"gelu\""}});
  EXPECT_FLOAT_EQ(attention(spec).scale, 0.0625f) << "heads of 256 by default";
  EXPECT_TRUE(spec.layers[0].norms.before);
  EXPECT_FALSE(spec.layers[0].norms.after);
  EXPECT_TRUE(spec.zero_centered_norms && spec.tie_word_embeddings);
  EXPECT_FLOAT_EQ(spec.embedding_scale, 8.0f);
  EXPECT_EQ(mlp(spec).activation, kernels::Activation::kGeluTanh);
}

TEST(ReadExaone4, FullLayersHaveNoRopeWhenOthersSlide) {
  const ModelSpec spec =
      read("Exaone4ForCausalLM", {{"sliding_window_pattern", "2"}, {"sliding_window", "16"}});
  EXPECT_THAT(windows(spec), ElementsAre(15, -1, 15));
  EXPECT_THAT(rope_sets(spec), ElementsAre(0, -1, 0));
  const ModelSpec full = read("Exaone4ForCausalLM", {{"sliding_window", "null"}});
  EXPECT_THAT(windows(full), ElementsAre(-1, -1, -1));
  EXPECT_THAT(rope_sets(full), ElementsAre(0, 0, 0));
}

// LG AI publishes the pattern as a string in addition to layer_types.
TEST(ReadExaone4, AcceptsLayerTypesNextToAPattern) {
  EXPECT_THAT(
      windows(read("Exaone4ForCausalLM",
                   {{"sliding_window_pattern", "\"LLG\""},
                    {"layer_types", R"(["sliding_attention", "sliding_attention", "full_attention"])"}})),
      ElementsAre(4095, 4095, -1));
  expect_rejected({{"sliding_window_pattern", "\"LLG\""}}, ErrorCode::kCorruptFile,
                  {"sliding_window_pattern"}, "Exaone4ForCausalLM");
}

TEST(ReadSmolLm3, EveryFourthLayerHasNoRope) {
  const Fields five = {{"num_hidden_layers", "5"}};
  EXPECT_THAT(rope_sets(read("SmolLM3ForCausalLM", five)), ElementsAre(0, 0, 0, -1, 0));
  EXPECT_THAT(rope_sets(read("SmolLM3ForCausalLM", {{"no_rope_layers", "[0, 1, 1]"}})),
              ElementsAre(-1, 0, 0));
  EXPECT_THAT(windows(read("SmolLM3ForCausalLM", {{"sliding_window", "16"}})), ElementsAre(-1, -1, -1));
  EXPECT_THAT(windows(read("SmolLM3ForCausalLM", {{"sliding_window", "16"},
                                                  {"use_sliding_window", "true"},
                                                  {"no_rope_layer_interval", "2"}})),
              ElementsAre(-1, 15, -1));
  expect_rejected({{"no_rope_layers", "[1]"}}, ErrorCode::kCorruptFile, {"no_rope_layers", "array of 3"},
                  "SmolLM3ForCausalLM");
}

TEST(ReadOlmo3, ScalesRopeOfFullLayersOnly) {
  const ModelSpec spec = read(
      "Olmo3ForCausalLM",
      {{"num_hidden_layers", "4"},
       {"rope_theta", "1000.0"},
       {"rope_scaling", R"({"rope_type": "yarn", "factor": 8, "original_max_position_embeddings": 32})"}});
  EXPECT_THAT(windows(spec), ElementsAre(4095, 4095, 4095, -1));
  EXPECT_THAT(rope_sets(spec), ElementsAre(1, 1, 1, 0));
  EXPECT_EQ(spec.ropes[0].type, RopeType::kYarn);
  EXPECT_EQ(spec.ropes[1].type, RopeType::kDefault);
  EXPECT_EQ(spec.ropes[0].theta, 1000.0);
  EXPECT_EQ(spec.ropes[1].theta, 1000.0);
}

// x' = x / r: embeddings are divided by r, and the norms' epsilon by r^2.
TEST(ReadGranite, DividesTheResidualByTheSublayerMultiplier) {
  const ModelSpec spec = read("GraniteForCausalLM", {{"embedding_multiplier", "12.0"},
                                                     {"residual_multiplier", "0.25"},
                                                     {"attention_multiplier", "0.015625"},
                                                     {"logits_scaling", "8.0"},
                                                     {"rms_norm_eps", "1e-5"}});
  EXPECT_FLOAT_EQ(spec.embedding_scale, 48.0f);
  EXPECT_FLOAT_EQ(spec.norm_eps, 16e-5f);
  EXPECT_FLOAT_EQ(attention(spec).scale, 0.015625f);
  EXPECT_FLOAT_EQ(spec.final_logit_scale, 0.125f);
  EXPECT_FLOAT_EQ(attention(read("GraniteForCausalLM")).scale, 1.0f) << "transformers' default";
  expect_rejected({{"residual_multiplier", "1e-9"}}, ErrorCode::kCorruptFile,
                  {"residual_multiplier", "1 / 65536"}, "GraniteForCausalLM");
}

constexpr const char* kMinistralRope =
    R"({"rope_type": "yarn", "rope_theta": 1e6, "factor": 16, "original_max_position_embeddings": 16,
        "llama_4_scaling_beta": 0.1})";

TEST(ReadMinistral3, ScalesQueriesFromPositionZero) {
  const ModelSpec spec = read("Ministral3ForCausalLM", {{"rope_parameters", kMinistralRope}});
  EXPECT_FLOAT_EQ(attention(spec).temperature.slope, 0.1f);
  EXPECT_FLOAT_EQ(attention(spec).temperature.floor_scale, 16.0f);
  EXPECT_EQ(attention(spec).temperature.first, 0);
  EXPECT_EQ(spec.ropes[0].type, RopeType::kYarn);
  expect_rejected({}, ErrorCode::kCorruptFile, {"rope_parameters"}, "Ministral3ForCausalLM");
}

TEST(ReadMistral3, ReadsTheNamedTextModel) {
  const auto read_text = [](const std::string& text) {
    return read("Mistral3ForConditionalGeneration", {{"text_config", text}});
  };
  const ModelSpec mistral = read_text(R"({"model_type": "mistral", "num_hidden_layers": 2})");
  EXPECT_EQ(mistral.num_layers(), 2);
  EXPECT_EQ(mistral.hidden_size, 5120);
  EXPECT_EQ(mistral.ropes[0].theta, 1e9);
  EXPECT_EQ(attention(mistral).temperature.slope, 0.0f);
  EXPECT_EQ(mistral.image_token_id, 10);
  const ModelSpec ministral =
      read_text(std::string(R"({"model_type": "ministral3", "rope_parameters": )") + kMinistralRope + "}");
  EXPECT_FLOAT_EQ(attention(ministral).temperature.slope, 0.1f);
  const ModelSpec latent = read_text(R"({"model_type": "mistral4", "kv_lora_rank": 256, "rope_parameters":
      {"rope_type": "yarn", "factor": 16, "original_max_position_embeddings": 16,
       "llama_4_scaling_beta": 0.1}})");
  EXPECT_EQ(std::get<MlaSpec>(latent.layers[0].mixer).temperature.slope, 0.1f);
  expect_rejected({{"text_config", R"({"model_type": "mistral5"})"}}, ErrorCode::kUnsupported,
                  {"model_type", "mistral5", "ministral3", "mistral4"}, "Mistral3ForConditionalGeneration");
}

TEST(ReadQwenVl, FindsDecoderFieldsNestedOrFlat) {
  constexpr const char* kName = "Qwen2_5_VLForConditionalGeneration";
  const Fields mrope = {{"rope_scaling", R"({"type": "mrope", "mrope_section": [2, 3, 3]})"}};
  const ModelSpec flat = read(kName, mrope);
  EXPECT_EQ(flat.hidden_size, 64);
  EXPECT_TRUE(attention(flat).qkv_bias);
  EXPECT_EQ(flat.ropes[0].type, RopeType::kDefault);
  EXPECT_EQ(flat.image_token_id, 151655);
  const ModelSpec nested =
      read(kName, {{"text_config", R"({"hidden_size": 32, "vocab_size": 64, "num_attention_heads": 2,
                                  "num_hidden_layers": 1, "intermediate_size": 48, "num_key_value_heads": 1,
                                  "max_position_embeddings": 128})"}});
  EXPECT_EQ(nested.hidden_size, 32);
  EXPECT_EQ(nested.num_layers(), 1);
  expect_rejected({}, ErrorCode::kCorruptFile, {"text_config"}, "Qwen3VLForConditionalGeneration");
}

TEST(ReadOlmoe, ClipsAfterTheNorms) {
  const Fields fields = {{"num_experts", "8"}, {"num_experts_per_tok", "2"}};
  const ModelSpec spec = read("OlmoeForCausalLM", with(fields, {{"clip_qkv", "null"}}));
  EXPECT_EQ(experts_of(spec, 0).rule.weights, kernels::RouterWeights::kAllExperts);
  EXPECT_EQ(attention(spec).qk_norm, QkNormSpan::kToken);
  EXPECT_EQ(attention(spec).qkv_clip, 0.0f);
  EXPECT_EQ(attention(read("OlmoeForCausalLM", with(fields, {{"clip_qkv", "8.0"}}))).qkv_clip, 8.0f);
}

TEST(ReadMiniMaxM2, RotatesRotaryDimDimensions) {
  const Fields fields = {{"num_local_experts", "8"}, {"num_experts_per_tok", "2"}, {"head_dim", "32"}};
  const ModelSpec spec = read("MiniMaxM2ForCausalLM", with(fields, {{"rotary_dim", "16"}}));
  EXPECT_EQ(spec.ropes[0].rotary_dim, 16);
  EXPECT_TRUE(experts_of(spec, 0).correction);
  EXPECT_EQ(experts_of(spec, 0).rule.scores, kernels::RouterScores::kSigmoid);
  EXPECT_EQ(read("MiniMaxM2ForCausalLM", fields).ropes[0].rotary_dim, 32);
  expect_rejected(with(fields, {{"scoring_func", "\"softmax\""}}), ErrorCode::kUnsupported,
                  {"scoring_func", "softmax", "sigmoid"}, "MiniMaxM2ForCausalLM");
}

TEST(ReadGlm4Moe, HasDeepSeekExpertsAfterADenseLayer) {
  const Fields fields = {
      {"n_routed_experts", "8"}, {"num_experts_per_tok", "2"}, {"moe_intermediate_size", "16"}};
  const ModelSpec spec = read("Glm4MoeForCausalLM", with(fields, {{"use_qk_norm", "true"}}));
  EXPECT_EQ(mlp(spec, 0).intermediate_size, 96);
  EXPECT_TRUE(experts_of(spec, 1).correction);
  EXPECT_EQ(experts_of(spec, 1).shared_intermediate_size, 16);
  EXPECT_EQ(attention(spec).qk_norm, QkNormSpan::kHead);
  EXPECT_EQ(spec.ropes[0].rotary_dim, 8) << "half of 16";
  EXPECT_EQ(attention(read("Glm4MoeForCausalLM", fields)).qk_norm, QkNormSpan::kNone);
}

TEST(ReadGlm4MoeLite, ListsWhichLayersHaveExperts) {
  const Fields fields = {{"kv_lora_rank", "32"},
                         {"qk_rope_head_dim", "16"},
                         {"n_routed_experts", "8"},
                         {"num_experts_per_tok", "2"},
                         {"moe_intermediate_size", "16"}};
  constexpr const char* kName = "Glm4MoeLiteForCausalLM";
  const ModelSpec spec = read(kName, with(fields, {{"mlp_layer_types", R"(["sparse", "dense", "sparse"])"}}));
  EXPECT_TRUE(std::holds_alternative<MoeMlpSpec>(spec.layers[0].mlp));
  EXPECT_TRUE(std::holds_alternative<GatedMlpSpec>(spec.layers[1].mlp));
  const auto& mla = std::get<MlaSpec>(spec.layers[0].mixer);
  EXPECT_EQ(mla.nope_dim, 192);
  EXPECT_EQ(mla.v_dim, 256);
  EXPECT_EQ(mla.q_lora_rank, 768);
  EXPECT_TRUE(std::holds_alternative<GatedMlpSpec>(read(kName, fields).layers[0].mlp))
      << "layer 0 is dense by default";
  expect_rejected(with(fields, {{"mlp_layer_types", R"(["sparse", "dense"])"}}), ErrorCode::kCorruptFile,
                  {"mlp_layer_types", "array of 3"}, kName);
}

TEST(ReadInternLm3, AcceptsBothNamesOfItsFlags) {
  EXPECT_TRUE(attention(read("InternLM3ForCausalLM", {{"qkv_bias", "true"}, {"bias", "true"}})).output_bias);
  EXPECT_TRUE(
      attention(read("InternLM3ForCausalLM", {{"attention_bias", "true"}, {"mlp_bias", "true"}})).qkv_bias);
  expect_rejected({{"qkv_bias", "true"}}, ErrorCode::kUnsupported, {"qkv_bias", "bias"},
                  "InternLM3ForCausalLM");
}

}  // namespace
}  // namespace attend
