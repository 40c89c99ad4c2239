// Readers of the configs of architectures that differ from Llama in more than biases.
#include <gtest/gtest.h>

#include <cmath>

#include "attend/model/model.h"
#include "attend/model/step_cost.h"
#include "attend/model/weight_inventory.h"
#include "tests/model/config_fields.h"

namespace attend {
namespace {

using test::attention;
using test::expect_error;
using test::expect_rejected;
using test::Fields;
using test::json_of;
using test::mlp;
using test::read;
using test::TempDir;
using test::windows;
using test::with;
using testing::ElementsAre;

constexpr const char* kGemma2 = "Gemma2ForCausalLM";
constexpr const char* kGemma3 = "Gemma3ForCausalLM";
constexpr const char* kGemma4 = "Gemma4ForCausalLM";
constexpr const char* kGptOss = "GptOssForCausalLM";
constexpr const char* kLlama4 = "Llama4ForCausalLM";
constexpr const char* kMixtral = "MixtralForCausalLM";
constexpr const char* kQwen3Moe = "Qwen3MoeForCausalLM";
constexpr const char* kGemma3Multimodal = "Gemma3ForConditionalGeneration";

TEST(ReadGemma2, UsesTransformersDefaultsForAbsentFields) {
  const TempDir dir;
  dir.write("config.json", R"({"architectures": ["Gemma2ForCausalLM"]})");
  const ModelSpec spec = read_config(dir.path());
  EXPECT_EQ(spec.num_layers(), 26);
  EXPECT_EQ(spec.hidden_size, 2304);
  EXPECT_EQ(spec.vocab_size, 256000);
  EXPECT_EQ(spec.max_position_embeddings, 8192);
  EXPECT_TRUE(spec.tie_word_embeddings);
  EXPECT_TRUE(spec.zero_centered_norms);
  EXPECT_FLOAT_EQ(spec.embedding_scale, 48.0f);
  EXPECT_FLOAT_EQ(spec.final_logit_cap, 30.0f);
  EXPECT_TRUE(spec.layers[0].norms.before && spec.layers[0].norms.after);
  EXPECT_EQ(mlp(spec).intermediate_size, 9216);
  EXPECT_EQ(mlp(spec).activation, kernels::Activation::kGeluTanh);
  const AttentionSpec& layer = attention(spec);
  EXPECT_EQ(layer.num_q_heads, 8);
  EXPECT_EQ(layer.num_kv_heads, 4);
  EXPECT_EQ(layer.head_dim, 256);
  EXPECT_FLOAT_EQ(layer.scale, 0.0625f);
  EXPECT_FLOAT_EQ(layer.logit_cap, 50.0f);
  EXPECT_FALSE(layer.qkv_bias);
  EXPECT_EQ(layer.window_left, 4095);
  EXPECT_EQ(attention(spec, 1).window_left, -1);
  EXPECT_FLOAT_EQ(spec.geometry(DType::kF32, DType::kF32).layers[0].logit_cap, 50.0f);
}

TEST(ReadGemma2, ScalesEmbeddingsByTheRootRoundedToTheDtypeOfTheWeights) {
  for (const auto& [hidden, in_bf16] :
       std::vector<std::pair<int, float>>{{2304, 48.0f}, {2560, 50.5f}, {3584, 59.75f}, {5376, 73.5f}}) {
    const std::string size = std::to_string(hidden);
    EXPECT_EQ(read(kGemma2, {{"hidden_size", size}, {"torch_dtype", "\"bfloat16\""}}).embedding_scale,
              in_bf16);
    EXPECT_FLOAT_EQ(read(kGemma2, {{"hidden_size", size}}).embedding_scale,
                    static_cast<float>(std::sqrt(hidden)));
  }
}

TEST(ReadGemma2, NullDisablesACap) {
  const ModelSpec spec =
      read(kGemma2, {{"attn_logit_softcapping", "null"}, {"final_logit_softcapping", "null"}});
  EXPECT_EQ(attention(spec).logit_cap, 0.0f);
  EXPECT_EQ(spec.final_logit_cap, 0.0f);
}

TEST(ReadGemma2, RejectsInvalidFields) {
  for (const char* key : {"attn_logit_softcapping", "final_logit_softcapping", "query_pre_attn_scalar"})
    for (const char* value : {"0", "-30.0", "\"30\""})
      expect_rejected({{key, value}}, ErrorCode::kCorruptFile, {key, value, "a number above 0"}, kGemma2);
  expect_rejected({{"layer_types", R"(["full_attention", "full_attention", "mamba"])"}},
                  ErrorCode::kCorruptFile,
                  {"layer_types", "mamba", "3 times \"full_attention\" or \"sliding_attention\""}, kGemma2);
  expect_rejected({{"use_bidirectional_attention", "true"}}, ErrorCode::kUnsupported,
                  {"use_bidirectional_attention", "causal attention only"}, kGemma2);
  expect_rejected({{"sliding_window", "null"}}, ErrorCode::kCorruptFile, {"sliding_window", "null"}, kGemma2);
  expect_rejected({{"hidden_activation", "\"relu2\""}}, ErrorCode::kUnsupported,
                  {"hidden_activation", "relu2", "silu, gelu_pytorch_tanh"}, kGemma2);
  EXPECT_EQ(mlp(read(kGemma2, {{"hidden_act", "\"silu\""}})).activation, kernels::Activation::kGeluTanh)
      << "Gemma's own key counts";
}

TEST(ReadGemma3, EverySixthLayerIsFullWithItsOwnRope) {
  const ModelSpec spec = read(kGemma3, {{"num_hidden_layers", "12"},
                                        {"sliding_window", "512"},
                                        {"rope_scaling", R"({"rope_type": "linear", "factor": 8})"},
                                        {"attn_logit_softcapping", "50"}});
  for (int i = 0; i < 12; ++i) {
    const AttentionSpec& layer = attention(spec, static_cast<size_t>(i));
    const bool full = i == 5 || i == 11;
    EXPECT_EQ(layer.window_left, full ? -1 : 511) << i;
    const RopeConfig& rope = spec.ropes.at(static_cast<size_t>(layer.rope_set));
    EXPECT_EQ(rope.theta, full ? 1e6 : 1e4) << i;
    EXPECT_EQ(rope.type, full ? RopeType::kLinear : RopeType::kDefault) << i;
    EXPECT_EQ(layer.qk_norm, QkNormSpan::kHead);
    EXPECT_EQ(layer.logit_cap, 0.0f) << "transformers applies no cap";
  }
  EXPECT_EQ(spec.final_logit_cap, 0.0f);
  EXPECT_EQ(spec.image_token_id, std::nullopt);
  EXPECT_THAT(windows(read(kGemma3, {{"sliding_window_pattern", "2"}})), ElementsAre(4095, -1, 4095));
}

TEST(ReadGemma3, ReadsARopePerLayerType) {
  const std::string full = R"("full_attention": {"rope_type": "linear", "factor": 4, "rope_theta": 50000})";
  const auto ropes = [&](const std::string& others) {
    return Fields{{"rope_parameters", "{" + full + others + "}"}};
  };
  const ModelSpec spec =
      read(kGemma3, ropes(R"(, "sliding_attention": {"rope_type": "default", "rope_theta": 300})"));
  const auto rope_of = [&](size_t layer) {
    return spec.ropes[static_cast<size_t>(attention(spec, layer).rope_set)];
  };
  EXPECT_EQ(attention(spec, 0).window_left, 4095);
  EXPECT_EQ(rope_of(0).theta, 300.0);
  EXPECT_EQ(spec.ropes[0].theta, 50000.0);
  EXPECT_EQ(spec.ropes[0].factor, 4.0);
  EXPECT_EQ(read(kGemma3, ropes("")).ropes[1].theta, 1e4);
  expect_rejected(ropes(R"(, "sliding_attention": null)"), ErrorCode::kUnsupported,
                  {"rope_parameters.sliding_attention null", "attend does not support layers without rope"},
                  kGemma3);
  expect_rejected(ropes(R"(, "chunked_attention": {})"), ErrorCode::kUnsupported,
                  {"rope_parameters.chunked_attention", "full_attention and sliding_attention"}, kGemma3);
}

TEST(ReadGemma3, FindsTheDecoderOfAMultimodalModelInTextConfig) {
  const Fields fields{{"architectures", "[\"Gemma3ForConditionalGeneration\"]"},
                      {"eos_token_id", "[1, 106]"},
                      {"torch_dtype", "\"bfloat16\""},
                      {"text_config", R"({"hidden_size": 2560, "num_hidden_layers": 34})"}};
  const TempDir dir;
  dir.write("config.json", json_of(fields));
  const ModelSpec spec = read_config(dir.path());
  EXPECT_EQ(spec.architecture, kGemma3Multimodal);
  EXPECT_EQ(spec.num_layers(), 34);
  EXPECT_EQ(spec.vocab_size, 262208);
  EXPECT_EQ(spec.max_position_embeddings, 131072);
  EXPECT_EQ(attention(spec).num_q_heads, 8);
  EXPECT_EQ(spec.dtype, DType::kBF16);
  EXPECT_EQ(spec.embedding_scale, 50.5f);
  EXPECT_TRUE(spec.tie_word_embeddings);
  EXPECT_THAT(spec.eos_token_ids, ElementsAre(1, 106));
  EXPECT_EQ(spec.image_token_id, 262144);
  dir.write("config.json", json_of(test::with(fields, {{"image_token_index", "77"}})));
  EXPECT_EQ(read_config(dir.path()).image_token_id, 77);
  dir.write("config.json", json_of(test::with(fields, {{"text_config", R"({"hidden_size": "wide"})"}})));
  expect_error(ErrorCode::kCorruptFile, {"config.json: text_config.hidden_size", "wide"},
               [&] { read_config(dir.path()); });
  dir.write("config.json", json_of(test::with(fields, {{"text_config", ""}})));
  expect_error(ErrorCode::kCorruptFile, {"config.json: ", "text_config", "missing"},
               [&] { read_config(dir.path()); });
}

TEST(ReadGemma3, EmbeddingModelWindowIsTwoSided) {
  const ModelSpec spec = read(
      "Gemma3TextModel",
      {{"use_bidirectional_attention", "true"}, {"sliding_window", "512"}, {"sliding_window_pattern", "2"}});
  EXPECT_TRUE(spec.bidirectional());
  EXPECT_THAT(windows(spec), ElementsAre(256, -1, 256));
  const ModelSpec causal = read("Gemma3TextModel", {{"sliding_window", "512"}});
  EXPECT_FALSE(causal.bidirectional());
  EXPECT_EQ(windows(causal).front(), 511);
}

TEST(ReadPhi3, HasFusedWeightsAndAWindowInAllLayersOrNone) {
  const ModelSpec spec = read("Phi3ForCausalLM", {{"sliding_window", "2047"}});
  EXPECT_EQ(attention(spec).qkv_storage, QkvStorage::kFused);
  EXPECT_TRUE(mlp(spec).fused_gate_up);
  EXPECT_THAT(windows(spec), ElementsAre(2046, 2046, 2046));
  EXPECT_FLOAT_EQ(spec.norm_eps, 1e-5f);
  EXPECT_THAT(windows(read("Phi3ForCausalLM")), ElementsAre(-1, -1, -1));
  EXPECT_THAT(windows(read("Phi3ForCausalLM", {{"sliding_window", "null"}})), ElementsAre(-1, -1, -1));
}

TEST(ReadOlmo2, HasPostNormsAndFullQkNorm) {
  const ModelSpec spec = read("Olmo2ForCausalLM");
  EXPECT_FALSE(spec.layers[0].norms.before);
  EXPECT_TRUE(spec.layers[0].norms.after);
  EXPECT_EQ(attention(spec).qk_norm, QkNormSpan::kToken);
  EXPECT_FALSE(spec.zero_centered_norms);
  EXPECT_EQ(spec.embedding_scale, 1.0f);
}

TEST(ReadGlm4, RotatesHalfOfEachHeadInterleaved) {
  const ModelSpec spec = read("Glm4ForCausalLM");
  EXPECT_EQ(attention(spec).head_dim, 128);
  EXPECT_EQ(spec.ropes[0].rotary_dim, 64);
  EXPECT_TRUE(spec.ropes[0].interleaved);
  EXPECT_EQ(read("Glm4ForCausalLM", {{"partial_rotary_factor", "0.25"}}).ropes[0].rotary_dim, 32);
  EXPECT_TRUE(attention(spec).qkv_bias);
  EXPECT_FALSE(attention(spec).output_bias);
  EXPECT_TRUE(mlp(spec).fused_gate_up);
  EXPECT_TRUE(spec.layers[0].norms.before && spec.layers[0].norms.after);
  EXPECT_FALSE(attention(read("Glm4ForCausalLM", {{"attention_bias", "false"}})).qkv_bias);
}

const MoeMlpSpec& experts(const ModelSpec& spec, size_t layer = 0) {
  return std::get<MoeMlpSpec>(spec.layers.at(layer).mlp);
}

// One entry per layer: true if it has experts.
std::vector<bool> sparse_layers(const ModelSpec& spec) {
  std::vector<bool> sparse;
  for (const LayerSpec& layer : spec.layers) sparse.push_back(std::holds_alternative<MoeMlpSpec>(layer.mlp));
  return sparse;
}

TEST(ReadQwen3Moe, UsesTransformersDefaultsForAbsentFields) {
  const ModelSpec spec = read(kQwen3Moe, {{"intermediate_size", ""}, {"num_key_value_heads", ""}});
  EXPECT_EQ(experts(spec).num_experts, 128);
  EXPECT_EQ(experts(spec).top_k, 8);
  EXPECT_EQ(experts(spec).intermediate_size, 768);
  EXPECT_EQ(experts(spec).rule.weights, kernels::RouterWeights::kAllExperts);
  EXPECT_THAT(sparse_layers(spec), ElementsAre(true, true, true));
  EXPECT_EQ(attention(spec).num_kv_heads, 4);
  EXPECT_EQ(attention(spec).head_dim, 16) << "hidden_size / num_attention_heads";
  EXPECT_EQ(attention(spec).qk_norm, QkNormSpan::kHead);
  EXPECT_FALSE(attention(spec).qkv_bias);
  EXPECT_THAT(windows(spec), ElementsAre(-1, -1, -1));
}

TEST(ReadQwen3Moe, ReadsExperts) {
  const ModelSpec spec = read(kQwen3Moe, {{"num_experts", "16"},
                                          {"num_experts_per_tok", "16"},
                                          {"moe_intermediate_size", "40"},
                                          {"norm_topk_prob", "true"},
                                          {"use_sliding_window", "true"},
                                          {"sliding_window", "64"}});
  EXPECT_EQ(experts(spec).num_experts, 16);
  EXPECT_EQ(experts(spec).top_k, 16);
  EXPECT_EQ(experts(spec).intermediate_size, 40);
  EXPECT_EQ(experts(spec).rule.weights, kernels::RouterWeights::kChosenExperts);
  EXPECT_THAT(windows(spec), ElementsAre(63, 63, 63));
  EXPECT_EQ(experts(read(kQwen3Moe, {{"num_local_experts", "32"}})).num_experts, 32)
      << "the other name in transformers 5";
}

TEST(ReadQwen3Moe, KeepsConfiguredLayersDense) {
  const Fields six{{"num_hidden_layers", "6"}};
  const ModelSpec stepped = read(kQwen3Moe, with(six, {{"decoder_sparse_step", "2"}}));
  EXPECT_THAT(sparse_layers(stepped), ElementsAre(false, true, false, true, false, true));
  EXPECT_EQ(mlp(stepped).intermediate_size, 96);
  EXPECT_THAT(sparse_layers(read(kQwen3Moe, with(six, {{"mlp_only_layers", "[0, 4]"}}))),
              ElementsAre(false, true, true, true, false, true));
}

TEST(ReadQwen3Moe, RejectsInvalidExperts) {
  expect_rejected({{"num_experts", "4"}}, ErrorCode::kCorruptFile,
                  {"num_experts_per_tok", "8", "expected 1 to 4, the number of experts"}, kQwen3Moe);
  expect_rejected({{"num_experts", "0"}}, ErrorCode::kCorruptFile, {"num_experts", "0"}, kQwen3Moe);
  expect_rejected({{"num_experts_per_tok", "0"}}, ErrorCode::kCorruptFile, {"num_experts_per_tok", "0"},
                  kQwen3Moe);
  expect_rejected({{"num_experts", "513"}}, ErrorCode::kUnsupported, {"num_experts", "513", "at most 512"},
                  kQwen3Moe);
  expect_rejected({{"num_experts_per_tok", "33"}}, ErrorCode::kUnsupported,
                  {"num_experts_per_tok", "33", "at most 32"}, kQwen3Moe);
  expect_rejected({{"hidden_act", "\"gelu_pytorch_tanh\""}}, ErrorCode::kUnsupported,
                  {"hidden_act", "gelu_pytorch_tanh", "silu"}, kQwen3Moe);
  expect_rejected({{"mlp_only_layers", "[3]"}}, ErrorCode::kCorruptFile, {"mlp_only_layers[0]", "3"},
                  kQwen3Moe);
  expect_rejected({{"decoder_sparse_step", "0"}}, ErrorCode::kCorruptFile, {"decoder_sparse_step", "0"},
                  kQwen3Moe);
}

TEST(ReadMixtral, HasMlpSizedExpertsInEveryLayer) {
  const ModelSpec spec = read(kMixtral, {{"num_key_value_heads", ""}, {"num_attention_heads", "16"}});
  EXPECT_EQ(experts(spec).num_experts, 8);
  EXPECT_EQ(experts(spec).top_k, 2);
  EXPECT_EQ(experts(spec).intermediate_size, 96);
  EXPECT_EQ(experts(spec).rule.weights, kernels::RouterWeights::kChosenExperts);
  EXPECT_THAT(sparse_layers(spec), ElementsAre(true, true, true));
  EXPECT_EQ(attention(spec).num_kv_heads, 8);
  EXPECT_FLOAT_EQ(spec.norm_eps, 1e-5f);
  EXPECT_EQ(spec.ropes[0].theta, 1e6);
  EXPECT_THAT(windows(spec), ElementsAre(-1, -1, -1));
  EXPECT_THAT(windows(read(kMixtral, {{"sliding_window", "32"}})), ElementsAre(31, 31, 31));
  EXPECT_EQ(experts(read(kMixtral, {{"num_local_experts", "5"}})).num_experts, 5);
}

TEST(ReadGemma4, UsesTransformersDefaultsForAbsentFields) {
  const TempDir dir;
  dir.write("config.json", R"({"architectures": ["Gemma4ForCausalLM"]})");
  const ModelSpec spec = read_config(dir.path());
  EXPECT_EQ(spec.num_layers(), 30);
  EXPECT_EQ(spec.vocab_size, 262144);
  EXPECT_TRUE(spec.tie_word_embeddings && spec.layer_scales && !spec.zero_centered_norms);
  EXPECT_EQ(spec.final_logit_cap, 0.0f);
  ASSERT_TRUE(spec.layer_embeddings);
  EXPECT_EQ(spec.layer_embeddings->size, 256);
  EXPECT_EQ(spec.layer_embeddings->vocab_size, 262144);
  for (size_t i = 0; i < 30; ++i) {
    const AttentionSpec& layer = attention(spec, i);
    const bool full = (i + 1) % 6 == 0;
    EXPECT_EQ(layer.window_left, full ? -1 : 511) << i;
    EXPECT_EQ(layer.head_dim, full ? 512 : 256) << i;
    EXPECT_EQ(layer.num_kv_heads, 4);
    EXPECT_EQ(layer.scale, 1.0f);
    EXPECT_TRUE(layer.v_norm && !layer.k_as_v);
    const RopeConfig& rope = spec.ropes.at(static_cast<size_t>(layer.rope_set));
    EXPECT_EQ(rope.theta, full ? 1e6 : 1e4);
    EXPECT_EQ(rope.type, full ? RopeType::kProportional : RopeType::kDefault);
    EXPECT_EQ(rope.rotary_dim, layer.head_dim);
    EXPECT_EQ(rope.num_rotated_pairs, full ? 64 : 0);
  }
}

TEST(ReadGemma4, SharesTheKAndVOfTheLastOwnLayerOfItsType) {
  const ModelSpec spec =
      read(kGemma4, {{"num_hidden_layers", "6"},
                     {"num_kv_shared_layers", "3"},
                     {"use_double_wide_mlp", "true"},
                     {"layer_types", R"(["sliding_attention", "full_attention", "sliding_attention",
                                    "full_attention", "sliding_attention", "full_attention"])"}});
  const std::vector<int> sources = {-1, -1, -1, 1, 2, 1}, cache_layers = {0, 1, 2, 1, 2, 1};
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(attention(spec, i).kv_layer, sources[i]) << i;
    EXPECT_EQ(spec.cache_layer(static_cast<int>(i)), cache_layers[i]) << i;
    EXPECT_EQ(has_kv(spec.layers[i].mixer), i < 3) << i;
    EXPECT_EQ(mlp(spec, i).intermediate_size, i < 3 ? 96 : 192) << i;
  }
  EXPECT_EQ(spec.cache_layer(6), 3) << "number of layers with K and V";
  EXPECT_EQ(spec.geometry(DType::kF32, DType::kF32).layers.size(), 3u);
  EXPECT_EQ(spec.attention_layers().size(), 6u);
  EXPECT_EQ(spec.attention_layers()[5].layer_id, 1);
  const std::vector<CacheSpec> caches = spec.caches();
  ASSERT_EQ(caches.size(), 2u);
  EXPECT_THAT(caches[0].layers, ElementsAre(0, 2));
  EXPECT_THAT(caches[1].layers, ElementsAre(1));
  EXPECT_EQ(caches[1].head_dim_qk, 512);
}

TEST(ReadGemma4, ReadsExpertsInParallelWithTheMlp) {
  const ModelSpec spec = read(kGemma4, {{"enable_moe_block", "true"},
                                        {"num_experts", "8"},
                                        {"top_k_experts", "3"},
                                        {"moe_intermediate_size", "24"},
                                        {"attention_k_eq_v", "true"},
                                        {"num_global_key_value_heads", "1"},
                                        {"hidden_size_per_layer_input", "0"}});
  EXPECT_FALSE(spec.layer_embeddings);
  EXPECT_FALSE(attention(spec, 0).k_as_v);
  EXPECT_EQ(attention(spec, 0).num_kv_heads, 2);
  EXPECT_TRUE(attention(spec, 2).k_as_v) << "the last layer is full";
  EXPECT_EQ(attention(spec, 2).num_kv_heads, 1);
  const auto& layer = std::get<ParallelMoeSpec>(spec.layers[1].mlp);
  EXPECT_EQ(layer.dense.intermediate_size, 96);
  EXPECT_EQ(layer.moe.num_experts, 8);
  EXPECT_EQ(layer.moe.top_k, 3);
  EXPECT_EQ(layer.moe.intermediate_size, 24);
  EXPECT_EQ(layer.moe.gate.activation, kernels::ExpertActivation::kGeluTanh);
}

TEST(ReadGemma4, RejectsInvalidFields) {
  expect_rejected({{"use_bidirectional_attention", "\"all\""}}, ErrorCode::kUnsupported,
                  {"use_bidirectional_attention", "all", "causal attention only"}, kGemma4);
  expect_rejected({{"hidden_activation", "\"silu\""}}, ErrorCode::kUnsupported,
                  {"hidden_activation", "silu", "gelu_pytorch_tanh"}, kGemma4);
  expect_rejected({{"num_kv_shared_layers", "3"}}, ErrorCode::kCorruptFile, {"num_kv_shared_layers", "3"},
                  kGemma4);
  expect_rejected({{"num_kv_shared_layers", "1"}}, ErrorCode::kCorruptFile,
                  {"num_kv_shared_layers 1: no layer before layer 2 has the layer type of layer 2"}, kGemma4);
  expect_rejected({{"per_layer_config", R"({"1": {"sliding_window": 8}})"}}, ErrorCode::kUnsupported,
                  {"per_layer_config", "sliding_window"}, kGemma4);
  expect_rejected({{"per_layer_config", R"({"3": {"head_dim": 8}})"}}, ErrorCode::kCorruptFile,
                  {"per_layer_config", "layers 0 to 2"}, kGemma4);
  expect_rejected({{"per_layer_config", R"({"x": {"head_dim": 8}})"}}, ErrorCode::kCorruptFile,
                  {"per_layer_config", "layers 0 to 2"}, kGemma4);
  expect_rejected({{"per_layer_config", R"({"1": {"num_key_value_heads": 3}})"}}, ErrorCode::kCorruptFile,
                  {"num_key_value_heads", "3", "divisor of num_attention_heads 4"}, kGemma4);
  expect_rejected({{"vocab_size_per_layer_input", "100"}}, ErrorCode::kCorruptFile,
                  {"vocab_size_per_layer_input", "100", "at least vocab_size 128"}, kGemma4);
  expect_rejected({{"enable_moe_block", "true"}}, ErrorCode::kCorruptFile, {"num_experts"}, kGemma4);
}

TEST(ReadGptOss, UsesTransformersDefaultsForAbsentFields) {
  const TempDir dir;
  dir.write("config.json", R"({"architectures": ["GptOssForCausalLM"]})");
  const ModelSpec spec = read_config(dir.path());
  EXPECT_EQ(spec.num_layers(), 36);
  EXPECT_EQ(spec.hidden_size, 2880);
  EXPECT_EQ(spec.vocab_size, 201088);
  EXPECT_EQ(spec.max_context_len(), 131072);
  EXPECT_FLOAT_EQ(spec.norm_eps, 1e-5f);
  const AttentionSpec& layer = attention(spec);
  EXPECT_EQ(layer.num_q_heads, 64);
  EXPECT_EQ(layer.num_kv_heads, 8);
  EXPECT_EQ(layer.head_dim, 64);
  EXPECT_EQ(layer.window_left, 127);
  EXPECT_EQ(attention(spec, 1).window_left, -1);
  EXPECT_TRUE(layer.sinks && layer.qkv_bias && layer.output_bias);
  EXPECT_TRUE(spec.geometry(DType::kF32, DType::kF32).layers[1].has_sinks);
  const RopeConfig& rope = spec.ropes.at(0);
  EXPECT_EQ(rope.type, RopeType::kYarn);
  EXPECT_EQ(rope.theta, 150000.0);
  EXPECT_EQ(rope.factor, 32.0);
  EXPECT_EQ(rope.original_max_position_embeddings, 4096);
  EXPECT_FALSE(rope.truncate);
  EXPECT_EQ(experts(spec).num_experts, 128);
  EXPECT_EQ(experts(spec).top_k, 4);
  EXPECT_EQ(experts(spec).intermediate_size, 2880);
  EXPECT_EQ(experts(spec).rule.weights, kernels::RouterWeights::kChosenExperts);
  EXPECT_EQ(experts(spec).gate.activation, kernels::ExpertActivation::kClampedSwiglu);
  EXPECT_FLOAT_EQ(experts(spec).gate.limit, 7.0f);
  EXPECT_FLOAT_EQ(experts(spec).gate.alpha, 1.702f);
}

TEST(ReadGptOss, ReadsItsConfig) {
  const ModelSpec spec = read(kGptOss, {{"experts_per_token", "2"},
                                        {"num_local_experts", "32"},
                                        {"swiglu_limit", "5.5"},
                                        {"rope_scaling", R"({"rope_type": "default"})"},
                                        {"rope_theta", "5000"},
                                        {"attention_bias", "false"}});
  EXPECT_EQ(experts(spec).top_k, 2);
  EXPECT_EQ(experts(spec).num_experts, 32);
  EXPECT_EQ(experts(spec).intermediate_size, 96);
  EXPECT_FLOAT_EQ(experts(spec).gate.limit, 5.5f);
  EXPECT_EQ(spec.ropes.at(0).type, RopeType::kDefault);
  EXPECT_EQ(spec.ropes.at(0).theta, 5000.0);
  EXPECT_FALSE(attention(spec).qkv_bias || attention(spec).output_bias);
  EXPECT_EQ(experts(read(kGptOss, {{"num_experts_per_tok", "3"}, {"experts_per_token", "2"}})).top_k, 3);
  expect_rejected({{"swiglu_limit", "0"}}, ErrorCode::kCorruptFile, {"swiglu_limit", "0"}, kGptOss);
  expect_rejected({{"num_local_experts", "2"}, {"experts_per_token", "3"}}, ErrorCode::kCorruptFile,
                  {"experts_per_token", "3", "expected 1 to 2"}, kGptOss);
}

// A GPU needs at least the memory of a CPU, plus partial sums of norms.
TEST(ReadGptOss, ReportsDeviceBytes) {
  const ModelSpec spec = read(kGptOss);
  const BatchLimits limits{.max_reqs = 1, .max_tokens = 1, .max_kv_tokens = 1};
  EXPECT_GT(activation_bytes(spec, limits, {.device = {DeviceType::kCuda, 0}, .dtype = DType::kF32}), 0.0);
  const WeightInventory weights(spec);
  EXPECT_GT(weights.device_bytes(DType::kF32), weights.device_bytes(DType::kBF16));
}

// chunk of each layer.
std::vector<int> chunks(const ModelSpec& spec) {
  std::vector<int> chunks;
  for (size_t i = 0; i < spec.layers.size(); ++i) chunks.push_back(attention(spec, i).chunk);
  return chunks;
}

TEST(ReadLlama4, UsesTransformersDefaultsForAbsentFields) {
  const TempDir dir;
  dir.write("config.json", R"({"architectures": ["Llama4ForConditionalGeneration"], "text_config": {}})");
  const ModelSpec spec = read_config(dir.path());
  EXPECT_EQ(spec.num_layers(), 48);
  EXPECT_EQ(spec.hidden_size, 5120);
  EXPECT_EQ(spec.vocab_size, 202048);
  EXPECT_EQ(spec.image_token_id, 200092);
  EXPECT_FALSE(spec.tie_word_embeddings);
  EXPECT_EQ(spec.ropes.at(0).theta, 500000.0);
  EXPECT_TRUE(spec.ropes.at(0).interleaved);
  for (size_t i = 0; i < 48; ++i) {
    const AttentionSpec& layer = attention(spec, i);
    const bool full = i % 4 == 3;
    EXPECT_EQ(layer.chunk, full ? 0 : 8192) << i;
    EXPECT_EQ(layer.rope_set, full ? -1 : 0) << i;
    EXPECT_EQ(layer.qk_norm, full ? QkNormSpan::kNone : QkNormSpan::kHeadAfterRope) << i;
    EXPECT_FLOAT_EQ(layer.temperature.slope, full ? 0.1f : 0.0f) << i;
    EXPECT_EQ(experts(spec, i).num_experts, 16);
  }
  EXPECT_EQ(spec.geometry(DType::kF32, DType::kF32).layers[0].chunk, 8192);
  EXPECT_FLOAT_EQ(attention(spec, 3).temperature.floor_scale, 8192.0f);
  EXPECT_EQ(attention(spec).num_q_heads, 40);
  EXPECT_EQ(attention(spec).head_dim, 128);
  EXPECT_EQ(experts(spec).top_k, 1);
  EXPECT_EQ(experts(spec).intermediate_size, 8192);
  EXPECT_EQ(experts(spec).shared_intermediate_size, 8192);
  EXPECT_TRUE(experts(spec).weights_scale_input);
  EXPECT_EQ(experts(spec).rule.scores, kernels::RouterScores::kSigmoid);
  EXPECT_EQ(experts(spec).rule.weights, kernels::RouterWeights::kAllExperts);
}

TEST(ReadLlama4, ReadsLayerKinds) {
  EXPECT_THAT(chunks(read(kLlama4, {{"no_rope_layers", "[0, 1, 0]"}, {"attention_chunk_size", "32"}})),
              ElementsAre(0, 32, 0));
  EXPECT_THAT(chunks(read(kLlama4, {{"no_rope_layers", "[]"}, {"no_rope_layer_interval", "2"}})),
              ElementsAre(8192, 0, 8192));
  const ModelSpec spec =
      read(kLlama4, {{"layer_types", R"(["full_attention", "chunked_attention", "chunked_attention"])"},
                     {"moe_layers", "[2]"},
                     {"intermediate_size_mlp", "80"},
                     {"attn_temperature_tuning", "4"},
                     {"attention_bias", "true"}});
  EXPECT_THAT(chunks(spec), ElementsAre(0, 8192, 8192));
  EXPECT_EQ(attention(spec).rope_set, 0) << "no_rope_layers selects the layers with RoPE";
  EXPECT_TRUE(attention(spec).qkv_bias && attention(spec).output_bias);
  EXPECT_THAT(sparse_layers(spec), ElementsAre(false, false, true));
  EXPECT_EQ(mlp(spec).intermediate_size, 80);
  EXPECT_THAT(sparse_layers(read(kLlama4, {{"interleave_moe_layer_step", "2"}})),
              ElementsAre(false, true, false));
}

TEST(ReadLlama4, RejectsInvalidLayers) {
  expect_rejected({{"no_rope_layers", "[1, 1]"}}, ErrorCode::kCorruptFile,
                  {"no_rope_layers", "3 times 0 or 1"}, kLlama4);
  expect_rejected({{"no_rope_layers", "[1, 2, 1]"}}, ErrorCode::kCorruptFile, {"no_rope_layers[1]", "2"},
                  kLlama4);
  expect_rejected({{"attention_chunk_size", "null"}}, ErrorCode::kCorruptFile,
                  {"attention_chunk_size", "null"}, kLlama4);
  expect_rejected({{"attention_chunk_size", "0"}}, ErrorCode::kCorruptFile, {"attention_chunk_size", "0"},
                  kLlama4);
  expect_rejected({{"layer_types", R"(["full_attention", "sliding_attention", "full_attention"])"}},
                  ErrorCode::kCorruptFile, {"layer_types", "sliding_attention", "\"chunked_attention\""},
                  kLlama4);
  expect_rejected({{"moe_layers", "[3]"}}, ErrorCode::kCorruptFile, {"moe_layers[0]", "3"}, kLlama4);
  expect_rejected({{"attn_scale", "-0.1"}}, ErrorCode::kCorruptFile, {"attn_scale"}, kLlama4);
}

// 3 layers of 8 experts of 3 x 64 x 96 elements.
TEST(CopiedWeightBytes, IncludeTransposedExperts) {
  const Fields bf16{{"torch_dtype", "\"bfloat16\""}, {"num_local_experts", "8"}};
  EXPECT_EQ(WeightInventory(read(kGptOss, bf16)).copied_bytes(), size_t{3} * 8 * 3 * 64 * 96 * 2);
  EXPECT_EQ(WeightInventory(read(kMixtral, bf16)).copied_bytes(), 0u);
}

TEST(StepCosts, CountExpertsThatTokensUse) {
  // 3 layers with 16 experts of 3 x 64 x 24 elements, 4 of them per token, and a router of 16 x 64. q, k, v
  // and o have 64 + 32 + 32 + 64 rows.
  const ModelSpec spec =
      read(kQwen3Moe, {{"num_experts", "16"}, {"num_experts_per_tok", "4"}, {"moe_intermediate_size", "24"}});
  const StepCosts costs = step_costs(spec);
  constexpr int64_t kExpert = 3 * 64 * 24, kDense = (64 + 32 + 32 + 64 + 16) * 64;
  EXPECT_EQ(costs.gemm_weights, 3 * (4 * kExpert + kDense));
  EXPECT_DOUBLE_EQ(untouched_weights(costs, 1), 3.0 * 12 * kExpert);
  EXPECT_DOUBLE_EQ(untouched_weights(costs, 2), 3.0 * 9 * kExpert);
  EXPECT_EQ(untouched_weights(step_costs(read("LlamaForCausalLM", {})), 1), 0.0);
}

}  // namespace
}  // namespace attend
