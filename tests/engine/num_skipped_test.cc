// GenerationRequest::num_skipped: requests that skip the computation of their first prompt tokens.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "attend/base/error.h"
#include "attend/engine/engine.h"
#include "tests/support/error_message.h"

namespace attend {
namespace {

using testing::HasSubstr;
using testing_support::error_message;

EngineConfig make_config(const char* model) {
  EngineConfig config;
  config.model_path = std::string(ATTEND_SOURCE_DIR "/tests/goldens/") + model;
  config.disable_radix_cache = true;
  return config;
}

GenerationRequest request(int num_prompt, int max_new_tokens) {
  return {.prompt = std::vector<int32_t>(static_cast<size_t>(num_prompt), 7),
          .params = {.max_new_tokens = max_new_tokens, .ignore_eos = true},
          .num_skipped = num_prompt - 1};
}

struct RunResult {
  std::map<RequestId, int> num_tokens;
  int max_used_slots = 0, num_preemptions = 0;
};

RunResult run_until_all_end(Engine& engine) {
  RunResult result;
  while (engine.step([&](const RequestOutput& output) {
    result.num_tokens[output.id] += static_cast<int>(output.token_ids.size());
    if (output.finished()) result.num_preemptions += output.request.num_preemptions;
  })) {
    engine.check_memory();
    result.max_used_slots = std::max(result.max_used_slots, static_cast<int>(engine.num_used_slots()));
  }
  EXPECT_EQ(engine.num_used_slots(), 0);
  return result;
}

TEST(SkippedPrompt, ComputesOneTokenAndAllocatesSlotsForAll) {
  EngineConfig config = make_config("llama-gqa4-hd32");
  config.chunked_prefill_size = 16;
  Engine engine(config);
  for (int i = 0; i < 3; ++i) engine.submit(request(100, 8));
  const RunResult result = run_until_all_end(engine);
  EXPECT_EQ(engine.stats().num_prefill_tokens, 3);
  EXPECT_GE(result.max_used_slots, 300);
  for (const auto& [id, count] : result.num_tokens) EXPECT_EQ(count, 8) << id;
  EXPECT_EQ(result.num_tokens.size(), 3u);
}

TEST(SkippedPrompt, IsComputedIfNumSkippedIsZero) {
  Engine engine(make_config("llama-gqa4-hd32"));
  GenerationRequest computed = request(100, 2);
  computed.num_skipped = 0;
  engine.submit(computed);
  run_until_all_end(engine);
  EXPECT_EQ(engine.stats().num_prefill_tokens, 100);
}

// The rest of the prompt is computed in one step, wherever the skipped tokens end.
TEST(SkippedPrompt, ComputesTheRestOfThePrompt) {
  EngineConfig config = make_config("llama-gqa4-hd32");
  config.chunked_prefill_size = 48;
  Engine engine(config);
  GenerationRequest half = request(100, 1);
  half.num_skipped = 57;
  engine.submit(half);
  run_until_all_end(engine);
  EXPECT_EQ(engine.stats().num_prefill_tokens, 43);
  EXPECT_EQ(engine.stats().num_steps, 1);
}

TEST(SkippedPrompt, MustNotIncludeTheLastToken) {
  Engine engine(make_config("llama-gqa4-hd32"));
  for (const int num_skipped : {-1, 10}) {
    GenerationRequest invalid = request(10, 1);
    invalid.num_skipped = num_skipped;
    EXPECT_THAT(error_message(ErrorCode::kInvalidArgument, [&] { engine.submit(invalid); }),
                HasSubstr("num_skipped " + std::to_string(num_skipped) + ": 0 to 9"));
  }
}

// The pool has window pages for one window and the tokens of one step.
TEST(SkippedPrompt, AllocatesOnlyTheWindowInWindowLayers) {
  EngineConfig config = make_config("gemma3-layer-ropes");
  config.chunked_prefill_size = 16;
  config.max_running_requests = 2;
  config.max_total_tokens = 512;
  config.swa_full_tokens_ratio = 0.125;
  Engine engine(config);
  ASSERT_GT(engine.info().swa_pool_slots, 0);
  engine.submit(request(120, 8));
  engine.submit(request(100, 8));
  for (const auto& [id, count] : run_until_all_end(engine).num_tokens) EXPECT_EQ(count, 8) << id;
}

TEST(SkippedPrompt, IsSkippedAgainAfterPreemption) {
  EngineConfig config = make_config("llama-gqa4-hd32");
  config.backend_options.page_size = 1;
  config.max_total_tokens = 130;
  config.schedule.conservativeness = 0.0;
  Engine engine(config);
  for (int i = 0; i < 3; ++i) engine.submit(request(40, 30));
  const RunResult result = run_until_all_end(engine);
  EXPECT_GT(result.num_preemptions, 0);
  for (const auto& [id, count] : result.num_tokens) EXPECT_EQ(count, 30) << id;
}

TEST(SkippedPrompt, IsRejectedWithAPrefixCache) {
  EngineConfig config = make_config("llama-gqa4-hd32");
  Engine plain(config);
  GenerationRequest scored = request(10, 2);
  scored.params.prompt_logprobs = 0;
  EXPECT_THAT(error_message(ErrorCode::kInvalidArgument, [&] { plain.submit(scored); }),
              HasSubstr("num_skipped: expected no prompt_logprobs"));
  config.disable_radix_cache = false;
  Engine caching(config);
  EXPECT_THAT(error_message(ErrorCode::kInvalidArgument, [&] { caching.submit(request(10, 2)); }),
              HasSubstr("expected an engine without a prefix cache"));
}

}  // namespace
}  // namespace attend
