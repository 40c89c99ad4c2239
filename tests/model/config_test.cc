#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <tuple>

#include "attend/model/architectures/unsupported_architectures.h"
#include "attend/model/config/model_spec.h"
#include "tests/model/config_fields.h"

namespace attend {
namespace {

using test::attention;
using test::base_fields;
using test::expect_error;
using test::expect_rejected;
using test::Fields;
using test::json_of;
using test::llama;
using test::mlp;
using test::read;
using test::TempDir;
using test::windows;
using test::with;
using testing::ElementsAre;

TEST(ReadConfig, ReadsTheFieldsOfEveryArchitecture) {
  const ModelSpec config = llama({{"rms_norm_eps", "1e-5"},
                                  {"rope_theta", "500000"},
                                  {"bos_token_id", "1"},
                                  {"eos_token_id", "2"},
                                  {"torch_dtype", "\"bfloat16\""},
                                  {"tie_word_embeddings", "true"}});
  EXPECT_EQ(config.architecture, "LlamaForCausalLM");
  EXPECT_EQ(config.num_layers(), 3);
  EXPECT_EQ(config.hidden_size, 64);
  EXPECT_EQ(mlp(config).intermediate_size, 96);
  EXPECT_EQ(config.vocab_size, 128);
  EXPECT_EQ(attention(config).num_q_heads, 4);
  EXPECT_EQ(attention(config).num_kv_heads, 2);
  EXPECT_EQ(attention(config).head_dim, 16);
  EXPECT_EQ(config.max_position_embeddings, 256);
  EXPECT_FLOAT_EQ(config.norm_eps, 1e-5f);
  EXPECT_EQ(config.ropes[0].theta, 500000.0);
  EXPECT_EQ(config.ropes[0].rotary_dim, 16);
  EXPECT_EQ(config.dtype, DType::kBF16);
  EXPECT_TRUE(config.tie_word_embeddings);
  EXPECT_EQ(config.bos_token_id, 1);
  EXPECT_THAT(config.eos_token_ids, ElementsAre(2));
}

TEST(ReadConfig, UsesTransformersDefaultsForAbsentFields) {
  const ModelSpec config = llama({{"num_key_value_heads", ""}});
  EXPECT_EQ(attention(config).num_kv_heads, 4) << "MHA";
  EXPECT_FLOAT_EQ(config.norm_eps, 1e-6f);
  EXPECT_EQ(config.ropes[0].type, RopeType::kDefault);
  EXPECT_EQ(config.ropes[0].theta, 10000.0);
  EXPECT_EQ(config.dtype, DType::kF32);
  EXPECT_FALSE(attention(config).qkv_bias);
  EXPECT_FALSE(attention(config).output_bias);
  EXPECT_FALSE(mlp(config).bias);
  EXPECT_EQ(attention(config).qk_norm, QkNormSpan::kNone);
  EXPECT_FALSE(config.tie_word_embeddings);
  EXPECT_EQ(config.bos_token_id, std::nullopt);
  EXPECT_THAT(config.eos_token_ids, ElementsAre());
  EXPECT_THAT(windows(config), ElementsAre(-1, -1, -1));

  EXPECT_EQ(
      attention(read("MistralForCausalLM", {{"num_key_value_heads", ""}, {"num_attention_heads", "16"}}))
          .num_kv_heads,
      8);
  EXPECT_EQ(attention(read("Qwen3ForCausalLM", {{"num_key_value_heads", ""}, {"num_attention_heads", "64"}}))
                .num_kv_heads,
            32);
  EXPECT_EQ(attention(read("Qwen3ForCausalLM")).head_dim, 128);
  EXPECT_EQ(attention(read("Qwen2ForCausalLM")).head_dim, 16);
  EXPECT_EQ(attention(read("MistralForCausalLM", {{"num_key_value_heads", "null"}})).num_kv_heads, 4);
}

TEST(ReadConfig, IgnoresUnknownFields) {
  EXPECT_EQ(
      attention(llama({{"initializer_range", "0.02"}, {"pretraining_tp", "1"}, {"mystery", "{\"a\": [1]}"}}))
          .head_dim,
      16);
}

TEST(ReadConfig, ReadsHeadDimFromTheConfig) {
  EXPECT_EQ(attention(llama({{"head_dim", "32"}})).head_dim, 32);
  EXPECT_EQ(attention(llama({{"head_dim", "null"}})).head_dim, 16);
  EXPECT_EQ(attention(llama({{"head_dim", "32"}, {"hidden_size", "66"}})).head_dim, 32);
}

TEST(ReadConfig, ReadsDtypeUnderItsNewNameFirst) {
  EXPECT_EQ(llama({{"dtype", "\"float16\""}}).dtype, DType::kF16);
  EXPECT_EQ(llama({{"dtype", "\"float16\""}, {"torch_dtype", "\"bfloat16\""}}).dtype, DType::kF16);
}

TEST(ReadConfig, MergesEosTokensOfBothFiles) {
  const TempDir dir;
  dir.write("config.json", json_of(with(base_fields("LlamaForCausalLM"), {{"eos_token_id", "[7, 8]"}})));
  dir.write("generation_config.json", R"({"eos_token_id": [8, 9], "temperature": 0.6})");
  EXPECT_THAT(read_config(dir.path()).eos_token_ids, ElementsAre(7, 8, 9));
}

TEST(ReadConfig, LlamaBiasAppliesToAllAttentionProjections) {
  const ModelSpec config = llama({{"attention_bias", "true"}, {"mlp_bias", "true"}});
  EXPECT_TRUE(attention(config).qkv_bias);
  EXPECT_TRUE(attention(config).output_bias);
  EXPECT_TRUE(mlp(config).bias);
}

TEST(ReadConfig, Qwen2AlwaysHasQkvBiases) {
  const ModelSpec config = read("Qwen2ForCausalLM", {{"attention_bias", "false"}});
  EXPECT_TRUE(attention(config).qkv_bias);
  EXPECT_FALSE(attention(config).output_bias);
  EXPECT_FALSE(mlp(config).bias);
}

TEST(ReadConfig, Qwen3NormsQAndK) {
  EXPECT_EQ(attention(read("Qwen3ForCausalLM")).qk_norm, QkNormSpan::kHead);
  EXPECT_FALSE(attention(read("Qwen3ForCausalLM")).qkv_bias);
  EXPECT_TRUE(attention(read("Qwen3ForCausalLM", {{"attention_bias", "true"}})).output_bias);
}

TEST(ReadConfig, SeedOssHasASeparateOutputBiasFlag) {
  const ModelSpec config = read("SeedOssForCausalLM");
  EXPECT_TRUE(attention(config).qkv_bias);
  EXPECT_FALSE(attention(config).output_bias);
  EXPECT_FALSE(mlp(config).bias);
  EXPECT_EQ(attention(config).head_dim, 128);
  EXPECT_TRUE(attention(read("SeedOssForCausalLM", {{"attention_out_bias", "true"}})).output_bias);
  EXPECT_FALSE(attention(read("SeedOssForCausalLM", {{"attention_bias", "false"}})).qkv_bias);
}

TEST(ReadConfig, MistralWindowAppliesToEveryLayerAndIsInclusive) {
  EXPECT_THAT(windows(read("MistralForCausalLM", {{"sliding_window", "16"}})), ElementsAre(15, 15, 15));
  EXPECT_THAT(windows(read("MistralForCausalLM", {{"sliding_window", "null"}})), ElementsAre(-1, -1, -1));
  EXPECT_THAT(windows(read("MistralForCausalLM")), ElementsAre(4095, 4095, 4095));
}

TEST(ReadConfig, MistralLayerTypesSelectSlidingLayers) {
  const std::string slide = R"(["sliding_attention", "sliding_attention", "sliding_attention"])";
  const std::string mixed = R"(["sliding_attention", "full_attention", "sliding_attention"])";
  for (const char* name : {"MistralForCausalLM", "MinistralForCausalLM"}) {
    EXPECT_THAT(windows(read(name, {{"layer_types", slide}})), ElementsAre(4095, 4095, 4095));
    EXPECT_THAT(windows(read(name, {{"layer_types", mixed}, {"sliding_window", "16"}})),
                ElementsAre(15, -1, 15));
    expect_rejected({{"layer_types", mixed}, {"sliding_window", "null"}}, ErrorCode::kCorruptFile,
                    {"sliding_window null", "the window of the sliding layers"}, name);
    expect_rejected({{"layer_types", "[\"chunked_attention\"]"}}, ErrorCode::kCorruptFile,
                    {"layer_types", "chunked_attention", "3 times \"full_attention\""}, name);
  }
}

TEST(ReadConfig, QwenWindowAppliesAfterMaxWindowLayers) {
  const Fields window{{"use_sliding_window", "true"}, {"sliding_window", "16"}, {"max_window_layers", "1"}};
  for (const char* name : {"Qwen2ForCausalLM", "Qwen3ForCausalLM"}) {
    EXPECT_THAT(windows(read(name, window)), ElementsAre(-1, 15, 15));
    EXPECT_THAT(windows(read(name, with(window, {{"max_window_layers", "3"}}))), ElementsAre(-1, -1, -1));
    EXPECT_THAT(windows(read(name, with(window, {{"max_window_layers", ""}}))), ElementsAre(-1, -1, -1))
        << "28, the default";
    EXPECT_THAT(windows(read(name, with(window, {{"use_sliding_window", "false"}}))),
                ElementsAre(-1, -1, -1));
    EXPECT_THAT(windows(read(name, with(window, {{"use_sliding_window", ""}}))), ElementsAre(-1, -1, -1));
    EXPECT_THAT(windows(read(name, with(window, {{"sliding_window", "null"}}))), ElementsAre(-1, -1, -1));
    EXPECT_THAT(windows(read(name, with(window, {{"sliding_window", ""}}))), ElementsAre(-1, 4095, 4095));
  }
}

TEST(ReadConfig, QwenLayerTypesOverrideMaxWindowLayers) {
  const Fields window{{"use_sliding_window", "true"},
                      {"sliding_window", "16"},
                      {"max_window_layers", "0"},
                      {"layer_types", R"(["full_attention", "sliding_attention", "full_attention"])"}};
  EXPECT_THAT(windows(read("Qwen2ForCausalLM", window)), ElementsAre(-1, 15, -1));
  expect_rejected(with(window, {{"use_sliding_window", "false"}}), ErrorCode::kCorruptFile,
                  {"layer_types", "layer 1", "use_sliding_window"}, "Qwen2ForCausalLM");
  expect_rejected(with(window, {{"layer_types", R"(["full_attention"])"}}), ErrorCode::kCorruptFile,
                  {"layer_types", "3 times"}, "Qwen2ForCausalLM");
  expect_rejected(
      with(window, {{"layer_types", R"(["full_attention", "sliding_attention", "linear_attention"])"}}),
      ErrorCode::kCorruptFile, {"layer_types", "linear_attention", "\"full_attention\""}, "Qwen2ForCausalLM");
}

TEST(ReadConfig, LlamaHasNoWindow) {
  EXPECT_THAT(windows(llama({{"sliding_window", "16"}, {"use_sliding_window", "true"}})),
              ElementsAre(-1, -1, -1));
}

TEST(ReadConfig, NamesTheMissingPartOfAKnownArchitecture) {
  for (const auto& [name, missing] : {std::pair{"JambaForCausalLM", "needs Mamba-1 layers"},
                                      {"PersimmonForCausalLM", "needs LayerNorm of q and k"},
                                      {"BloomForSequenceClassification", "needs ALiBi"},
                                      {"T5ForConditionalGeneration", "needs an encoder"}})
    expect_rejected({{"architectures", "[\"" + std::string(name) + "\"]"}}, ErrorCode::kUnsupported,
                    {"architectures \"" + std::string(name) + "\"", missing});
}

TEST(ReadConfig, ListsNoSupportedArchitectureAsUnsupported) {
  for (const std::string& name : supported_architectures()) EXPECT_EQ(find_missing_part(name), "") << name;
  EXPECT_TRUE(std::ranges::is_sorted(unsupported_architectures(), {}, &UnsupportedArchitecture::name));
  for (const UnsupportedArchitecture& unsupported : unsupported_architectures())
    EXPECT_EQ(find_missing_part(unsupported.name), unsupported.missing);
}

TEST(ReadConfig, RejectsAnUnknownArchitectureWithTheKnownOnes) {
  expect_rejected({{"architectures", "[\"UnheardOfForCausalLM\"]"}}, ErrorCode::kUnsupported,
                  {"architectures \"UnheardOfForCausalLM\"", "Gemma2ForCausalLM", "LlamaForCausalLM",
                   "MistralForCausalLM", "SeedOssForCausalLM"});
  EXPECT_THAT(
      supported_architectures(),
      ElementsAre(
          "ApertusForCausalLM", "ArceeForCausalLM", "BambaForCausalLM", "BertModel", "Cohere2ForCausalLM",
          "Cohere2MoeForCausalLM", "CohereForCausalLM", "DeepseekV2ForCausalLM", "DeepseekV32ForCausalLM",
          "DeepseekV3ForCausalLM", "DeepseekV3ForCausalLMNextN", "Dots1ForCausalLM", "Ernie4_5ForCausalLM",
          "Ernie4_5ForCausalLMMTP", "Ernie4_5_MoeForCausalLM", "Exaone4ForCausalLM", "ExaoneMoeForCausalLM",
          "FalconForCausalLM", "FalconH1ForCausalLM", "GPT2LMHeadModel", "GPTJForCausalLM",
          "GPTNeoXForCausalLM", "Gemma2ForCausalLM", "Gemma3ForCausalLM", "Gemma3ForConditionalGeneration",
          "Gemma3TextModel", "Gemma4ForCausalLM", "Gemma4ForConditionalGeneration",
          "Gemma4UnifiedForCausalLM", "Gemma4UnifiedForConditionalGeneration", "GemmaForCausalLM",
          "Glm4ForCausalLM", "Glm4MoeForCausalLM", "Glm4MoeForCausalLMNextN", "Glm4MoeLiteForCausalLM",
          "Glm4MoeLiteForCausalLMNextN", "GlmForCausalLM", "GlmMoeDsaForCausalLM", "GptOssForCausalLM",
          "GraniteForCausalLM", "GraniteMoeForCausalLM", "GraniteMoeHybridForCausalLM",
          "GraniteMoeSharedForCausalLM", "HYV3ForCausalLM", "HunYuanDenseV1ForCausalLM",
          "HunYuanMoEV1ForCausalLM", "InternLM3ForCausalLM", "KimiK25ForConditionalGeneration",
          "KimiLinearForCausalLM", "Kimi_K25ForConditionalGeneration", "LagunaForCausalLM", "Lfm2ForCausalLM",
          "Lfm2MoeForCausalLM", "Llama4ForCausalLM", "Llama4ForConditionalGeneration", "LlamaForCausalLM",
          "LlamaForCausalLMEagle", "LlamaForCausalLMEagle3", "MiMoForCausalLM", "MiMoMTP",
          "MiMoV2FlashForCausalLM", "MiniCPM3ForCausalLM", "MiniMaxM2ForCausalLM", "Ministral3ForCausalLM",
          "MinistralForCausalLM", "Mistral3ForConditionalGeneration", "Mistral4ForCausalLM",
          "MistralForCausalLM", "MixtralForCausalLM", "MuseGlimmerForConditionalGeneration",
          "NemotronForCausalLM", "NemotronHForCausalLM", "OPTForCausalLM", "Olmo2ForCausalLM",
          "Olmo3ForCausalLM", "OlmoForCausalLM", "OlmoHybridForCausalLM", "OlmoeForCausalLM",
          "Phi3ForCausalLM", "PhiForCausalLM", "PhiMoEForCausalLM", "PhimoeForCausalLM", "Qwen2ForCausalLM",
          "Qwen2MoeForCausalLM", "Qwen2VLForConditionalGeneration", "Qwen2_5_VLForConditionalGeneration",
          "Qwen3ForCausalLM", "Qwen3MoeForCausalLM", "Qwen3NextForCausalLM", "Qwen3NextForCausalLMMTP",
          "Qwen3VLForConditionalGeneration", "Qwen3VLMoeForConditionalGeneration", "Qwen3_5ForCausalLM",
          "Qwen3_5ForConditionalGeneration", "Qwen3_5MoeForCausalLM", "Qwen3_5MoeForConditionalGeneration",
          "RobertaModel", "SeedOssForCausalLM", "SmolLM3ForCausalLM", "StableLmForCausalLM",
          "Starcoder2ForCausalLM", "XLMRobertaModel"));
}

TEST(ReadConfig, ReadsTheHeadOfAClassifier) {
  const auto head = [](const Fields& changes) {
    return read("LlamaForSequenceClassification", changes).classifier.value();
  };
  const ModelSpec spec = read("LlamaForSequenceClassification");
  EXPECT_EQ(spec.architecture, "LlamaForSequenceClassification");
  EXPECT_FALSE(spec.generates());
  EXPECT_FALSE(llama().classifier.has_value());
  EXPECT_TRUE(llama().generates());
  EXPECT_THAT(head({}).labels, ElementsAre("LABEL_0", "LABEL_1"));
  EXPECT_EQ(head({}).activation, ScoreActivation::kSoftmax);
  EXPECT_EQ(head({{"num_labels", "1"}}).activation, ScoreActivation::kSigmoid);
  EXPECT_THAT(head({{"id2label", R"({"1": "b", "0": "a"})"}, {"num_labels", "7"}}).labels,
              ElementsAre("a", "b"));
  EXPECT_EQ(head({{"problem_type", "\"regression\""}}).activation, ScoreActivation::kIdentity);
  EXPECT_EQ(head({{"problem_type", "\"multi_label_classification\""}}).activation, ScoreActivation::kSigmoid);
  EXPECT_EQ(head({{"problem_type", "\"single_label_classification\""}}).activation,
            ScoreActivation::kSoftmax);
  EXPECT_EQ(head({{"sentence_transformers", R"({"activation_fn": "torch.nn.modules.linear.Identity"})"}})
                .activation,
            ScoreActivation::kIdentity);
}

TEST(ReadConfig, ReadsTheTokensOfARerankerWithoutAHead) {
  const ClassifierSpec head =
      read("Qwen3ForSequenceClassification",
           {{"classifier_from_token", R"(["no", "yes"])"}, {"is_original_qwen3_reranker", "true"}})
          .classifier.value();
  EXPECT_THAT(head.tokens, ElementsAre("no", "yes"));
  EXPECT_TRUE(head.token_difference && head.layers.empty());
  EXPECT_EQ(head.num_outputs(), 1);
  const Fields one = {{"architectures", R"(["Qwen3ForSequenceClassification"])"},
                      {"classifier_from_token", R"(["yes"])"}};
  expect_rejected(with(one, {{"is_original_qwen3_reranker", "true"}}), ErrorCode::kCorruptFile,
                  {"classifier_from_token", "two tokens"});
  expect_rejected(with(one, {{"classifier_from_token", "[]"}}), ErrorCode::kCorruptFile,
                  {"a list of tokens"});
}

TEST(ReadConfig, RejectsArchitecturesWithoutExactlyOneName) {
  for (const char* value : {"", "null", "\"LlamaForCausalLM\"", "[]", "[1]", R"(["LlamaForCausalLM", "B"])"})
    expect_rejected({{"architectures", value}}, ErrorCode::kCorruptFile,
                    {"architectures", "array of one name"});
}

TEST(ReadConfig, RejectsAMissingSize) {
  for (const char* key : {"hidden_size", "intermediate_size", "max_position_embeddings",
                          "num_attention_heads", "num_hidden_layers", "vocab_size"})
    for (const char* value : {"", "null"})
      expect_rejected({{key, value}}, ErrorCode::kCorruptFile, {key, "missing", "an integer from 1 to"});
}

TEST(ReadConfig, RejectsASizeBelowOne) {
  for (const char* key :
       {"hidden_size", "intermediate_size", "max_position_embeddings", "num_attention_heads",
        "num_hidden_layers", "num_key_value_heads", "vocab_size", "head_dim"})
    for (const char* value :
         {"0", "-4", "1.5", "\"64\"", "true", "[64]", "4000000000", "18446744073709551615"})
      expect_rejected({{key, value}}, ErrorCode::kCorruptFile, {key, value, "an integer from 1 to"});
}

TEST(ReadConfig, RejectsHeadCountsThatDoNotDivide) {
  expect_rejected({{"num_key_value_heads", "3"}}, ErrorCode::kCorruptFile,
                  {"num_key_value_heads 3", "divisor of num_attention_heads 4"});
  expect_rejected({{"num_key_value_heads", "8"}}, ErrorCode::kCorruptFile,
                  {"num_key_value_heads 8", "divisor of num_attention_heads 4"});
  expect_rejected({{"hidden_size", "66"}}, ErrorCode::kCorruptFile,
                  {"hidden_size 66", "multiple of num_attention_heads 4"});
  expect_rejected({{"head_dim", "65536"}, {"num_attention_heads", "65536"}}, ErrorCode::kCorruptFile,
                  {"head_dim 65536", "65536 heads"});
  for (const auto& [key, value, head_dim] :
       {std::tuple{"head_dim", "5", "5"}, {"head_dim", "2", "2"}, {"hidden_size", "20", "5"}})
    expect_rejected(
        {{key, value}}, ErrorCode::kCorruptFile,
        {"head_dim " + std::string(head_dim) + ": expected an even number of at least 4 (not given"});
}

TEST(ReadConfig, RejectsAFlagOrNumberOfAnotherType) {
  for (const char* key : {"tie_word_embeddings", "attention_bias", "mlp_bias"})
    expect_rejected({{key, "1"}}, ErrorCode::kCorruptFile, {key, "1", "true or false"});
  for (const char* key : {"rms_norm_eps", "rope_theta"})
    for (const char* value : {"\"1e-6\"", "0", "-1.0", "[]"})
      expect_rejected({{key, value}}, ErrorCode::kCorruptFile, {key, "a number above 0"});
  expect_rejected({{"rope_theta", "1.0"}}, ErrorCode::kCorruptFile, {"rope_theta 1.0", "above 1"});
}

TEST(ReadConfig, RejectsANumberThatOverflows) {
  expect_rejected({{"rope_theta", "1e999"}}, ErrorCode::kCorruptFile, {"JSON", "1e999"});
}

TEST(ReadConfig, RejectsInvalidTokenIds) {
  for (const char* value : {"-1", "\"2\"", "[2, -1]", "[[2]]", "2147483648", "1.5"}) {
    expect_rejected({{"eos_token_id", value}}, ErrorCode::kCorruptFile, {"eos_token_id", "token id"});
    expect_rejected({{"bos_token_id", value}}, ErrorCode::kCorruptFile, {"bos_token_id", "token id"});
  }
}

TEST(ReadConfig, RejectsAnUnsupportedActivation) {
  EXPECT_EQ(llama({{"hidden_act", "\"silu\""}}).num_layers(), 3);
  expect_rejected({{"hidden_act", "\"gelu\""}}, ErrorCode::kUnsupported, {"hidden_act \"gelu\"", "silu"});
}

TEST(ReadConfig, RejectsAnUnsupportedDtype) {
  for (const char* key : {"dtype", "torch_dtype"})
    expect_rejected({{key, "\"float8_e4m3fn\""}}, ErrorCode::kUnsupported,
                    {key, "float8_e4m3fn", "float32, float16, bfloat16"});
  expect_rejected({{"dtype", "16"}}, ErrorCode::kCorruptFile, {"dtype 16", "a string"});
}

TEST(ReadConfig, RejectsAMissingFileOrANonObject) {
  const TempDir dir;
  expect_error(ErrorCode::kNotFound, {"config.json", "no such file"}, [&] { read_config(dir.path()); });
  for (const char* text : {"", "{", "nonsense", "{\"a\": }", "{} {}", "[]", "3", "\xff"}) {
    dir.write("config.json", text);
    expect_error(ErrorCode::kCorruptFile, {"config.json", "JSON"}, [&] { read_config(dir.path()); });
  }
}

TEST(ReadConfig, RejectsAModelOrConfigOfTheWrongKind) {
  const TempDir dir;
  expect_error(ErrorCode::kNotFound,
               {"nowhere: no such directory: expected a model directory", "nothing is downloaded"},
               [&] { read_config(dir.path() / "nowhere"); });
  std::filesystem::create_directory(dir.path() / "config.json");
  expect_error(ErrorCode::kNotFound, {"config.json: is a directory: expected a regular file"},
               [&] { read_config(dir.path()); });
  std::filesystem::remove(dir.path() / "config.json");
  std::filesystem::create_symlink("/dev/zero", dir.path() / "config.json");
  expect_error(ErrorCode::kNotFound, {"config.json: is a device: expected a regular file"},
               [&] { read_config(dir.path()); });
}

TEST(ReadConfig, RejectsADuplicateField) {
  const TempDir dir;
  dir.write("config.json", R"({"hidden_size": 64, "rope_scaling": {"factor": 2}, "hidden_size": 32})");
  expect_error(ErrorCode::kCorruptFile, {"config.json", "\"hidden_size\"", "twice"},
               [&] { read_config(dir.path()); });
}

TEST(ReadConfig, NamesAMalformedGenerationConfig) {
  const TempDir dir;
  dir.write("config.json", json_of(base_fields("LlamaForCausalLM")));
  dir.write("generation_config.json", "{");
  expect_error(ErrorCode::kCorruptFile, {"generation_config.json", "JSON"}, [&] { read_config(dir.path()); });
  dir.write("generation_config.json", R"({"eos_token_id": "</s>"})");
  expect_error(ErrorCode::kCorruptFile, {"generation_config.json", "eos_token_id", "</s>"},
               [&] { read_config(dir.path()); });
}

TEST(ModelSpec, MaxContextLenFollowsRopeScaling) {
  EXPECT_EQ(llama().max_context_len(), 256);
  EXPECT_EQ(llama({{"rope_scaling", R"({"type": "linear", "factor": 4})"}}).max_context_len(), 1024);
  EXPECT_EQ(llama({{"rope_scaling", R"({"type": "dynamic", "factor": 2.5})"}}).max_context_len(), 640);
  EXPECT_EQ(llama({{"rope_scaling", R"({"type": "yarn", "factor": 4})"}}).max_context_len(), 1024);
  EXPECT_EQ(
      llama({{"rope_scaling", R"({"type": "yarn", "factor": 4, "original_max_position_embeddings": 64})"}})
          .max_context_len(),
      256);
  const char* llama3 = R"({"type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4,
                           "original_max_position_embeddings": 32})";
  EXPECT_EQ(llama({{"rope_scaling", llama3}}).max_context_len(), 256);
  EXPECT_EQ(llama({{"rope_scaling", R"({"type": "linear", "factor": 1048576})"}}).max_context_len(), 1 << 28);
}

// As published for Qwen2.5-1M.
TEST(ReadConfig, LimitsTheContextToWhereDualChunkAttentionIsPlainAttention) {
  const auto qwen = [](const std::string& positions, const std::string& dual_chunk) {
    return read("Qwen2ForCausalLM",
                {{"max_position_embeddings", positions}, {"dual_chunk_attention_config", dual_chunk}});
  };
  const std::string published =
      R"({"chunk_size": 262144, "local_size": 8192, "original_max_position_embeddings": 262144})";
  EXPECT_EQ(qwen("1010000", published).max_context_len(), 262144);
  EXPECT_EQ(qwen("1010000", published).dual_chunk_limit, 262144);
  EXPECT_EQ(qwen("1010000", "").max_context_len(), 1010000);
  EXPECT_EQ(qwen("131072", published).max_context_len(), 131072);
  EXPECT_EQ(qwen("131072", published).dual_chunk_limit, 0) << "the model has fewer positions";
  expect_rejected({{"dual_chunk_attention_config", R"({"local_size": 8192})"}}, ErrorCode::kCorruptFile,
                  {"dual_chunk_attention_config", "chunk_size"}, "Qwen2ForCausalLM");
}

TEST(ModelSpec, GeometryDescribesEachLayerToBackends) {
  const ModelSpec config =
      read("Qwen2ForCausalLM",
           {{"use_sliding_window", "true"}, {"sliding_window", "16"}, {"max_window_layers", "2"}});
  const ModelGeometry geometry = config.geometry(DType::kF32, DType::kBF16);
  EXPECT_EQ(geometry.dtype, DType::kF32);
  EXPECT_EQ(geometry.kv_dtype, DType::kBF16);
  EXPECT_EQ(geometry.max_context_len, 256);
  ASSERT_EQ(geometry.layers.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    const AttentionLayer& layer = geometry.layers[i];
    EXPECT_EQ(layer.layer_id, static_cast<int>(i));
    EXPECT_EQ(layer.num_q_heads, 4);
    EXPECT_EQ(layer.num_kv_heads, 2);
    EXPECT_EQ(layer.head_dim_qk, 16);
    EXPECT_EQ(layer.head_dim_v, 16);
    EXPECT_EQ(layer.kind, KvKind::kMha);
    EXPECT_EQ(layer.type, AttentionType::kDecoder);
    EXPECT_FLOAT_EQ(layer.scale, 0.25f);
    EXPECT_EQ(layer.window_left, i == 2 ? 15 : -1);
  }
}

TEST(ModelSpec, GroupsLayersWithEqualCaches) {
  const ModelSpec config =
      read("Qwen2ForCausalLM",
           {{"use_sliding_window", "true"}, {"sliding_window", "16"}, {"max_window_layers", "2"}});
  const CacheSpec full{
      .kind = CacheKind::kFull, .layers = {0, 1}, .num_kv_heads = 2, .head_dim_qk = 16, .head_dim_v = 16};
  const CacheSpec window{.kind = CacheKind::kWindow,
                         .layers = {2},
                         .num_kv_heads = 2,
                         .head_dim_qk = 16,
                         .head_dim_v = 16,
                         .window_left = 15};
  EXPECT_EQ(config.caches(), (std::vector<CacheSpec>{full, window}));
}

TEST(ModelSpec, NumbersPoolLayersLikeBackends) {
  for (const ModelSpec& config : {llama(), read("DeepseekV3ForCausalLM", {{"kv_lora_rank", "512"}})}) {
    const ModelGeometry geometry = config.geometry(DType::kF32, DType::kF32);
    ASSERT_EQ(std::ssize(geometry.layers), config.num_layers());
    for (int layer = 0; layer < config.num_layers(); ++layer) {
      EXPECT_TRUE(has_kv(config.layers[static_cast<size_t>(layer)].mixer));
      EXPECT_EQ(geometry.layers[static_cast<size_t>(layer)].layer_id, config.cache_layer(layer));
    }
  }
}

}  // namespace
}  // namespace attend
