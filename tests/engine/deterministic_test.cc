// --enable-deterministic-inference on the bundled model: what a request says depends on that request alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

#include "attend/base/parallel.h"
#include "attend/engine/engine.h"
#include "tests/support/error_message.h"

namespace attend {
namespace {

using Tokens = std::vector<int32_t>;

// Prompts of a few tokens and of some hundred.
std::vector<Tokens> prompts() {
  std::ifstream file(ATTEND_SOURCE_DIR "/tests/data/attend-tiny-prompts.jsonl");
  std::vector<Tokens> prompts;
  for (std::string line; std::getline(file, line) && prompts.size() < 12;) {
    Tokens ids = nlohmann::json::parse(line).at("input_ids");
    if (ids.size() <= 600) prompts.push_back(std::move(ids));
  }
  return prompts;
}

EngineConfig deterministic_config() {
  EngineConfig config;
  config.model_path = ATTEND_SOURCE_DIR "/models/attend-tiny";
  config.deterministic_inference = true;
  config.max_running_requests = 12;
  config.context_length = 1024;
  return config;
}

struct Outcome {
  std::vector<Tokens> outputs;  // in the order of the prompts
  int num_preemptions = 0;
};

// Samples so hot that one bit of a logit soon changes a token.
SamplingParams sampling(size_t prompt_idx) {
  return {.max_new_tokens = 100, .temperature = 1.5f, .seed = 100 + prompt_idx, .ignore_eos = true};
}

void collect(Engine& engine, Outcome& outcome, RequestId first_id, size_t first_prompt) {
  while (engine.step([&](const StepOutput& output) {
    if (output.finish_reason == FinishReason::kNone) return;
    const Request& request = output.request;
    outcome.outputs[first_prompt + static_cast<size_t>(output.id - first_id)].assign(
        request.tokens.begin() + request.num_prompt, request.tokens.end());
    outcome.num_preemptions += request.num_preemptions;
  })) {
  }
}

Outcome run_together(const EngineConfig& config, const std::vector<Tokens>& prompts) {
  Engine engine(config);
  Outcome outcome{.outputs = std::vector<Tokens>(prompts.size())};
  std::vector<RequestId> ids;
  for (size_t i = 0; i < prompts.size(); ++i) ids.push_back(engine.submit(prompts[i], sampling(i)));
  collect(engine, outcome, ids[0], 0);
  return outcome;
}

Outcome run_one_by_one(const EngineConfig& config, const std::vector<Tokens>& prompts) {
  Engine engine(config);
  Outcome outcome{.outputs = std::vector<Tokens>(prompts.size())};
  for (size_t i = 0; i < prompts.size(); ++i)
    collect(engine, outcome, engine.submit(prompts[i], sampling(i)), i);
  return outcome;
}

TEST(DeterministicInference, GivesTheSameTokensAloneAndInABatch) {
  const EngineConfig config = deterministic_config();
  EXPECT_EQ(run_together(config, prompts()).outputs, run_one_by_one(config, prompts()).outputs);
}

TEST(DeterministicInference, GivesTheSameTokensForEverySizeOfChunks) {
  EngineConfig config = deterministic_config();
  const std::vector<Tokens> whole = run_together(config, prompts()).outputs;
  for (const int size : {12, 31, 100}) {
    config.chunked_prefill_size = size;
    EXPECT_EQ(run_together(config, prompts()).outputs, whole) << "chunks of " << size;
  }
}

TEST(DeterministicInference, GivesTheSameTokensAfterPreemption) {
  for (const int page_size : {1, 16, 64}) {
    EngineConfig config = deterministic_config();
    config.wishes.page_size = page_size;
    const std::vector<Tokens> expected = run_one_by_one(config, prompts()).outputs;
    size_t longest = 0;
    for (const Tokens& prompt : prompts()) longest = std::max(longest, prompt.size());
    // Room for the longest request and little more.
    config.max_total_tokens = static_cast<int64_t>(longest) + 110;
    const Outcome outcome = run_together(config, prompts());
    EXPECT_GT(outcome.num_preemptions, 0) << "page size " << page_size;
    EXPECT_EQ(outcome.outputs, expected) << "page size " << page_size;
  }
}

TEST(DeterministicInference, GivesTheSameTokensOnEveryNumberOfThreads) {
  const int all_threads = num_threads();
  std::vector<std::vector<Tokens>> outputs;
  for (const int threads : {1, 2, 5}) {
    set_num_threads(threads);
    outputs.push_back(run_together(deterministic_config(), prompts()).outputs);
  }
  set_num_threads(all_threads);
  EXPECT_EQ(outputs[1], outputs[0]);
  EXPECT_EQ(outputs[2], outputs[0]);
}

TEST(DeterministicInference, RefusesABackendThatDoesNotOfferIt) {
  EngineConfig config = deterministic_config();
  config.wishes.attention_backend = "trtllm_mha";
  EXPECT_THAT(testing_support::error_message(ErrorCode::kUnsupported, [&] { Engine engine(config); }),
              testing::HasSubstr("deterministic inference"));
}

}  // namespace
}  // namespace attend
