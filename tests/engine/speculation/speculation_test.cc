// Speculative decoding: requests get the same tokens as without it, bit for bit in deterministic mode, for
// every way to sample and to end, and rejected drafts leave no state.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <map>
#include <random>
#include <stdexcept>

#include "attend/base/error.h"
#include "attend/engine/async_engine.h"
#include "attend/tensor/cuda.h"
#include "tests/support/error_message.h"
#include "tests/support/overflowing_model.h"

namespace attend {
namespace {

using testing::HasSubstr;
using testing_support::error_message;

const std::filesystem::path kRandomLlama = ATTEND_SOURCE_DIR "/tests/goldens/llama-gqa4-hd32";
const std::filesystem::path kAttendTiny = ATTEND_SOURCE_DIR "/models/attend-tiny";

struct SpeculativeAnswer {
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;
  std::vector<int32_t> top_ids;
  std::string text, stop, message;
  std::optional<int32_t> matched_token;
  FinishReason reason = FinishReason::kNone;
  int num_last = 0;
};
using AnswerKey = std::pair<RequestId, int>;

struct SpeculativeRun {
  std::map<AnswerKey, SpeculativeAnswer> answers;
  EngineStats stats;
  int64_t num_preemptions = 0;
};

// A prompt that repeats itself: drafts are found at once and some of them are accepted.
std::vector<int32_t> repeating_prompt(int first, int num_tokens) {
  std::vector<int32_t> prompt(static_cast<size_t>(num_tokens));
  for (int i = 0; i < num_tokens; ++i)
    prompt[static_cast<size_t>(i)] = 2 + (31 * first + 7 * (i % 9) + i / 23) % 126;
  return prompt;
}

class SpeculativeDecoding : public testing::TestWithParam<DeviceType> {
 protected:
  SpeculativeDecoding() {
    config_.model_path = kRandomLlama;
    config_.device.type = GetParam();
    config_.dtype = DType::kF32;  // in 16 bits, rounding in another batch can change a token
    config_.kv_cache_dtype = DType::kF32;
    // A match of one token suffices, so that some drafts are rejected.
    options_ = {.algorithm = SpeculativeAlgorithm::kNgram,
                .num_draft_tokens = 6,
                .ngram_min_match_window_size = 1,
                .disable_by_batch_size = 16};
    if (GetParam() == DeviceType::kCuda) config_.cuda_graph_max_bs = 8;
  }
  void SetUp() override {
    if (GetParam() == DeviceType::kCuda && cuda::device_count() == 0)
      GTEST_SKIP() << "this machine has no GPU that this build can use";
  }

  using Event = std::function<void(Engine&, int step, const OutputSink&)>;

  // Submits all requests at once. Calls `between` after each step and `listener` for each output.
  SpeculativeRun run(bool speculates, const std::vector<GenerationRequest>& requests,
                     const Event& between = {}, const OutputSink& listener = {}) {
    config_.speculation = speculates ? options_ : SpeculativeOptions();
    Engine engine(config_);
    SpeculativeRun run;
    const OutputSink sink = [&](const RequestOutput& output) {
      add(run.answers[{output.id, output.index}], output);
      if (listener) listener(output);
    };
    for (const GenerationRequest& request : requests) engine.submit(with_own_mask(request));
    for (int step = 0;; ++step) {
      bool worked = true;
      try {
        worked = engine.step(sink);
      } catch (const std::runtime_error&) {  // thrown by the sink
      }
      engine.check_memory();
      if (!worked) break;
      if (between) between(engine, step, sink);
    }
    EXPECT_EQ(engine.num_used_slots(), 0);
    EXPECT_EQ(engine.stats().num_recoveries, 0);
    run.stats = engine.stats();
    run.num_preemptions = engine.num_preemptions();
    return run;
  }

  // Masks have a state, so each submission has its own.
  static GenerationRequest with_own_mask(GenerationRequest request) {
    if (request.mask) request.mask = request.mask->fork();
    return request;
  }

  static void add(SpeculativeAnswer& answer, const RequestOutput& output) {
    EXPECT_EQ(answer.num_last, 0) << "an output after the last one";
    answer.tokens.insert(answer.tokens.end(), output.token_ids.begin(), output.token_ids.end());
    const LogprobsView& scored = output.logprobs;
    answer.logprobs.insert(answer.logprobs.end(), scored.logprobs.begin(), scored.logprobs.end());
    for (const TokenLogprob& top : scored.tops) answer.top_ids.push_back(top.token_id);
    answer.text += output.text;
    answer.reason = output.finish_reason;
    answer.stop = output.matched_stop;
    answer.message = output.message;
    answer.matched_token = output.matched_token;
    answer.num_last += output.finished() ? 1 : 0;
  }

  static void expect_equal(const SpeculativeAnswer& plain, const SpeculativeAnswer& drafted,
                           float tolerance) {
    EXPECT_EQ(drafted.tokens, plain.tokens);
    EXPECT_EQ(drafted.text, plain.text);
    EXPECT_EQ(drafted.reason, plain.reason);
    EXPECT_EQ(drafted.stop, plain.stop);
    EXPECT_EQ(drafted.message, plain.message);
    EXPECT_EQ(drafted.matched_token, plain.matched_token);
    EXPECT_EQ(drafted.num_last, 1);
    ASSERT_EQ(drafted.logprobs.size(), plain.logprobs.size());
    for (size_t i = 0; i < plain.logprobs.size(); ++i)
      EXPECT_NEAR(drafted.logprobs[i], plain.logprobs[i], tolerance) << i;
    if (tolerance == 0.0f) {
      EXPECT_EQ(drafted.top_ids, plain.top_ids);
    }
    EXPECT_EQ(drafted.top_ids.size(), plain.top_ids.size());
  }

  // Runs the requests without and with drafts, expects equal answers and both accepted and rejected drafts,
  // and returns the run with drafts.
  SpeculativeRun expect_same(const std::vector<GenerationRequest>& requests, const Event& between = {},
                             const OutputSink& listener = {}) {
    const SpeculativeRun plain = run(false, requests, between, listener);
    SpeculativeRun drafted = run(true, requests, between, listener);
    EXPECT_EQ(plain.stats.drafts.num_steps, 0);
    EXPECT_EQ(drafted.answers.size(), plain.answers.size());
    for (const auto& [key, answer] : plain.answers) {
      SCOPED_TRACE(testing::Message() << "request " << key.first << ", completion " << key.second);
      expect_equal(answer, drafted.answers.at(key), config_.deterministic_inference ? 0.0f : 1e-4f);
    }
    const DraftCounts& drafts = drafted.stats.drafts;
    EXPECT_GT(drafts.num_accepted, 0) << "the test checks too little";
    EXPECT_LT(drafts.num_accepted, drafts.num_drafted) << "the test checks too little";
    return drafted;
  }

  static GenerationRequest request(int first, int num_prompt, int max_new_tokens) {
    return {.prompt = repeating_prompt(first, num_prompt),
            .params = {.max_new_tokens = max_new_tokens, .ignore_eos = true}};
  }
  static std::vector<GenerationRequest> make_requests(int num_requests, int max_new_tokens = 40) {
    std::vector<GenerationRequest> requests;
    for (int i = 0; i < num_requests; ++i) requests.push_back(request(i, 9 + 11 * i, max_new_tokens + 3 * i));
    return requests;
  }
  static std::vector<GenerationRequest> sampled(std::vector<GenerationRequest> requests) {
    for (size_t i = 0; i < requests.size(); ++i) {
      SamplingParams& params = requests[i].params;
      params.temperature = 0.1f + 0.3f * static_cast<float>(i % 3);
      params.top_k = i % 2 == 0 ? 0 : 20;
      params.top_p = i % 3 == 0 ? 0.9f : 1.0f;
      params.min_p = i % 4 == 3 ? 0.05f : 0.0f;
      params.seed = 100 + i;
    }
    return requests;
  }

  EngineConfig config_;
  SpeculativeOptions options_;
};

TEST_P(SpeculativeDecoding, ProducesTheSameTokensInFewerSteps) {
  const std::vector<GenerationRequest> requests = make_requests(6);
  const SpeculativeRun plain = run(false, requests);
  const SpeculativeRun drafted = expect_same(requests);
  EXPECT_LT(drafted.stats.num_steps, plain.stats.num_steps);
  EXPECT_EQ(drafted.stats.num_generated_tokens, plain.stats.num_generated_tokens);
  EXPECT_EQ(drafted.stats.num_decode_tokens, plain.stats.num_decode_tokens);
  // Every token except the first of each request is sampled in a counted step.
  const DraftCounts& drafts = drafted.stats.drafts;
  EXPECT_EQ(drafts.num_steps + drafts.num_accepted, plain.stats.num_generated_tokens - 6);
  EXPECT_GT(drafts.accept_length(), 1.0);
}

TEST_P(SpeculativeDecoding, ProducesTheSameBitsInDeterministicMode) {
  config_.deterministic_inference = true;
  std::vector<GenerationRequest> requests = make_requests(5);
  for (const GenerationRequest& request : sampled(make_requests(5))) requests.push_back(request);
  for (GenerationRequest& request : requests) request.params.logprobs = 3;
  expect_same(requests);
}

TEST_P(SpeculativeDecoding, ProducesTheSameSampledTokensForASeed) { expect_same(sampled(make_requests(8))); }

TEST_P(SpeculativeDecoding, ProducesTheSameTokensOfEveryCompletionOfAPrompt) {
  std::vector<GenerationRequest> requests = sampled(make_requests(3));
  for (GenerationRequest& request : requests) request.params.n = 3;
  expect_same(requests);
}

TEST_P(SpeculativeDecoding, ReturnsLogprobsOfDraftTokens) {
  std::vector<GenerationRequest> requests = make_requests(4);
  for (size_t i = 0; i < requests.size(); ++i) requests[i].params.logprobs = static_cast<int>(5 * i);
  const SpeculativeRun drafted = expect_same(requests);
  EXPECT_EQ(drafted.answers.at({2, 0}).logprobs.size(), 43u);
  EXPECT_EQ(drafted.answers.at({2, 0}).top_ids.size(), 5u * 43u);
}

// Each row of a draft has the penalties that the tokens before it cause.
TEST_P(SpeculativeDecoding, AppliesPenaltiesBiasesAndMinTokensWithinADraft) {
  std::vector<GenerationRequest> requests = sampled(make_requests(6, 60));
  const SpeculativeRun plain = run(false, requests);
  requests[0].params.repetition_penalty = 1.1f;
  requests[1].params.frequency_penalty = 0.05f;
  requests[2].params.presence_penalty = 0.2f;
  requests[3].params.logit_bias = {{5, 1.0f}, {plain.answers.at({4, 0}).tokens[7], -1.0f}};
  requests[4].params.min_tokens = 20;
  requests[4].params.stop_token_ids = {plain.answers.at({5, 0}).tokens[3],
                                       plain.answers.at({5, 0}).tokens[25]};
  requests[5].params.min_tokens = 7;
  requests[5].params.frequency_penalty = 0.02f;
  requests[5].params.stop_token_ids = {plain.answers.at({6, 0}).tokens[9]};
  expect_same(requests);
}

TEST_P(SpeculativeDecoding, EndsAtAStopTokenWithinADraft) {
  std::vector<GenerationRequest> requests = make_requests(8);
  const SpeculativeRun whole = run(false, requests);
  for (size_t i = 0; i < requests.size(); ++i)
    requests[i].params.stop_token_ids = {whole.answers.at({static_cast<int>(i) + 1, 0}).tokens[10 + 3 * i]};
  expect_same(requests);
}

TEST_P(SpeculativeDecoding, EndsAtTheEndOfTheContextOrThePool) {
  config_.context_length = 64;
  expect_same(make_requests(4, 200));
  config_.context_length = 0;
  config_.backend_options.page_size = 4;
  config_.max_total_tokens = 60;
  expect_same({request(1, 20, 200)});
}

TEST_P(SpeculativeDecoding, HonorsMaxNewTokens) {
  for (const int max_new_tokens : {1, 2, 3, 4, 7}) {
    std::vector<GenerationRequest> requests;
    for (int i = 0; i < 3; ++i) requests.push_back(request(i, 20 + i, max_new_tokens));
    const SpeculativeRun plain = run(false, requests), drafted = run(true, requests);
    for (const auto& [key, answer] : plain.answers) expect_equal(answer, drafted.answers.at(key), 1e-4f);
  }
}

TEST_P(SpeculativeDecoding, ProducesTheSameTokensWhenRequestsArePreempted) {
  for (const int page_size : {1, 4}) {
    config_.backend_options.page_size = page_size;
    config_.max_total_tokens = 140;
    config_.schedule.conservativeness = 0.0;
    std::vector<GenerationRequest> requests;
    for (int i = 0; i < 6; ++i) requests.push_back(request(i, 10 + i, 40 + i));
    const SpeculativeRun drafted = expect_same(requests);
    EXPECT_GT(drafted.num_preemptions, 0) << "the test checks too little";
  }
}

// A step contains chunks of prompts and drafts.
TEST_P(SpeculativeDecoding, ProducesTheSameTokensWithChunkedPrompts) {
  config_.chunked_prefill_size = 24;
  config_.max_running_requests = 4;
  config_.backend_options.page_size = 4;
  std::vector<GenerationRequest> requests;
  for (int i = 0; i < 10; ++i) requests.push_back(request(i, 5 + 13 * i, 20 + 5 * i));
  requests[7].params.prompt_logprobs = 2;
  expect_same(requests);
}

TEST_P(SpeculativeDecoding, ProducesTheSameTokensWithWindowsChunksLatentRowsAndSharedPrefixes) {
  for (const char* model :
       {"gemma3-layer-ropes", "mistral-window-hd128", "deepseek-v2-lite", "qwen3-some-layers-slide",
        "gpt-oss-sinks-window", "llama4-chunks", "gemma4-shared-kv", "gemma4-experts"}) {
    SCOPED_TRACE(model);
    config_.model_path = ATTEND_SOURCE_DIR "/tests/goldens/" + std::string(model);
    config_.backend_options.page_size = 4;
    std::vector<GenerationRequest> requests;
    for (int i = 0; i < 6; ++i) requests.push_back(request(i % 2, 40 + i / 2, 30 + 7 * i));
    expect_same(requests);
  }
}

// Requests leave the same pages in the prefix cache as without drafts: a request that continues an answer
// gets the tokens of a cold engine.
TEST_P(SpeculativeDecoding, LeavesNoRejectedDraftsInThePrefixCache) {
  config_.backend_options.page_size = 1;
  config_.deterministic_inference = true;
  std::vector<GenerationRequest> requests = sampled(make_requests(4));
  const SpeculativeRun first = run(false, requests);
  std::vector<GenerationRequest> next = requests;
  for (size_t i = 0; i < next.size(); ++i) {
    auto& prompt = std::get<std::vector<int32_t>>(next[i].prompt);
    const std::vector<int32_t>& answer = first.answers.at({static_cast<int>(i) + 1, 0}).tokens;
    prompt.insert(prompt.end(), answer.begin(), answer.end());
    next[i].params.logprobs = 1;
  }
  const SpeculativeRun cold = run(false, next);
  int64_t num_cached = 0;
  const SpeculativeRun warm = run(true, requests, [&](Engine& engine, int, const OutputSink&) {
    if (engine.num_running() + engine.num_waiting() > 0 || num_cached > 0) return;
    num_cached = engine.num_cached_slots();
    for (const GenerationRequest& request : next) engine.submit(request);
  });
  EXPECT_GT(num_cached, 100);
  for (int i = 1; i <= 4; ++i) expect_equal(cold.answers.at({i, 0}), warm.answers.at({i + 4, 0}), 0.0f);
  EXPECT_GT(warm.stats.drafts.num_drafted - warm.stats.drafts.num_accepted, 20)
      << "the test checks too little";
}

TEST_P(SpeculativeDecoding, OverlapsStepsInsteadOfDraftingAboveABatchSize) {
  options_.disable_by_batch_size = 3;
  config_.overlap_schedule = true;
  std::vector<GenerationRequest> requests = make_requests(6);
  const SpeculativeRun plain = run(false, requests);
  int64_t drafted_before = -1;
  const SpeculativeRun drafted = run(true, requests, [&](Engine& engine, int, const OutputSink&) {
    if (engine.num_running() > 3) drafted_before = engine.stats().drafts.num_drafted;
    EXPECT_FALSE(engine.in_flight() && engine.num_running() <= 3);
  });
  for (const auto& [key, answer] : plain.answers) expect_equal(answer, drafted.answers.at(key), 1e-4f);
  EXPECT_EQ(drafted_before, 0);
  EXPECT_GT(drafted.stats.drafts.num_drafted, 0);
  EXPECT_GT(drafted.stats.num_overlapped_steps, 0);
}

TEST_P(SpeculativeDecoding, EndsARequestThatIsAbortedBetweenSteps) {
  const std::vector<GenerationRequest> requests = make_requests(4);
  const SpeculativeRun whole = run(true, requests);
  const SpeculativeRun drafted = run(true, requests, [&](Engine& engine, int step, const OutputSink& sink) {
    EXPECT_TRUE(step != 5 || engine.abort(2, sink));
  });
  for (const auto& [key, answer] : drafted.answers) {
    const SpeculativeAnswer& other = whole.answers.at(key);
    EXPECT_EQ(answer.num_last, 1);
    if (key.first != 2) {
      EXPECT_EQ(answer.tokens, other.tokens);
      continue;
    }
    EXPECT_EQ(answer.reason, FinishReason::kAbort);
    ASSERT_LT(answer.tokens.size(), other.tokens.size());
    EXPECT_TRUE(std::equal(answer.tokens.begin(), answer.tokens.end(), other.tokens.begin()));
  }
}

TEST_P(SpeculativeDecoding, EndsOnlyTheRequestWhoseSinkThrows) {
  const std::vector<GenerationRequest> requests = make_requests(4);
  const SpeculativeRun drafted = run(true, requests, {}, [](const RequestOutput& output) {
    if (output.id == 2 && output.request.num_output() >= 9) throw std::runtime_error("planted");
  });
  const SpeculativeRun plain = run(false, requests);
  for (const RequestId id : {1, 3, 4})
    expect_equal(plain.answers.at({id, 0}), drafted.answers.at({id, 0}), 1e-4f);
  EXPECT_LT(drafted.answers.at({2, 0}).tokens.size(), 15u);
}

TEST_P(SpeculativeDecoding, EndsOnlyRequestsWithNonFiniteLogits) {
  const auto path = std::filesystem::path(testing::TempDir()) / "attend_speculation_overflowing";
  const std::vector<GenerationRequest> requests = make_requests(4);
  const int32_t bad = run(false, requests).answers.at({3, 0}).tokens[6];
  testing_support::make_overflowing_model(kRandomLlama, path, bad);
  config_.model_path = path;
  const SpeculativeRun plain = run(false, requests), drafted = run(true, requests);
  std::filesystem::remove_all(path);
  for (const auto& [key, answer] : plain.answers) expect_equal(answer, drafted.answers.at(key), 1e-4f);
  EXPECT_EQ(drafted.answers.at({3, 0}).reason, FinishReason::kError);
}

// A grammar that allows every third token, depending on the last one, and none after `length` tokens. On
// every fourth one of the first tokens, all are allowed.
class CountingMask : public TokenMask {
 public:
  CountingMask(int vocab_size, int length) : vocab_size_(vocab_size), length_(length) {}
  bool fill(std::span<uint32_t> words) override { return fill(position_, words); }
  void accept(int32_t token_id) override {
    EXPECT_TRUE(position_.num_tokens < length_ && position_.allows(token_id));
    position_.add(token_id);
  }
  std::shared_ptr<TokenMask> fork() const override {
    return std::make_shared<CountingMask>(vocab_size_, length_);
  }

 protected:
  struct Position {
    bool allows(int32_t token_id) const { return num_tokens % 4 == 0 || token_id % 3 == class_of_last % 3; }
    void add(int32_t token_id) {
      class_of_last = token_id / 7;
      ++num_tokens;
    }
    int class_of_last = 0, num_tokens = 0;
  };
  bool fill(const Position& position, std::span<uint32_t> words) const {
    std::ranges::fill(words, 0u);
    if (position.num_tokens >= length_) return true;
    if (position.num_tokens % 4 == 0) return false;
    for (int id = 0; id < vocab_size_; ++id)
      if (position.allows(id)) words[static_cast<size_t>(id / 32)] |= uint32_t{1} << (id % 32);
    return true;
  }

  int vocab_size_, length_;
  Position position_;
};

class DraftedMask final : public CountingMask {
 public:
  using CountingMask::CountingMask;
  std::shared_ptr<TokenMask> fork() const override {
    return std::make_shared<DraftedMask>(vocab_size_, length_);
  }
  size_t draft(std::span<const int32_t> tokens) override {
    drafted_.assign(1, position_);
    for (const int32_t token : tokens) {
      drafted_.push_back(drafted_.back());
      drafted_.back().add(token);
    }
    return tokens.size();
  }
  bool fill_after(size_t num_tokens, std::span<uint32_t> words) override {
    return CountingMask::fill(drafted_.at(num_tokens), words);
  }

 private:
  std::vector<Position> drafted_;
};

// Masks of the tokens of a draft depend on the drafted tokens before, in requests with other masks, with
// penalties, and without masks.
TEST_P(SpeculativeDecoding, AppliesMasksWithinADraft) {
  const auto with_masks = [] {
    std::vector<GenerationRequest> requests = sampled(make_requests(8, 60));
    for (size_t i = 0; i < 6; ++i) requests[i].mask = std::make_shared<DraftedMask>(128, 1000);
    requests[1].params.frequency_penalty = 0.05f;
    requests[2].params.logprobs = 2;
    requests[3].params.n = 2;
    return requests;
  };
  int64_t num_accepted_for_masks = 0;
  const SpeculativeRun plain = run(false, with_masks());
  const SpeculativeRun drafted = run(true, with_masks(), {}, [&](const RequestOutput& output) {
    if (output.request.mask && output.finished())
      num_accepted_for_masks += output.request.draft.counts.num_accepted;
  });
  for (const auto& [key, answer] : plain.answers) expect_equal(answer, drafted.answers.at(key), 1e-4f);
  EXPECT_GT(num_accepted_for_masks, 20) << "the test checks too little";
}

// The request ends with an error at the token that has no allowed one, after the tokens before it.
TEST_P(SpeculativeDecoding, EndsAtAPositionOfADraftWithoutAnAllowedToken) {
  const auto with_masks = [] {
    std::vector<GenerationRequest> requests = make_requests(6, 60);
    for (size_t i = 0; i < requests.size(); ++i)
      requests[i].mask = std::make_shared<DraftedMask>(128, 20 + static_cast<int>(i));
    return requests;
  };
  const SpeculativeRun plain = run(false, with_masks()), drafted = run(true, with_masks());
  for (const auto& [key, answer] : plain.answers) {
    EXPECT_EQ(answer.reason, FinishReason::kError);
    expect_equal(answer, drafted.answers.at(key), 1e-4f);
  }
  EXPECT_GT(drafted.stats.drafts.num_accepted, 0);
}

TEST_P(SpeculativeDecoding, DecodesWithoutDraftsWithAMaskThatDoesNotPrepareThem) {
  const auto with_masks = [] {
    std::vector<GenerationRequest> requests = make_requests(4);
    for (size_t i = 0; i < 2; ++i) requests[i].mask = std::make_shared<CountingMask>(128, 1000);
    return requests;
  };
  int64_t num_drafted_for_masks = 0;
  const SpeculativeRun plain = run(false, with_masks());
  const SpeculativeRun drafted = run(true, with_masks(), {}, [&](const RequestOutput& output) {
    if (output.request.mask) num_drafted_for_masks += output.request.draft.counts.num_drafted;
  });
  for (const auto& [key, answer] : plain.answers) expect_equal(answer, drafted.answers.at(key), 1e-4f);
  EXPECT_EQ(num_drafted_for_masks, 0);
  EXPECT_GT(drafted.stats.drafts.num_accepted, 0);
}

TEST_P(SpeculativeDecoding, ProducesTheSameTokensWithSuffixDecoding) {
  options_ = {.algorithm = SpeculativeAlgorithm::kSuffix,
              .num_draft_tokens = 9,
              .suffix = {.max_tree_depth = 16, .max_cached_requests = 3, .max_spec_factor = 2.0},
              .disable_by_batch_size = 16};
  expect_same(sampled(make_requests(8)));
  // The second request repeats the output of the first one, which has ended.
  config_.speculation = options_;
  Engine engine(config_);
  GenerationRequest again = request(1, 3, 40);
  std::vector<int64_t> num_steps;
  for (int i = 0; i < 2; ++i) {
    const int64_t before = engine.stats().num_steps;
    engine.submit(again);
    while (engine.step([](const RequestOutput&) {})) engine.check_memory();
    num_steps.push_back(engine.stats().num_steps - before);
  }
  EXPECT_LT(2 * num_steps[1], num_steps[0]);
  EXPECT_EQ(engine.info().speculation.num_draft_tokens, 9);
}

// With random submissions, aborts, preemptions and masks, requests get the tokens of a run with one request
// and without drafts; an aborted request gets the first of them.
TEST_P(SpeculativeDecoding, ProducesTheSameTokensWithRandomSubmissionsAbortsAndPreemptions) {
  config_.chunked_prefill_size = 16;
  config_.max_running_requests = 5;
  config_.schedule.conservativeness = 0.0;
  int64_t num_preemptions = 0;
  int num_aborted = 0, num_whole = 0;
  for (unsigned seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const auto below = [&](int bound) { return static_cast<int>(random() % static_cast<unsigned>(bound)); };
    config_.backend_options.page_size = 1 << below(4);
    options_.algorithm = seed % 2 == 0 ? SpeculativeAlgorithm::kNgram : SpeculativeAlgorithm::kSuffix;
    std::vector<GenerationRequest> requests;
    for (int i = 0; i < 14; ++i) {
      // Some prompts share a prefix.
      requests.push_back(request(below(4), 1 + below(60), 1 + below(50)));
      SamplingParams& params = requests.back().params;
      params.temperature = below(2) == 0 ? 0.0f : 0.4f;
      params.seed = random();
      if (below(3) == 0) params.stop_token_ids = {2 + below(126), 2 + below(126), 2 + below(126)};
      if (below(4) == 0) params.frequency_penalty = 0.05f;
      if (below(3) == 0) requests.back().mask = std::make_shared<DraftedMask>(128, 1000);
    }
    config_.max_total_tokens = 0;
    std::map<AnswerKey, SpeculativeAnswer> single;
    for (size_t i = 0; i < requests.size(); ++i)
      single[{static_cast<RequestId>(i) + 1, 0}] = run(false, {requests[i]}).answers.at({1, 0});
    config_.max_total_tokens = 160;
    size_t next = 2;
    const SpeculativeRun drafted =
        run(true, {requests[0], requests[1]}, [&](Engine& engine, int, const OutputSink& sink) {
          if (below(12) == 0) engine.abort(1 + below(static_cast<int>(next)), sink);
          for (;
               next < requests.size() && (below(3) == 0 || engine.num_running() + engine.num_waiting() == 0);
               ++next)
            engine.submit(with_own_mask(requests[next]));
        });
    ASSERT_EQ(drafted.answers.size(), requests.size());
    num_preemptions += drafted.num_preemptions;
    for (const auto& [key, answer] : drafted.answers) {
      const std::vector<int32_t>& whole = single.at(key).tokens;
      EXPECT_EQ(answer.num_last, 1);
      if (answer.reason != FinishReason::kAbort) {
        ++num_whole;
        EXPECT_EQ(answer.tokens, whole);
        EXPECT_EQ(answer.reason, single.at(key).reason);
        continue;
      }
      ++num_aborted;
      ASSERT_LE(answer.tokens.size(), whole.size());
      EXPECT_TRUE(std::equal(answer.tokens.begin(), answer.tokens.end(), whole.begin()));
    }
  }
  EXPECT_GT(num_preemptions, 5) << "the test checks too little";
  EXPECT_GT(num_aborted, 5) << "the test checks too little";
  EXPECT_GT(num_whole, 40) << "the test checks too little";
}

// A stop string is found at the same position as without drafts, and no text after it is returned.
TEST_P(SpeculativeDecoding, EndsAtAStopStringWithinADraft) {
  config_.model_path = kAttendTiny;
  config_.dtype.reset();
  const std::string prompt = "copy: " + std::string("one two three four five six seven eight nine ten; ");
  std::vector<GenerationRequest> requests;
  for (const char* stop : {"five", "seven e", "n t"})
    for (const bool include : {false, true})
      requests.push_back({.prompt = prompt + prompt,
                          .params = {.max_new_tokens = 60,
                                     .stop = {stop},
                                     .include_stop = include,
                                     .ignore_eos = true,
                                     .echo = include}});
  requests.push_back({.prompt = prompt + prompt, .params = {.max_new_tokens = 60, .ignore_eos = true}});
  const SpeculativeRun plain = run(false, requests), drafted = run(true, requests);
  for (const auto& [key, answer] : plain.answers) {
    SCOPED_TRACE(key.first);
    expect_equal(answer, drafted.answers.at(key), 1e-4f);
  }
  EXPECT_GT(drafted.stats.drafts.num_accepted, 0) << "the test checks too little";
}

TEST_P(SpeculativeDecoding, ReportsAcceptancePerRequestAndInMetrics) {
  config_.speculation = options_;
  AsyncEngine engine(config_);
  DraftCounts counts;
  std::atomic<int> num_ended = 0;
  int64_t num_tokens = 0;
  for (int i = 0; i < 2; ++i)
    engine.submit(request(i, 20, 50), [&](const RequestOutput& output) {
      num_tokens += std::ssize(output.token_ids);
      if (!output.finished()) return;
      const DraftCounts& own = output.request.draft.counts;
      EXPECT_EQ(own.num_steps + own.num_accepted, 49);
      counts.num_steps += own.num_steps;
      counts.num_drafted += own.num_drafted;
      counts.num_accepted += own.num_accepted;
      ++num_ended;
    });
  ASSERT_TRUE(engine.drain(std::chrono::minutes(1)));
  engine.pause();
  EXPECT_EQ(num_ended, 2);
  EXPECT_EQ(num_tokens, 100);
  const EngineMetrics metrics = engine.metrics();
  EXPECT_EQ(metrics.drafts.num_steps, counts.num_steps);
  EXPECT_EQ(metrics.drafts.num_drafted, counts.num_drafted);
  EXPECT_EQ(metrics.drafts.num_accepted, counts.num_accepted);
  EXPECT_EQ(metrics.inter_token.count(), 98) << "one per token after the first, drafted or not";
}

INSTANTIATE_TEST_SUITE_P(Device, SpeculativeDecoding, testing::Values(DeviceType::kCpu, DeviceType::kCuda),
                         [](const auto& device) { return device.param == DeviceType::kCpu ? "Cpu" : "Gpu"; });

TEST(SpeculativeOptions, RejectUnknownAlgorithmsAndInvalidSizes) {
  EXPECT_EQ(parse_speculative_algorithm("SUFFIX"), SpeculativeAlgorithm::kSuffix);
  EXPECT_EQ(parse_speculative_algorithm("NGRAM"), SpeculativeAlgorithm::kNgram);
  EXPECT_THAT(
      error_message(ErrorCode::kUnsupported, [] { parse_speculative_algorithm("DFLASH"); }),
      HasSubstr(
          "speculative_algorithm 'DFLASH': expected NGRAM, SUFFIX, STANDALONE, EAGLE, EAGLE3 or NEXTN"));
  EXPECT_THAT(
      error_message(ErrorCode::kInvalidArgument, [] { parse_speculative_algorithm("oracle"); }),
      HasSubstr(
          "speculative_algorithm 'oracle': expected NGRAM, SUFFIX, STANDALONE, EAGLE, EAGLE3 or NEXTN"));
  const auto error_text = [](SpeculativeOptions options) {
    return error_message(ErrorCode::kInvalidArgument, [&] { check(options); });
  };
  EXPECT_THAT(error_text({.num_draft_tokens = 1}), HasSubstr("speculative_num_draft_tokens 1: 2 to 64"));
  EXPECT_THAT(error_text({.num_draft_tokens = 65}), HasSubstr("speculative_num_draft_tokens 65: 2 to 64"));
  EXPECT_THAT(error_text({.ngram_max_match_window_size = 2, .ngram_min_match_window_size = 3}),
              HasSubstr("speculative_ngram_max_match_window_size 2: at least"));
  EXPECT_THAT(error_text({.ngram_min_match_window_size = 0}),
              HasSubstr("speculative_ngram_min_match_window_size 0: at least 1"));
}

TEST(SpeculativeOptions, SuffixDraftsAndTheirMatchesFitTheDepthOfATree) {
  EXPECT_EQ(longest_draft({}), 12);
  EXPECT_EQ(longest_draft({.max_tree_depth = 2}), 1);
  EXPECT_EQ(longest_draft({.max_tree_depth = 24, .max_spec_factor = 0.5}), 8);
  EXPECT_EQ(longest_draft({.max_tree_depth = 24, .max_spec_factor = 3.0}), 18);
  EXPECT_EQ(longest_draft({.max_tree_depth = 256, .max_spec_factor = 64.0}), 252);
}

TEST(SpeculativeOptions, RejectABackendThatCannotVerifyDrafts) {
  EngineConfig config;
  config.model_path = ATTEND_SOURCE_DIR "/tests/goldens/deepseek-v2-lite";
  config.speculation.algorithm = SpeculativeAlgorithm::kNgram;
  config.backend_options.decode_backend = "cutlass_mla";
  EXPECT_THAT(error_message(ErrorCode::kUnsupported, [&] { Engine{config}; }), HasSubstr("cutlass_mla"));
}

}  // namespace
}  // namespace attend
