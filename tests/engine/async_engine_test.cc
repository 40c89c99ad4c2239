// AsyncEngine called from many threads, with the tiny model.
#include "attend/engine/async_engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <thread>

#include "attend/base/error.h"
#include "tests/support/count_allocations.h"

namespace attend {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

constexpr milliseconds kLong{60000};

EngineConfig tiny_config() {
  EngineConfig config;
  config.model_path = ATTEND_SOURCE_DIR "/models/attend-tiny";
  config.context_length = 512;
  config.max_total_tokens = 4096;
  return config;
}

const std::string kPrompt = "recall: sun=42, river=17, fox=80; river=";

// Outputs that the callback of one request received.
struct CapturedOutputs {
  std::vector<int32_t> tokens;
  std::string text;
  int num_last = 0;  // outputs with a finish reason
  int num_after_last = 0;
  FinishReason reason = FinishReason::kNone;
};

// Provides callbacks that record their outputs. Must outlive the engine.
class Listener {
 public:
  OutputCallback callback(int key) {
    return [this, key](const RequestOutput& output) {
      const std::lock_guard lock(mutex_);
      CapturedOutputs& captured = captured_[key];
      if (captured.num_last > 0) ++captured.num_after_last;
      captured.tokens.insert(captured.tokens.end(), output.token_ids.begin(), output.token_ids.end());
      captured.text += output.text;
      captured.reason = output.finish_reason;
      if (output.finished()) ++captured.num_last;
      changed_.notify_all();
    };
  }
  CapturedOutputs wait_for_end(int key) {
    return wait(key, [](const CapturedOutputs& captured) { return captured.num_last > 0; });
  }
  CapturedOutputs wait_for_token(int key) {
    return wait(key, [](const CapturedOutputs& captured) {
      return !captured.tokens.empty() || captured.num_last > 0;
    });
  }
  std::map<int, CapturedOutputs> all() {
    const std::lock_guard lock(mutex_);
    return captured_;
  }

 private:
  template <class Is>
  CapturedOutputs wait(int key, const Is& is) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, kLong, [&] { return is(captured_[key]); })) << "request " << key;
    return captured_[key];
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int, CapturedOutputs> captured_;
};

GenerationRequest tiny_request(int max_new_tokens = 16) {
  return {.prompt = kPrompt, .params = {.max_new_tokens = max_new_tokens, .ignore_eos = true}};
}
// Runs until it is aborted.
GenerationRequest unbounded_request() { return tiny_request(100000); }

CapturedOutputs run_single() {
  Engine engine(tiny_config());
  CapturedOutputs captured;
  engine.submit(tiny_request());
  while (engine.step([&](const RequestOutput& output) {
    captured.tokens.insert(captured.tokens.end(), output.token_ids.begin(), output.token_ids.end());
    captured.text += output.text;
  })) {
  }
  return captured;
}

TEST(AsyncEngine, MatchesTheEngineFromManyThreads) {
  const CapturedOutputs expected = run_single();
  Listener listener;
  AsyncEngine engine(tiny_config());
  std::vector<std::thread> callers;
  constexpr int kCallers = 4, kEach = 4;
  for (int caller = 0; caller < kCallers; ++caller)
    callers.emplace_back([&, caller] {
      for (int i = 0; i < kEach; ++i) engine.submit(tiny_request(), listener.callback(caller * kEach + i));
    });
  for (std::thread& caller : callers) caller.join();
  ASSERT_TRUE(engine.drain(kLong));
  const auto all = listener.all();
  ASSERT_EQ(all.size(), static_cast<size_t>(kCallers * kEach));
  for (const auto& [key, captured] : all) {
    EXPECT_EQ(captured.tokens, expected.tokens) << key;
    EXPECT_EQ(captured.text, expected.text) << key;
    EXPECT_EQ(captured.reason, FinishReason::kLength) << key;
    EXPECT_EQ(captured.num_last, 1) << key;
  }
}

TEST(AsyncEngine, RejectsOnTheCallersThreadAndChangesNothing) {
  Listener listener;
  AsyncEngine engine(tiny_config());
  EXPECT_THROW(engine.submit({.prompt = std::vector<int32_t>{-1}}, listener.callback(0)), Error);
  EXPECT_THROW(engine.submit({.prompt = std::vector<int32_t>(600, 5)}, listener.callback(0)), Error);
  EXPECT_THROW(engine.submit({.prompt = kPrompt, .params = {.top_p = 0.0f}}, listener.callback(0)), Error);
  EXPECT_THROW(engine.submit(tiny_request(), nullptr), Error);
  EXPECT_EQ(engine.metrics().num_requests, 0);
  EXPECT_TRUE(engine.drain(milliseconds(0)));
  EXPECT_TRUE(listener.all().empty());
}

TEST(AsyncEngine, ForwardsConstructorErrors) {
  EngineConfig config = tiny_config();
  config.model_path = "/nowhere";
  try {
    AsyncEngine engine(config);
    FAIL() << "no model";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("/nowhere"));
  }
}

TEST(AsyncEngine, AbortsARunningRequestWithOneLastOutput) {
  Listener listener;
  AsyncEngine engine(tiny_config());
  const RequestId id = engine.submit(unbounded_request(), listener.callback(0));
  listener.wait_for_token(0);
  engine.abort(id);
  const CapturedOutputs captured = listener.wait_for_end(0);
  EXPECT_EQ(captured.reason, FinishReason::kAbort);
  ASSERT_TRUE(engine.drain(kLong));
  engine.abort(id);  // already finished
  engine.abort(12345);
  EXPECT_EQ(listener.wait_for_end(0).num_last, 1);
  const EngineMetrics metrics = engine.metrics();
  EXPECT_EQ(metrics.num_finished[static_cast<size_t>(FinishReason::kAbort)], 1);
  EXPECT_EQ(metrics.num_used_tokens, 0);
}

TEST(AsyncEngine, AbortsWaitingAndPartlyPrefilledRequests) {
  EngineConfig config = tiny_config();
  config.max_running_requests = 1;
  config.chunked_prefill_size = 16;
  Listener listener;
  AsyncEngine engine(config);
  engine.pause();
  // This prompt takes 20 steps; the other request waits for its row.
  const RequestId chunked = engine.submit(
      {.prompt = std::vector<int32_t>(320, 5), .params = {.max_new_tokens = 4, .ignore_eos = true}},
      listener.callback(0));
  const RequestId waiting = engine.submit(tiny_request(), listener.callback(1));
  engine.resume();
  while (engine.metrics().num_used_tokens == 0) std::this_thread::yield();
  engine.pause();
  ASSERT_TRUE(listener.all().empty()) << "the prompt was computed before the pause: the test checks nothing";
  engine.abort(waiting);
  engine.abort(chunked);
  EXPECT_EQ(listener.wait_for_end(0).reason, FinishReason::kAbort);
  EXPECT_EQ(listener.wait_for_end(1).reason, FinishReason::kAbort);
  EXPECT_TRUE(listener.wait_for_end(0).tokens.empty());
  ASSERT_TRUE(engine.drain(kLong));
  EXPECT_EQ(engine.metrics().num_used_tokens, 0);
}

TEST(AsyncEngine, DoesNotStepWhilePaused) {
  Listener listener;
  AsyncEngine engine(tiny_config());
  engine.submit(unbounded_request(), listener.callback(0));
  listener.wait_for_token(0);
  engine.pause();
  EXPECT_TRUE(engine.metrics().paused);
  const size_t before = listener.wait_for_token(0).tokens.size();
  engine.submit(tiny_request(1), listener.callback(1));
  EXPECT_FALSE(engine.drain(milliseconds(50)));
  EXPECT_EQ(listener.wait_for_token(0).tokens.size(), before);
  engine.resume();
  EXPECT_EQ(listener.wait_for_end(1).reason, FinishReason::kLength);
}

TEST(AsyncEngine, EndsOnlyTheRequestWhoseCallbackThrows) {
  const CapturedOutputs expected = run_single();
  Listener listener;
  std::atomic<int> num_calls = 0;
  AsyncEngine engine(tiny_config());
  engine.submit(unbounded_request(), [&](const RequestOutput&) {
    if (++num_calls == 3) throw std::runtime_error("the client is gone");
  });
  engine.submit(tiny_request(), listener.callback(0));
  ASSERT_TRUE(engine.drain(kLong));
  EXPECT_EQ(num_calls, 3);
  EXPECT_EQ(listener.wait_for_end(0).tokens, expected.tokens);
  EXPECT_EQ(engine.metrics().num_used_tokens, 0);
}

TEST(AsyncEngine, LetsACallbackAbortSubmitAndPause) {
  Listener listener;
  std::atomic<RequestId> unbounded = 0;
  AsyncEngine engine(tiny_config());
  unbounded = engine.submit(unbounded_request(), listener.callback(0));
  listener.wait_for_token(0);
  engine.submit(tiny_request(2), [&](const RequestOutput& output) {
    listener.callback(1)(output);
    if (!output.finished()) return;
    engine.abort(unbounded);
    engine.pause();
    engine.submit(tiny_request(1), listener.callback(2));
    engine.resume();
    EXPECT_THROW(engine.drain(milliseconds(1)), Error);
  });
  EXPECT_EQ(listener.wait_for_end(0).reason, FinishReason::kAbort);
  EXPECT_EQ(listener.wait_for_end(2).reason, FinishReason::kLength);
}

TEST(AsyncEngine, DestructorAbortsRemainingRequests) {
  Listener listener;
  {
    AsyncEngine engine(tiny_config());
    engine.submit(unbounded_request(), [&](const RequestOutput& output) {
      listener.callback(0)(output);
      if (!output.finished()) return;
      EXPECT_THROW(engine.submit(tiny_request(), listener.callback(3)), Error);
    });
    engine.submit(unbounded_request(), listener.callback(1));
    listener.wait_for_token(0);
    engine.submit(unbounded_request(), listener.callback(2));
  }
  for (int key : {0, 1, 2}) {
    EXPECT_EQ(listener.wait_for_end(key).reason, FinishReason::kAbort) << key;
    EXPECT_EQ(listener.wait_for_end(key).num_last, 1) << key;
  }
}

TEST(AsyncEngine, CountsRequestsStepsAndTokens) {
  Listener listener;
  AsyncEngine engine(tiny_config());
  constexpr int kRequests = 3, kTokens = 5;
  for (int i = 0; i < kRequests; ++i) engine.submit(tiny_request(kTokens), listener.callback(i));
  ASSERT_TRUE(engine.drain(kLong));
  const EngineMetrics metrics = engine.metrics();
  const auto num_prompt = static_cast<int64_t>(engine.tokenizer()->encode(kPrompt).size());
  EXPECT_EQ(metrics.num_requests, kRequests);
  EXPECT_EQ(metrics.num_finished[static_cast<size_t>(FinishReason::kLength)], kRequests);
  EXPECT_EQ(metrics.num_prompt_tokens, kRequests * num_prompt);
  EXPECT_EQ(metrics.num_generated_tokens, kRequests * kTokens);
  EXPECT_GE(metrics.num_steps, kTokens);
  EXPECT_EQ(metrics.num_failed_steps, 0);
  EXPECT_EQ(metrics.num_running, 0);
  EXPECT_EQ(metrics.num_waiting, 0);
  EXPECT_EQ(metrics.num_total_tokens, engine.info().pool_slots);
  EXPECT_EQ(metrics.time_to_first_token.count(), kRequests);
  EXPECT_EQ(metrics.queue_time.count(), kRequests);
  EXPECT_EQ(metrics.end_to_end.count(), kRequests);
  EXPECT_EQ(metrics.inter_token.count(), kRequests * (kTokens - 1));
  EXPECT_GE(metrics.time_to_first_token.sum, metrics.queue_time.sum);
}

TEST(AsyncEngine, CountsRequestsFromWhenTheyAreSubmitted) {
  EngineConfig config = tiny_config();
  config.max_running_requests = 1;
  AsyncEngine engine(config);
  constexpr int kCompletions = 8;
  GenerationRequest request = tiny_request(2);
  request.params.n = kCompletions;
  engine.pause();
  std::vector<int> seen;  // filled by the engine's thread during a step
  engine.submit(request, [&](const RequestOutput&) {
    if (seen.empty()) seen.push_back(engine.metrics().num_running + engine.num_waiting());
  });
  EXPECT_EQ(engine.num_waiting(), kCompletions);
  engine.resume();
  ASSERT_TRUE(engine.drain(kLong));
  EXPECT_THAT(seen, testing::ElementsAre(kCompletions));
  EXPECT_EQ(engine.num_waiting(), 0);
}

TEST(AsyncEngine, HonorsMaxWaitingFromManyThreads) {
  constexpr int kRounds = 300, kThreads = 8, kMaxWaiting = 5;
  Listener listener;
  AsyncEngine engine(tiny_config());
  engine.pause();
  // A long prompt takes time to encode, so the other threads submit meanwhile.
  GenerationRequest request = tiny_request(1);
  for (int i = 0; i < 16; ++i) request.prompt = std::get<std::string>(request.prompt) + kPrompt;
  for (int round = 0; round < kRounds; ++round) {
    std::atomic<int> num_started = 0, num_ready = 0;
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i)
      threads.emplace_back([&, i] {
        ++num_ready;
        while (num_ready < kThreads) std::this_thread::yield();
        if (engine.submit_unless_full(request, listener.callback(round * kThreads + i), kMaxWaiting))
          ++num_started;
      });
    for (std::thread& thread : threads) thread.join();
    ASSERT_EQ(num_started, kMaxWaiting) << "round " << round;
    EXPECT_EQ(engine.num_waiting(), kMaxWaiting);
    engine.abort_all();
    ASSERT_TRUE(engine.drain(kLong));
  }
  // Rejected requests are not counted.
  EXPECT_EQ(engine.metrics().num_requests, kRounds * kMaxWaiting);
  EXPECT_EQ(listener.all().size(), size_t{kRounds * kMaxWaiting});
  EXPECT_THROW(engine.submit_unless_full(tiny_request(1), listener.callback(0), 0), Error);
}

TEST(AsyncEngine, CallsAfterOutputsOncePerStep) {
  std::mutex mutex;
  std::vector<int> outputs;  // between two calls of after_outputs
  int num_outputs = 0, num_ended = 0;
  {
    AsyncEngine engine(tiny_config());
    engine.set_after_outputs([&] {
      const std::lock_guard lock(mutex);
      outputs.push_back(std::exchange(num_outputs, 0));
    });
    const auto count = [&](const RequestOutput& output) {
      const std::lock_guard lock(mutex);
      ++num_outputs;
      num_ended += output.finished();
    };
    GenerationRequest four = tiny_request(3);
    four.params.n = 4;
    engine.submit(four, count);
    ASSERT_TRUE(engine.drain(kLong));
    engine.submit(unbounded_request(), count);
    while (true) {
      const std::lock_guard lock(mutex);
      if (std::accumulate(outputs.begin(), outputs.end(), 0) > 12) break;
    }
    engine.abort_all();
    ASSERT_TRUE(engine.drain(kLong));
    EXPECT_LE(std::ssize(outputs), engine.metrics().num_steps + 1) << "more than once a step";
  }
  EXPECT_EQ(num_outputs, 0) << "outputs without a call of after_outputs";
  EXPECT_EQ(num_ended, 5);
  EXPECT_THAT(outputs, testing::Each(testing::AllOf(testing::Ge(1), testing::Le(4))));
}

TEST(AsyncEngine, CountsCachedAndEvictedTokens) {
  EngineConfig config = tiny_config();
  config.max_total_tokens = 512;
  config.backend_options.page_size = 64;
  Listener listener;
  AsyncEngine engine(config);
  int key = 0;
  const auto complete = [&](int32_t token) {
    engine.submit(
        {.prompt = std::vector<int32_t>(200, token), .params = {.max_new_tokens = 2, .ignore_eos = true}},
        listener.callback(key++));
    ASSERT_TRUE(engine.drain(kLong));
  };
  EXPECT_EQ(engine.metrics().cache_hit_rate(), 0.0);
  complete(5);
  complete(5);
  EngineMetrics metrics = engine.metrics();
  EXPECT_EQ(metrics.num_cached_prompt_tokens, 192) << "whole pages";
  EXPECT_EQ(metrics.num_prompt_tokens, 400);
  EXPECT_EQ(metrics.cache_hit_rate(), 192.0 / 400.0);
  EXPECT_EQ(metrics.num_cached_tokens, 192);
  EXPECT_EQ(metrics.num_evictable_tokens, 192);
  EXPECT_EQ(metrics.num_locked_tokens, 0);
  EXPECT_EQ(metrics.num_evicted_tokens, 0);
  engine.submit({.prompt = std::vector<int32_t>(200, 5), .params = unbounded_request().params},
                listener.callback(key));
  listener.wait_for_token(key);
  engine.pause();
  metrics = engine.metrics();
  EXPECT_EQ(metrics.num_evictable_tokens, 0);
  EXPECT_EQ(metrics.num_locked_tokens, metrics.num_cached_tokens);
  engine.abort_all();
  engine.resume();
  ASSERT_TRUE(engine.drain(kLong));
  for (int32_t token = 6; token < 10; ++token) complete(token);
  metrics = engine.metrics();
  EXPECT_GT(metrics.num_evicted_tokens, 0);
  EXPECT_EQ(metrics.num_evictable_tokens, metrics.num_cached_tokens);
  EXPECT_EQ(metrics.num_recoveries, 0);
}

TEST(AsyncEngine, FlushesThePrefixCache) {
  AsyncEngine engine(tiny_config());
  const auto ask = [&] {
    std::atomic<int> num_cached = -1;
    engine.submit({.prompt = std::vector<int32_t>(300, 7), .params = {.max_new_tokens = 2}},
                  [&](const RequestOutput& output) { num_cached = output.request.num_cached_tokens; });
    EXPECT_TRUE(engine.drain(kLong));
    return num_cached.load();
  };
  EXPECT_EQ(ask(), 0);
  EXPECT_GT(ask(), 0);
  EXPECT_GT(engine.metrics().num_cached_tokens, 0);
  EXPECT_GT(engine.metrics().num_cached_prompt_tokens, 0);
  engine.flush_cache();
  EXPECT_EQ(ask(), 0);
}

TEST(AsyncEngine, TracesTheDurationOfEachPartOfAStep) {
  AsyncEngine engine(tiny_config());
  Listener listener;
  const auto run = [&] {
    engine.submit({.prompt = kPrompt, .params = {.max_new_tokens = 5, .ignore_eos = true}},
                  listener.callback(0));
    EXPECT_TRUE(engine.drain(kLong));
  };
  EXPECT_THROW(engine.stop_trace(), Error);
  engine.start_trace(3);
  EXPECT_THROW(engine.start_trace(), Error);
  run();
  std::map<std::string, int> num_spans;
  std::vector<std::string> modes;
  double step_time = 0.0, time_of_parts = 0.0;
  const auto trace = nlohmann::json::parse(engine.stop_trace());
  for (const auto& span : trace["traceEvents"]) {
    if (span["ph"] != "X") continue;
    ++num_spans[span["name"]];
    (span["name"] == "step" ? step_time : time_of_parts) += span["dur"].get<double>();
    if (span["name"] != "step") continue;
    modes.push_back(span["args"]["mode"]);
    EXPECT_EQ(span["args"]["requests"], 1);
  }
  for (const char* name : {"step", "schedule", "inputs", "forward", "sampling", "output"})
    EXPECT_EQ(num_spans[name], 3) << name;
  EXPECT_THAT(modes, testing::ElementsAre("extend", "decode", "decode"));
  EXPECT_LE(time_of_parts, step_time);
  EXPECT_GT(time_of_parts, 0.0);
  engine.start_trace();
  run();
  EXPECT_THAT(engine.stop_trace(), HasSubstr("\"step\""));
}

// Every request ends exactly once, whenever threads submit and abort, and no memory stays in use.
TEST(AsyncEngine, IsConsistentUnderConcurrentSubmitAndAbort) {
  EngineConfig config = tiny_config();
  config.max_running_requests = 6;
  config.max_total_tokens = 512;  // small enough to cause preemption
  config.chunked_prefill_size = 32;
  config.backend_options.page_size = 16;
  Listener listener;
  constexpr int kThreads = 4, kEach = 40;
  {
    AsyncEngine engine(config);
    std::vector<std::thread> callers;
    for (int caller = 0; caller < kThreads; ++caller)
      callers.emplace_back([&, caller] {
        std::mt19937 random(static_cast<unsigned>(caller));
        std::vector<RequestId> mine;
        for (int i = 0; i < kEach; ++i) {
          const auto prompt_size = 1 + random() % 60;
          mine.push_back(engine.submit(
              {.prompt = std::vector<int32_t>(prompt_size, static_cast<int32_t>(5 + random() % 1000)),
               .params = {.max_new_tokens = static_cast<int>(1 + random() % 40),
                          .temperature = 1.0f,
                          .ignore_eos = true}},
              listener.callback(caller * kEach + i)));
          if (random() % 3 == 0) engine.abort(mine[random() % mine.size()]);
          if (random() % 16 == 0) engine.pause();
          if (random() % 4 == 0) engine.resume();
          if (random() % 8 == 0) (void)engine.metrics();
          if (random() % 2 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));
        }
        engine.resume();
      });
    for (std::thread& caller : callers) caller.join();
    engine.resume();
    ASSERT_TRUE(engine.drain(kLong));
    const EngineMetrics metrics = engine.metrics();
    EXPECT_EQ(metrics.num_used_tokens, 0);
    EXPECT_EQ(metrics.num_running + metrics.num_waiting, 0);
    EXPECT_EQ(std::accumulate(metrics.num_finished.begin(), metrics.num_finished.end(), int64_t{0}),
              kThreads * kEach);
    EXPECT_GT(metrics.num_finished[static_cast<size_t>(FinishReason::kAbort)], 0);
    EXPECT_GT(metrics.num_finished[static_cast<size_t>(FinishReason::kLength)], 0);
  }
  const auto all = listener.all();
  ASSERT_EQ(all.size(), static_cast<size_t>(kThreads * kEach));
  for (const auto& [key, captured] : all) {
    EXPECT_EQ(captured.num_last, 1) << key;
    EXPECT_EQ(captured.num_after_last, 0) << key;
  }
}

// Lets each allocation of the engine's thread fail once: every request ends exactly once, and the engine
// keeps serving.
TEST(AsyncEngine, SurvivesEachFailedAllocation) {
  const CapturedOutputs expected = run_single();
  AsyncEngine engine(tiny_config());
  int num_failures = 0;
  for (int64_t num_good = 0; num_good < 120; ++num_good) {
    Listener listener;
    std::atomic<int> num_ends = 0, num_after = 0;
    std::atomic<bool> failed = false;
    // The callback does not allocate, so every failing allocation is the engine's.
    const auto count_ends = [&](const RequestOutput& output) {
      if (!output.finished()) return;
      if (++num_ends > 4) ++num_after;
      failed = failed || testing_support::allocation_has_failed();
      if (num_ends == 4) testing_support::fail_one_allocation_after(-1);
    };
    engine.pause();
    engine.submit({.prompt = kPrompt, .params = {.max_new_tokens = 3, .ignore_eos = true}},
                  [&, armed = false](const RequestOutput& output) mutable {
                    if (!std::exchange(armed, true)) testing_support::fail_one_allocation_after(num_good);
                    count_ends(output);
                  });
    engine.submit({.prompt = kPrompt,
                   .params = {.max_new_tokens = 30,
                              .temperature = 1.0f,
                              .frequency_penalty = 0.5f,
                              .stop = {"zzzz"},
                              .ignore_eos = true,
                              .n = 2,
                              .echo = true,
                              .logprobs = 2,
                              .prompt_logprobs = 1}},
                  count_ends);
    engine.resume();
    while (num_ends == 0) std::this_thread::yield();
    engine.submit({.prompt = std::string(kPrompt), .params = {.max_new_tokens = 4, .ignore_eos = true}},
                  count_ends);
    ASSERT_TRUE(engine.drain(kLong)) << num_good;
    EXPECT_EQ(num_ends, 4) << num_good;
    EXPECT_EQ(num_after, 0) << num_good;
    EXPECT_EQ(engine.metrics().num_used_tokens, 0) << num_good;
    num_failures += failed ? 1 : 0;
    engine.submit(tiny_request(), listener.callback(0));
    ASSERT_EQ(listener.wait_for_end(0).tokens, expected.tokens) << num_good;
    ASSERT_TRUE(engine.drain(kLong));
  }
  EXPECT_GT(num_failures, 20) << "too few allocations failed: the test checks nothing";
}

TEST(Histogram, ComputesQuantiles) {
  static constexpr double kBounds[] = {0.1, 1.0};
  Histogram histogram{.upper_bounds = kBounds, .buckets = {0, 0, 0}, .sum = 0.0};
  EXPECT_EQ(histogram.quantile(0.5), 0.0);
  histogram.buckets = {5, 4, 1};
  EXPECT_EQ(histogram.count(), 10);
  EXPECT_EQ(histogram.quantile(0.5), 0.1);
  EXPECT_EQ(histogram.quantile(0.51), 1.0);
  EXPECT_EQ(histogram.quantile(0.9), 1.0);
  EXPECT_EQ(histogram.quantile(0.99), std::numeric_limits<double>::infinity());
}

}  // namespace
}  // namespace attend
