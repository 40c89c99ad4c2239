// Classifiers and rerankers match transformers on tests/goldens/score-*: token ids, logits and scores.
#include "attend/engine/output/scoring.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <tuple>

#include "attend/engine/embedder.h"
#include "attend/tensor/cuda.h"
#include "tests/support/test_files.h"

namespace attend {
namespace {

using nlohmann::json;
using test::expect_error;
using test::TempDir;
using testing::ElementsAre;
using Tokens = std::vector<int32_t>;

const std::filesystem::path kFolder = ATTEND_SOURCE_DIR "/tests/goldens";
constexpr const char* kScoreModels[] = {"score-bert",         "score-xlm-roberta",  "score-roberta-labels",
                                        "score-qwen3-labels", "score-llama-reward", "score-qwen3-reranker"};

EmbedderConfig config_for(const std::string& name) {
  return {.model_path = kFolder / name, .is_reranker = name == "score-qwen3-reranker"};
}

json read_golden(const std::filesystem::path& folder) {
  std::ifstream file(folder / "golden.json");
  return json::parse(file);
}

// Largest difference, relative to the largest expected value and at least to 1.
float score_error(const std::vector<float>& got, const std::vector<float>& expected) {
  EXPECT_EQ(got.size(), expected.size());
  float error = 0.0f, largest = 1.0f;
  for (size_t i = 0; i < std::min(got.size(), expected.size()); ++i) {
    largest = std::max(largest, std::abs(expected[i]));
    const float difference = std::abs(got[i] - expected[i]);
    error = difference <= error ? error : difference;  // a NaN compares false
  }
  return error / largest;
}

// Expects the logits and scores of all inputs, computed together and one by one.
void expect_goldens(Embedder& embedder, const json& golden, float tolerance) {
  const EmbedderInfo& info = embedder.info();
  std::vector<json> cases = golden["pairs"];
  for (const json& text : golden["texts"]) cases.push_back(text);
  std::vector<Tokens> ids, types;
  for (const json& one : cases) {
    ids.push_back(one["ids"]);
    types.push_back(info.num_token_types > 1 ? one["types"].get<Tokens>() : Tokens{});
  }
  const auto together = embedder.embed(ids, types);
  for (size_t i = 0; i < cases.size(); ++i) {
    const auto one = embedder.embed(std::span(ids).subspan(i, 1), std::span(types).subspan(i, 1)).front();
    for (const std::vector<float>& logits : {together[i], one}) {
      EXPECT_LE(score_error(logits, cases[i]["logits"]), tolerance) << cases[i];
      EXPECT_LE(score_error(activate(logits, info.classifier->activation), cases[i]["scores"]), tolerance)
          << cases[i];
    }
  }
}

class ScoreGoldens : public testing::TestWithParam<std::tuple<const char*, const char*>> {};

TEST_P(ScoreGoldens, LogitsMatchTransformers) {
  const auto [name, backend] = GetParam();
  EmbedderConfig config = config_for(name);
  config.backend_options.attention_backend = backend;
  Embedder embedder(config);
  expect_goldens(embedder, read_golden(config.model_path), 1e-4f);
}

std::string param_name(const testing::TestParamInfo<std::tuple<const char*, const char*>>& test) {
  std::string name = std::string(std::get<0>(test.param)) + "_" + std::get<1>(test.param);
  std::ranges::replace(name, '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Every, ScoreGoldens,
                         testing::Combine(testing::ValuesIn(kScoreModels),
                                          testing::Values("torch_native", "cpu")),
                         param_name);

class ScoreGoldensOnGpu : public testing::TestWithParam<std::tuple<const char*, DType>> {};

TEST_P(ScoreGoldensOnGpu, LogitsMatchTransformers) {
  if (cuda::device_count() == 0) GTEST_SKIP() << "this machine has no GPU that this build can use";
  const auto [name, dtype] = GetParam();
  EmbedderConfig config = config_for(name);
  config.device = {DeviceType::kCuda, 0};
  config.dtype = dtype;
  Embedder embedder(config);
  expect_goldens(embedder, read_golden(config.model_path), dtype == DType::kF32 ? 1e-4f : 2e-2f);
}

INSTANTIATE_TEST_SUITE_P(Every, ScoreGoldensOnGpu,
                         testing::Combine(testing::ValuesIn(kScoreModels),
                                          testing::Values(DType::kF32, DType::kF16)),
                         [](const auto& test) {
                           std::string name = std::string(std::get<0>(test.param)) + "_" +
                                              std::string(to_string(std::get<1>(test.param)));
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

TEST(Scoring, EncodesPairsLikeTheTokenizersLibrary) {
  for (const std::string name : {"score-bert", "score-xlm-roberta", "score-qwen3-reranker"}) {
    const Embedder embedder(config_for(name));
    const json golden = read_golden(kFolder / name);
    ASSERT_GE(golden["pairs"].size(), 5u);
    for (const json& pair : golden["pairs"]) {
      const std::vector<std::string> first = {pair["first"]}, second = {pair["second"]};
      const ScoreInputs inputs = encode_pairs(embedder.info(), *embedder.tokenizer(), first, second,
                                              {.max_tokens = pair.value("max_tokens", 0)});
      EXPECT_EQ(inputs.ids, std::vector<Tokens>{pair["ids"]}) << name << pair;
      if (name != "score-bert") continue;
      EXPECT_EQ(inputs.token_types, std::vector<Tokens>{pair["types"]}) << pair;
    }
  }
}

TEST(Scoring, ComputesTheScoresOfTexts) {
  for (const char* name : {"score-bert", "score-xlm-roberta", "score-qwen3-reranker"}) {
    Embedder embedder(config_for(name));
    std::vector<std::string> firsts, seconds;
    std::vector<float> expected;
    const json golden = read_golden(kFolder / name);
    for (const json& pair : golden["pairs"]) {
      if (pair.contains("max_tokens")) continue;
      firsts.push_back(pair["first"]);
      seconds.push_back(pair["second"]);
      expected.push_back(pair["scores"][0]);
    }
    ASSERT_GE(firsts.size(), 5u);
    EXPECT_LE(score_error(embedder.score(firsts, seconds), expected), 1e-4f) << name;
    // The first two pairs have the same first text.
    EXPECT_LE(score_error(embedder.score(std::span(firsts).first(1), std::span(seconds).first(2)),
                          {expected[0], expected[1]}),
              1e-4f);
  }
}

TEST(Scoring, TruncatesOnlyTheDocumentOfAPrompt) {
  Embedder embedder(config_for("score-qwen3-reranker"));
  const Tokenizer& tokenizer = *embedder.tokenizer();
  const std::string query = "Where does a page live?";
  std::string document;
  for (int i = 0; i < 200; ++i) document += "sixteen tokens, ";
  const auto encode = [&](const std::string& text, PairOptions options) {
    return encode_pairs(embedder.info(), tokenizer, std::vector{query}, std::vector{text}, options)
        .ids.front();
  };
  const Tokens whole = encode(document, {}), short_one = encode(document, {.max_tokens = 400});
  EXPECT_GT(whole.size(), 512u);
  EXPECT_LE(short_one.size(), 400u);
  EXPECT_GT(short_one.size(), 390u);
  const Tokens empty = encode("", {});
  // Begin and end are those of the complete prompt.
  EXPECT_TRUE(std::equal(short_one.begin(), short_one.begin() + 200, whole.begin()));
  EXPECT_TRUE(std::equal(short_one.end() - 10, short_one.end(), whole.end() - 10));
  // The first token of the document may be joined with the prompt's end.
  EXPECT_NEAR(encode(document, {.max_second_tokens = 7}).size(), empty.size() + 7, 1);
  expect_error(ErrorCode::kInvalidArgument, {"query", "at most 20"},
               [&] { encode(document, {.max_tokens = 20}); });
}

TEST(Scoring, UsesAnInstructionOnlyWithAPrompt) {
  Embedder reranker(config_for("score-qwen3-reranker"));
  const std::vector<std::string> query = {"a query"}, document = {"a document"};
  const auto ids = [&](const std::string& instruction) {
    return encode_pairs(reranker.info(), *reranker.tokenizer(), query, document, {.instruction = instruction})
        .ids.front();
  };
  EXPECT_EQ(ids(""), ids("Given a web search query, retrieve relevant passages that answer the query"));
  EXPECT_NE(ids(""), ids("Find code."));
  Embedder bert(config_for("score-bert"));
  expect_error(ErrorCode::kUnsupported, {"instruction", "BertForSequenceClassification"},
               [&] { bert.score(query, document, {.instruction = "x"}); });
}

TEST(Scoring, AcceptsAPromptThatTheClientRendered) {
  Embedder reranker(config_for("score-qwen3-reranker"));
  const json pair = read_golden(kFolder / "score-qwen3-reranker")["pairs"][0];
  const std::string prompt = reranker.tokenizer()->decode(pair["ids"].get<Tokens>(), false);
  const size_t middle = prompt.find("<Document>");
  const std::vector<std::string> first = {prompt.substr(0, middle)}, second = {prompt.substr(middle)};
  EXPECT_EQ(encode_pairs(reranker.info(), *reranker.tokenizer(), first, second, {}).ids.front(),
            pair["ids"].get<Tokens>());
}

// Copies a model's folder and writes one more file.
void copy_with(const std::string& name, const TempDir& to, const std::string& file, const std::string& text) {
  std::filesystem::copy(
      kFolder / name, to.path(),
      std::filesystem::copy_options::recursive | std::filesystem::copy_options::overwrite_existing);
  std::filesystem::create_directories((to.path() / file).parent_path());
  std::ofstream(to.path() / file) << text;
}

json read_config_json(const std::string& name) {
  std::ifstream file(kFolder / name / "config.json");
  return json::parse(file);
}

TEST(Scoring, ReadsTheTokensOfARerankerFromItsFiles) {
  const json golden = read_golden(kFolder / "score-qwen3-reranker");
  json config = read_config_json("score-qwen3-reranker");
  config["architectures"] = {"Qwen3ForSequenceClassification"};
  config["classifier_from_token"] = {"no", "yes"};
  config["is_original_qwen3_reranker"] = true;
  const TempDir vllm;
  copy_with("score-qwen3-reranker", vllm, "config.json", config.dump());
  Embedder by_config({.model_path = vllm.path()});
  expect_goldens(by_config, golden, 1e-4f);

  const Tokenizer tokenizer = Tokenizer::from_path(kFolder / "score-qwen3-reranker");
  const json module = {{"true_token_id", tokenizer.token_id("yes").value()},
                       {"false_token_id", tokenizer.token_id("no").value()}};
  const TempDir sbert;
  copy_with("score-qwen3-reranker", sbert, "1_LogitScore/config.json", module.dump());
  std::ofstream(sbert.path() / "modules.json")
      << R"([{"path": "", "type": "a.Transformer"}, {"path": "1_LogitScore", "type": "b.logit_score.LogitScore"}])";
  Embedder by_module({.model_path = sbert.path()});
  expect_goldens(by_module, golden, 1e-4f);
  EXPECT_TRUE(by_module.info().classifier->prompt != nullptr);

  std::ofstream(sbert.path() / "config_sentence_transformers.json")
      << R"({"activation_fn": "torch.nn.modules.linear.Identity"})";
  EXPECT_EQ(Embedder({.model_path = sbert.path()}).info().classifier->activation, ScoreActivation::kIdentity);
}

TEST(Scoring, RendersTheModelsTemplateForQueryAndDocument) {
  const TempDir dir;
  copy_with("score-qwen3-reranker", dir, "chat_template.jinja",
            "{{ messages | selectattr('role', 'eq', 'query') | map(attribute='content') | first }}<|im_end|>"
            "{{ messages | selectattr(\"role\", \"eq\", \"document\") | map(attribute='content') | first }}");
  const Embedder embedder({.model_path = dir.path(), .is_reranker = true});
  const Tokenizer& tokenizer = *embedder.tokenizer();
  const ScoreInputs inputs =
      encode_pairs(embedder.info(), tokenizer, std::vector<std::string>{"a <|im_end|>"},
                   std::vector<std::string>{"b"}, {});
  Tokens expected = tokenizer.encode(std::vector<Tokenizer::Part>{{"a <|im_end|>", false}});
  expected.push_back(tokenizer.token_id("<|im_end|>").value());
  expected.push_back(tokenizer.token_id("b").value());
  EXPECT_EQ(inputs.ids.front(), expected);
}

TEST(Scoring, ComparesTheVectorsOfAnEmbeddingModel) {
  const std::filesystem::path model = ATTEND_SOURCE_DIR "/models/attend-tiny";
  Embedder embedder({.model_path = model});
  const std::vector<std::string> firsts = {"sun fox"}, seconds = {"sun fox", "roll milk"};
  const std::vector<float> scores = embedder.score(firsts, seconds);
  ASSERT_EQ(scores.size(), 2u);
  EXPECT_NEAR(scores[0], 1.0f, 1e-5f);
  const auto vectors = embedder.embed(std::vector{embedder.encode(firsts[0]), embedder.encode(seconds[1])});
  double dot = 0.0;  // of vectors of length 1
  for (size_t i = 0; i < vectors[0].size(); ++i)
    dot += static_cast<double>(vectors[0][i]) * static_cast<double>(vectors[1][i]);
  EXPECT_NEAR(scores[1], dot, 1e-5);
  EXPECT_LT(scores[1], 0.99f);
}

TEST(Scoring, RejectsPairsForAModelWithSeveralLabels) {
  Embedder embedder(config_for("score-roberta-labels"));
  EXPECT_THAT(embedder.info().classifier->labels, ElementsAre("contradiction", "entailment", "neutral"));
  const std::vector<std::string> one = {"a"}, two = {"b", "c"};
  expect_error(ErrorCode::kUnsupported, {"RobertaForSequenceClassification", "3 labels", "one label"},
               [&] { embedder.score(one, one); });
  Embedder bert(config_for("score-bert"));
  expect_error(ErrorCode::kInvalidArgument, {"2 first and 1 second", "1 and n"},
               [&] { bert.score(two, one); });
  expect_error(ErrorCode::kInvalidArgument, {"1 first and 0 second"}, [&] { bert.score(one, {}); });
}

TEST(Scoring, RejectsTokenTypesThatTheModelDoesNotHave) {
  Embedder bert(config_for("score-bert"));
  const std::vector<Tokens> ids = {{2, 5, 3}};
  const auto embed = [&](const Tokens& types) { bert.embed(ids, std::vector<Tokens>{types}); };
  expect_error(ErrorCode::kInvalidArgument, {"input 0", "token type 2", "0 to 1"}, [&] { embed({0, 1, 2}); });
  expect_error(ErrorCode::kInvalidArgument, {"input 0", "2 token types for 3 tokens"}, [&] {
    embed({0, 1});
  });
  expect_error(ErrorCode::kInvalidArgument, {"token types of 2 inputs"}, [&] {
    bert.embed(ids, std::vector<Tokens>{{}, {}});
  });
}

TEST(Scoring, RejectsHeadsThatItDoesNotSupport) {
  const auto expect_rejected = [](const json& changes, ErrorCode code,
                                  std::initializer_list<std::string_view> parts) {
    json config = read_config_json("score-bert");
    config.merge_patch(changes);
    const TempDir dir;
    copy_with("score-bert", dir, "config.json", config.dump());
    expect_error(code, parts, [&] { Embedder({.model_path = dir.path()}); });
  };
  expect_rejected({{"sbert_ce_default_activation_function", "torch.nn.modules.activation.Tanh"}},
                  ErrorCode::kUnsupported, {"Tanh", "Identity, Sigmoid and Softmax"});
  expect_rejected({{"problem_type", "ranking"}}, ErrorCode::kUnsupported,
                  {"problem_type", "ranking", "regression"});
  expect_rejected({{"id2label", {{"0", "a"}, {"1", "b"}}}}, ErrorCode::kCorruptFile,
                  {"classifier.weight", "48 inputs and 2 outputs"});
  expect_rejected({{"id2label", {{"0", nullptr}, {"1", "a"}}}}, ErrorCode::kCorruptFile, {"id2label"});
  expect_rejected({{"architectures", {"GPT2ForSequenceClassification"}}}, ErrorCode::kUnsupported,
                  {"GPT2ForSequenceClassification", "ForSequenceClassification in place of"});
  expect_error(ErrorCode::kUnsupported, {"BertModel", "both directions", "language model"},
               [] { Embedder({.model_path = kFolder / "embed-bert-mean", .is_reranker = true}); });
  expect_error(ErrorCode::kInvalidArgument, {"normalize", "scores"},
               [] { Embedder({.model_path = kFolder / "score-bert", .normalize = true}); });
}

TEST(Activate, AppliesToEachLogitOrToAll) {
  EXPECT_THAT(activate({0.0f, 100.0f, -100.0f}, ScoreActivation::kSigmoid),
              ElementsAre(0.5f, 1.0f, testing::FloatNear(0.0f, 1e-30f)));
  EXPECT_THAT(activate({1000.0f, 1000.0f}, ScoreActivation::kSoftmax), ElementsAre(0.5f, 0.5f));
  EXPECT_THAT(activate({3.0f, -3.0f}, ScoreActivation::kIdentity), ElementsAre(3.0f, -3.0f));
}

}  // namespace
}  // namespace attend
