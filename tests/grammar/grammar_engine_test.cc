// Constrained completions in an engine, combined with other request options.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "attend/engine/engine.h"
#include "tests/grammar/grammar_folder.h"

namespace attend {
namespace {

using testing::tiny_compiler;

constexpr char kSchema[] =
    R"({"type": "object", "properties": {"sun": {"type": "integer", "minimum": 10, "maximum": 99},
  "words": {"type": "array", "items": {"enum": ["tea", "river", "muffin"]}, "minItems": 4, "maxItems": 4}},
  "required": ["sun", "words"], "additionalProperties": false})";

struct Answer {
  std::string text, matched_stop;
  std::vector<int32_t> tokens;
  FinishReason reason = FinishReason::kNone;
  int num_preemptions = 0;
  size_t num_logprobs = 0;
};
using Answers = std::map<std::pair<RequestId, int>, Answer>;

Answers finish(Engine& engine) {
  Answers answers;
  while (engine.step([&](const RequestOutput& output) {
    Answer& answer = answers[{output.id, output.index}];
    answer.text += output.text;
    answer.tokens.insert(answer.tokens.end(), output.token_ids.begin(), output.token_ids.end());
    answer.num_logprobs += output.logprobs.logprobs.size();
    answer.reason = output.finish_reason;
    answer.matched_stop = output.matched_stop;
    answer.num_preemptions = output.request.num_preemptions;
    EXPECT_NE(output.finish_reason, FinishReason::kError) << output.message;
  })) {
  }
  return answers;
}

void expect_matches_schema(const Answer& answer) {
  ASSERT_EQ(answer.reason, FinishReason::kStop);
  const auto value = nlohmann::json::parse(answer.text, nullptr, false);
  ASSERT_TRUE(value.is_object()) << answer.text;
  EXPECT_GE(value.at("sun"), 10);
  EXPECT_LE(value.at("sun"), 99);
  EXPECT_EQ(value.at("words").size(), 4u);
}

EngineConfig tiny() {
  EngineConfig config;
  config.model_path = ATTEND_SOURCE_DIR "/models/attend-tiny";
  return config;
}

class GrammarEngine : public testing::WithGrammars {
 protected:
  std::shared_ptr<TokenMask> mask(const Grammar& grammar) { return compiler_->compile(grammar); }
  GenerationRequest request(SamplingParams params, uint64_t seed, const Grammar& grammar) {
    params.temperature = 1.0f;
    params.seed = seed;
    if (params.max_new_tokens == 128) params.max_new_tokens = 600;
    return {.prompt = "recall: sun=42, river=17; river=", .params = params, .mask = mask(grammar)};
  }

  const Grammar schema_ = {GrammarKind::kJsonSchema, kSchema};
  std::unique_ptr<GrammarCompiler> compiler_ = tiny_compiler();
};

TEST_F(GrammarEngine, EachCompletionMatchesTheSchema) {
  Engine engine(tiny());
  const RequestId id = engine.submit(request({.n = 8, .logprobs = 2}, 1, schema_));
  // A concurrent request without a grammar.
  const RequestId free = engine.submit("recall: sun=42, river=17; river=", {.max_new_tokens = 40});
  const Answers answers = finish(engine);
  std::set<std::string> texts;
  for (int i = 0; i < 8; ++i) {
    const Answer& answer = answers.at({id, i});
    expect_matches_schema(answer);
    EXPECT_EQ(answer.num_logprobs, answer.tokens.size());
    texts.insert(answer.text);
  }
  EXPECT_GT(texts.size(), 1u);
  EXPECT_EQ(answers.at({free, 0}).text, "17");
}

TEST_F(GrammarEngine, OverlapDoesNotChangeResults) {
  std::vector<std::string> texts[2];
  for (const bool overlap : {false, true}) {
    EngineConfig config = tiny();
    config.overlap_schedule = overlap;
    Engine engine(config);
    for (uint64_t seed = 0; seed < 4; ++seed) engine.submit(request({}, seed, schema_));
    for (const auto& [key, answer] : finish(engine)) {
      expect_matches_schema(answer);
      texts[overlap].push_back(answer.text);
    }
  }
  EXPECT_EQ(texts[0], texts[1]);
}

TEST_F(GrammarEngine, PreemptionLosesNoState) {
  EngineConfig wide = tiny();
  wide.deterministic_inference = true;  // recomputed tokens get the same bits as the originals
  EngineConfig narrow = wide;
  narrow.schedule.conservativeness = 0.0;
  narrow.max_total_tokens = 384;
  narrow.backend_options.page_size = 1;
  std::map<bool, std::vector<std::string>> texts;
  int num_preempted = 0;
  for (const bool is_narrow : {false, true}) {
    Engine engine(is_narrow ? narrow : wide);
    for (uint64_t seed = 0; seed < 12; ++seed) engine.submit(request({.max_new_tokens = 300}, seed, schema_));
    for (const auto& [key, answer] : finish(engine)) {
      expect_matches_schema(answer);
      texts[is_narrow].push_back(answer.text);
      num_preempted += answer.num_preemptions > 0;
    }
  }
  EXPECT_EQ(texts[true], texts[false]);
  EXPECT_GT(num_preempted, 0) << "the pool was not full, so nothing was tested";
}

TEST_F(GrammarEngine, StopStringsEndConstrainedText) {
  Engine engine(tiny());
  const RequestId id = engine.submit(request({.stop = {"\"words\""}}, 3, schema_));
  const Answers answers = finish(engine);
  const Answer& answer = answers.at({id, 0});
  EXPECT_EQ(answer.reason, FinishReason::kStop);
  EXPECT_EQ(answer.matched_stop, "\"words\"");
  EXPECT_THAT(answer.text, ::testing::HasSubstr("\"sun\""));
  EXPECT_THAT(answer.text, ::testing::Not(::testing::HasSubstr("words")));
}

TEST_F(GrammarEngine, CompleteGrammarOverridesMinTokens) {
  Engine engine(tiny());
  const RequestId short_one =
      engine.submit(request({.min_tokens = 50}, 4, {GrammarKind::kRegex, "[0-9]{3}"}));
  const RequestId open_one = engine.submit(request({.min_tokens = 20}, 4, {GrammarKind::kRegex, "[0-9]*"}));
  const Answers answers = finish(engine);
  EXPECT_EQ(answers.at({short_one, 0}).text.size(), 3u);
  EXPECT_EQ(answers.at({short_one, 0}).reason, FinishReason::kStop);
  EXPECT_GE(answers.at({open_one, 0}).tokens.size(), 20u);
}

TEST_F(GrammarEngine, IgnoreEosContinuesUnconstrained) {
  Engine engine(tiny());
  const RequestId id =
      engine.submit(request({.max_new_tokens = 30, .ignore_eos = true}, 4, {GrammarKind::kRegex, "abc"}));
  const Answers answers = finish(engine);
  EXPECT_EQ(answers.at({id, 0}).reason, FinishReason::kLength);
  EXPECT_THAT(answers.at({id, 0}).text, ::testing::StartsWith("abc"));
}

}  // namespace
}  // namespace attend
