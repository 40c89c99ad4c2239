// Readers of the configs of draft heads, and their match with a target.
#include <gtest/gtest.h>

#include "attend/checkpoint/checkpoint.h"
#include "attend/model/model.h"
#include "tests/model/config_fields.h"

namespace attend {
namespace {

using test::attention;
using test::base_fields;
using test::expect_error;
using test::Fields;
using test::json_of;
using test::read;
using test::TempDir;
using test::with;
using testing::ElementsAre;

constexpr const char* kEagle3 = "LlamaForCausalLMEagle3";
constexpr const char* kDeepseekV3 = "DeepseekV3ForCausalLM";

ModelSpec read_draft(const std::string& architecture, const Fields& changes = {}) {
  const TempDir dir;
  dir.write("config.json", json_of(with(base_fields(architecture), changes)));
  return read_draft_config(*open_checkpoint(dir.path()));
}

ModelSpec eagle3(const Fields& changes = {}) {
  return read_draft(kEagle3, with({{"num_hidden_layers", "1"}}, changes));
}

Fields aux_ids(const std::string& ids) {
  return {{"eagle_config", R"({"eagle_aux_hidden_state_layer_ids": )" + ids + "}"}};
}

ModelSpec target(const std::string& num_layers, const std::string& architecture = "LlamaForCausalLM") {
  return read(architecture, {{"num_hidden_layers", num_layers}});
}

std::vector<int> layers_before(const Fields& draft, const ModelSpec& target) {
  return fit_draft(eagle3(draft), target).draft->before_layers;
}

TEST(ReadDraft, Eagle3JoinsEmbeddingAndHiddenStatesInItsFirstLayer) {
  const ModelSpec spec = eagle3({{"num_hidden_layers", "2"}, {"attention_bias", "true"}});
  EXPECT_EQ(attention(spec).joined_size, 128);
  EXPECT_EQ(attention(spec, 1).joined_size, 0);
  EXPECT_FALSE(attention(spec).qkv_bias);
  EXPECT_EQ(spec.draft->join, DraftJoin::kAttention);
  EXPECT_EQ(spec.draft->num_hidden, 3);
  EXPECT_EQ(spec.draft->target_width(), 3 * 64);
  EXPECT_FALSE(spec.draft->bias || spec.draft->returns_normed || spec.draft->norm_per_state);
  EXPECT_EQ(spec.head_size(), 128);
}

TEST(ReadDraft, ReadsTheOptionsOfEagle3) {
  const ModelSpec spec = eagle3({{"draft_vocab_size", "48"},
                                 {"target_hidden_size", "96"},
                                 {"bias", "true"},
                                 {"fc_norm", "true"},
                                 {"norm_output", "true"},
                                 {"norm_before_residual", "true"}});
  EXPECT_EQ(spec.head_size(), 48);
  EXPECT_EQ(spec.vocab_size, 128);
  EXPECT_EQ(spec.draft->target_width(), 3 * 96);
  EXPECT_TRUE(spec.draft->bias && spec.draft->norm_per_state && spec.draft->returns_normed &&
              spec.draft->stream_normed);
  EXPECT_EQ(eagle3({{"draft_vocab_size", "null"}}).head_size(), 128);
  EXPECT_TRUE(eagle3({{"eagle_config", R"({"use_aux_norm": true})"}}).draft->norm_per_state);
  EXPECT_TRUE(eagle3({{"norm_before_fc", "true"}}).draft->norm_over_states);
  const ModelSpec final = eagle3({{"eagle_config", R"({"use_aux_hidden_state": false})"}});
  EXPECT_FALSE(final.draft->reads_stream);
  EXPECT_EQ(final.draft->target_width(), 64);
  expect_error(ErrorCode::kUnsupported, {"norm_before_fc", "fc_norm"}, [] {
    eagle3({{"norm_before_fc", "true"}, {"fc_norm", "true"}});
  });
  expect_error(ErrorCode::kCorruptFile, {"draft_vocab_size 129", "vocab_size 128"}, [] {
    eagle3({{"draft_vocab_size", "129"}});
  });
  expect_error(ErrorCode::kCorruptFile, {"eagle_aux_hidden_state_layer_ids", "ascending"},
               [] { eagle3(aux_ids("[5, 2]")); });
}

TEST(FitDraft, ReadsTheStreamAfterTheLayersOfTheConfig) {
  EXPECT_THAT(layers_before({}, target("32")), ElementsAre(2, 16, 29));
  EXPECT_THAT(layers_before(aux_ids("[1, 17, 33]"), target("36")), ElementsAre(2, 18, 34));
  EXPECT_THAT(layers_before(aux_ids("[1, 17, 33]"), target("36", "GptOssForCausalLM")),
              ElementsAre(2, 18, 34));
  // gpt-oss: the last boundary. DeepSeek: inputs of layers, unless the first id is 1.
  EXPECT_THAT(layers_before(aux_ids("[24, 30, 36]"), target("36", "GptOssForCausalLM")),
              ElementsAre(24, 30, 36));
  const ModelSpec deepseek = read(kDeepseekV3, {{"num_hidden_layers", "61"}, {"kv_lora_rank", "512"}});
  EXPECT_THAT(layers_before(aux_ids("[1, 29, 57]"), deepseek), ElementsAre(2, 30, 58));
  EXPECT_THAT(layers_before(aux_ids("[2, 30, 58]"), deepseek), ElementsAre(2, 30, 58));
  EXPECT_TRUE(layers_before({{"eagle_config", R"({"use_aux_hidden_state": false})"}}, target("32")).empty());
  expect_error(ErrorCode::kInvalidArgument, {"layers [2, 2, 1]", "up to 4"},
               [] { layers_before({}, target("4")); });
  expect_error(ErrorCode::kInvalidArgument, {"[1, 40]", "up to 36"},
               [] { layers_before(aux_ids("[1, 40]"), target("36")); });
}

TEST(FitDraft, ExtendsPositionsAndRejectsAnotherVocabularyOrSize) {
  EXPECT_EQ(fit_draft(eagle3({{"max_position_embeddings", "64"}}), target("32")).max_context_len(), 256);
  expect_error(ErrorCode::kInvalidArgument, {"vocab_size 100", "expected 128"}, [] {
    fit_draft(eagle3({{"vocab_size", "100"}}), target("32"));
  });
  expect_error(ErrorCode::kInvalidArgument, {"32 features", "expected 64"}, [] {
    fit_draft(eagle3({{"target_hidden_size", "32"}}), target("32"));
  });
  expect_error(ErrorCode::kInvalidArgument, {"LlamaForCausalLM", "draft head"},
               [] { fit_draft(target("3"), target("3")); });
}

TEST(ReadDraft, ReadsTheLayerAfterTheLastOneOfATarget) {
  const Fields fields = {{"kv_lora_rank", "512"},
                         {"n_routed_experts", "8"},
                         {"n_group", "1"},
                         {"topk_group", "1"},
                         {"num_nextn_predict_layers", "1"}};
  const ModelSpec spec = read_draft(kDeepseekV3, with(fields, {{"num_hidden_layers", "5"}}));
  EXPECT_EQ(spec.architecture, "DeepseekV3ForCausalLMNextN");
  EXPECT_EQ(spec.num_layers(), 1);
  EXPECT_EQ(spec.draft->first_layer, 5);
  EXPECT_TRUE(std::holds_alternative<MlaSpec>(spec.layers[0].mixer));
  EXPECT_TRUE(std::holds_alternative<MoeMlpSpec>(spec.layers[0].mlp));
  EXPECT_TRUE(spec.draft->returns_normed && spec.draft->shares_vocab);
  expect_error(ErrorCode::kUnsupported, {"num_nextn_predict_layers 0"}, [&] {
    read_draft(kDeepseekV3, with(fields, {{"num_nextn_predict_layers", "0"}}));
  });
}

TEST(ReadDraft, ReadsALayerWithFullAttentionOfAHybridTarget) {
  const ModelSpec spec = read_draft("Qwen3NextForCausalLM", {{"num_hidden_layers", "6"}});
  EXPECT_EQ(spec.architecture, "Qwen3NextForCausalLMMTP");
  EXPECT_EQ(spec.num_layers(), 1);
  EXPECT_EQ(attention(spec).output_gate, OutputGate::kAfterQ);
  EXPECT_EQ(spec.draft->first_layer, 0);
  EXPECT_TRUE(spec.zero_centered_norms);
}

TEST(ReadDraft, DistinguishesDraftsFromOtherModels) {
  expect_error(ErrorCode::kUnsupported, {"LlamaForCausalLM", "neither a draft head"},
               [] { read_draft("LlamaForCausalLM"); });
  expect_error(ErrorCode::kUnsupported, {"architectures", "draft head", "target"}, [] {
    read(kEagle3, {{"num_hidden_layers", "1"}});
  });
}

}  // namespace
}  // namespace attend
