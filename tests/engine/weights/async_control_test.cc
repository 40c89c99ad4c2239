// AsyncEngine: pauses, new weights and released memory while requests arrive.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <filesystem>
#include <future>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "attend/engine/async_engine.h"
#include "tests/support/error_message.h"
#include "tests/support/model_copy.h"

namespace attend {
namespace async_control {

using std::chrono::seconds;
using test::ModelCopy;
using testing::HasSubstr;
using testing_support::error_message;
using Tokens = std::vector<int32_t>;
namespace fs = std::filesystem;

const fs::path kModel = fs::path(ATTEND_SOURCE_DIR) / "tests/goldens/llama-gqa4-hd32";
const MemoryParts kAll{.weights = true, .kv_cache = true};
constexpr seconds kLong{120};

EngineConfig make_config(const fs::path& model = kModel) {
  EngineConfig config;
  config.model_path = model;
  config.context_length = 256;
  config.max_running_requests = 4;
  config.max_total_tokens = 2048;
  return config;
}

GenerationRequest make_request(int idx, int max_new_tokens = 16) {
  Tokens prompt;
  for (int i = 0; i < 10 + idx; ++i) prompt.push_back(2 + (idx * 11 + i * 5) % 90);
  return {.prompt = prompt, .params = {.max_new_tokens = max_new_tokens, .ignore_eos = true}};
}
// Occupies the engine for many steps.
constexpr int kManyTokens = 200;

struct Captured {
  Tokens tokens;
  FinishReason reason = FinishReason::kNone;
};

// Answers by key. Must outlive the engine.
class Answers {
 public:
  // `at_first_token`: called on the engine's thread, while the request runs.
  OutputCallback callback(int key, std::function<void()> at_first_token = nullptr) {
    return [this, key, at_first_token = std::move(at_first_token)](const RequestOutput& output) {
      if (at_first_token && now(key).tokens.empty()) at_first_token();
      const std::lock_guard lock(mutex_);
      Captured& captured = captured_[key];
      captured.tokens.insert(captured.tokens.end(), output.token_ids.begin(), output.token_ids.end());
      captured.reason = output.finish_reason;
      if (output.finished()) ++num_ended_[key];
      changed_.notify_all();
    };
  }
  Captured end(int key) {
    return wait(key, [](const Captured& one) { return one.reason != FinishReason::kNone; });
  }
  Captured token(int key) {
    return wait(key, [](const Captured& one) { return !one.tokens.empty(); });
  }
  Captured now(int key) {
    const std::lock_guard lock(mutex_);
    return captured_[key];
  }
  std::map<int, int> num_ended() {
    const std::lock_guard lock(mutex_);
    return num_ended_;
  }

 private:
  template <class Is>
  Captured wait(int key, const Is& is) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, kLong, [&] { return is(captured_[key]); })) << "request " << key;
    return captured_[key];
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int, Captured> captured_;
  std::map<int, int> num_ended_;
};

// Result of a control, by its callback.
class Result {
 public:
  ControlCallback callback() {
    return [promise = promise_](const ControlResult& result) { promise->set_value(result); };
  }
  // Waits, and rethrows the error.
  ControlResult get() {
    if (future_.wait_for(kLong) != std::future_status::ready) throw std::runtime_error("no result");
    ControlResult result = future_.get();
    if (result.error) std::rethrow_exception(result.error);
    return result;
  }
  bool is_ready() { return future_.wait_for(seconds(0)) == std::future_status::ready; }

 private:
  std::shared_ptr<std::promise<ControlResult>> promise_ = std::make_shared<std::promise<ControlResult>>();
  std::future<ControlResult> future_ = promise_->get_future();
};

Tokens expected_answer(const fs::path& model, GenerationRequest request) {
  Engine engine(make_config(model));
  Tokens tokens;
  engine.submit(std::move(request));
  while (engine.step([&](const RequestOutput& output) {
    tokens.insert(tokens.end(), output.token_ids.begin(), output.token_ids.end());
  })) {
  }
  return tokens;
}

class AsyncControl : public testing::Test {
 protected:
  AsyncControl() { other_.rotate_embedding(); }

  void update(const fs::path& model, Result& result, bool aborts = false) {
    engine_.update_weights({.model_path = model, .flush_cache = true, .abort_requests = aborts},
                           result.callback());
  }

  ModelCopy other_{kModel};
  Answers answers_;
  AsyncEngine engine_{make_config()};
};

TEST_F(AsyncControl, UpdatesAfterRunningRequestsAndBeforeLaterOnes) {
  Result updated;
  engine_.submit(make_request(1, kManyTokens), answers_.callback(1, [&] {
    update(other_.path(), updated);
    engine_.submit(make_request(2), answers_.callback(2));
  }));
  EXPECT_EQ(updated.get().num_paused, 0);
  EXPECT_EQ(answers_.now(1).reason, FinishReason::kLength) << "running requests finish first";
  EXPECT_EQ(answers_.end(2).tokens, expected_answer(other_.path(), make_request(2)));
  EXPECT_EQ(answers_.now(1).tokens, expected_answer(kModel, make_request(1, kManyTokens)));
}

TEST_F(AsyncControl, AbortsRequestsForAnUpdateIfAsked) {
  Result updated;
  engine_.submit(make_request(1, kManyTokens),
                 answers_.callback(1, [&] { update(other_.path(), updated, /*aborts=*/true); }));
  updated.get();
  EXPECT_EQ(answers_.end(1).reason, FinishReason::kAbort);
  engine_.submit(make_request(2), answers_.callback(2));
  EXPECT_EQ(answers_.end(2).tokens, expected_answer(other_.path(), make_request(2)));
}

TEST_F(AsyncControl, AbortsARequestThatWaitsForAnUpdate) {
  Result updated;
  std::atomic<RequestId> waiting = 0;
  engine_.submit(make_request(1, kManyTokens), answers_.callback(1, [&] {
    update(other_.path(), updated);
    waiting = engine_.submit(make_request(2), answers_.callback(2));
    engine_.abort(waiting);
  }));
  EXPECT_EQ(answers_.end(2).reason, FinishReason::kAbort);
  EXPECT_TRUE(answers_.now(2).tokens.empty());
  updated.get();
  EXPECT_EQ(answers_.now(1).reason, FinishReason::kLength);
  EXPECT_TRUE(engine_.drain(kLong));
}

TEST_F(AsyncControl, RunsUpdatesOneAfterTheOther) {
  engine_.submit(make_request(1, kManyTokens), answers_.callback(1));
  Result first, second, third;
  update(other_.path(), first);
  update("/nowhere", second);
  update(kModel, third);
  engine_.submit(make_request(2), answers_.callback(2));
  first.get();
  EXPECT_THAT(error_message(ErrorCode::kNotFound, [&] { second.get(); }), HasSubstr("/nowhere"));
  third.get();
  answers_.end(2);
  engine_.submit(make_request(3), answers_.callback(3));
  EXPECT_EQ(answers_.end(3).tokens, expected_answer(kModel, make_request(3)));
}

TEST_F(AsyncControl, SleepsAndRejectsRequestsUntilAllMemoryIsBack) {
  Result released;
  std::promise<void> posted;
  engine_.submit(make_request(1, kManyTokens), answers_.callback(1, [&] {
    engine_.release_memory(kAll, released.callback());
    posted.set_value();
  }));
  posted.get_future().wait();
  const auto submit = [&] { engine_.submit(make_request(2), answers_.callback(2)); };
  EXPECT_THROW(submit(), UnavailableError) << "already before the memory is released";
  released.get();
  EXPECT_EQ(answers_.now(1).tokens, expected_answer(kModel, make_request(1, kManyTokens)));
  EXPECT_EQ(engine_.released_memory(), kAll);
  EXPECT_THROW(submit(), UnavailableError);
  Result weights, cache;
  engine_.allocate_memory({.weights = true}, weights.callback());
  weights.get();
  EXPECT_THROW(submit(), UnavailableError) << "the KV cache is missing";
  engine_.allocate_memory({.kv_cache = true}, cache.callback());
  cache.get();
  submit();
  EXPECT_EQ(answers_.end(2).tokens, expected_answer(kModel, make_request(2)));
}

TEST_F(AsyncControl, UpdatesDuringSleepAndLoadsTheNewWeightsAtItsEnd) {
  Result released, refused, updated, allocated;
  engine_.release_memory(kAll, released.callback());
  update("/nowhere", refused);
  update(other_.path(), updated);
  released.get();
  EXPECT_THROW(refused.get(), Error);
  updated.get();
  EXPECT_EQ(engine_.released_memory(), kAll);
  engine_.allocate_memory(kAll, allocated.callback());
  allocated.get();
  engine_.submit(make_request(1), answers_.callback(1));
  EXPECT_EQ(answers_.end(1).tokens, expected_answer(other_.path(), make_request(1)));
}

TEST_F(AsyncControl, StaysAsleepIfTheWeightsAreGone) {
  Result released, updated, failed, allocated;
  engine_.release_memory({.weights = true}, released.callback());
  update(other_.path(), updated);
  updated.get();
  fs::rename(other_.path() / "model.safetensors", other_.path() / "moved");
  engine_.allocate_memory(kAll, failed.callback());
  EXPECT_THAT(error_message(ErrorCode::kNotFound, [&] { failed.get(); }), HasSubstr("safetensors"));
  EXPECT_THROW(engine_.submit(make_request(1), answers_.callback(1)), UnavailableError);
  fs::rename(other_.path() / "moved", other_.path() / "model.safetensors");
  engine_.allocate_memory(kAll, allocated.callback());
  allocated.get();
  engine_.submit(make_request(1), answers_.callback(1));
  EXPECT_EQ(answers_.end(1).tokens, expected_answer(other_.path(), make_request(1)));
}

class AsyncPause : public AsyncControl, public testing::WithParamInterface<PauseMode> {};

TEST_P(AsyncPause, StopsRequestsAndContinuesThemWithNewWeights) {
  const PauseMode mode = GetParam();
  Result paused, updated;
  for (int key = 3; key >= 1; --key)
    engine_.submit(make_request(key, kManyTokens), answers_.callback(key, [&, key] {
      if (key == 1) engine_.pause(mode, paused.callback());
    }));
  const ControlResult result = paused.get();
  if (mode == PauseMode::kAbort) {
    for (int key = 1; key <= 3; ++key) EXPECT_EQ(answers_.end(key).reason, FinishReason::kAbort);
  } else {
    EXPECT_GE(result.num_paused, 1);
    EXPECT_EQ(engine_.metrics().num_preemptions > 0, mode == PauseMode::kRetract);
  }
  engine_.submit(make_request(4), answers_.callback(4));
  EXPECT_TRUE(engine_.metrics().paused);
  const size_t num_tokens = answers_.now(1).tokens.size();
  update(other_.path(), updated);
  EXPECT_EQ(updated.get().num_paused, mode == PauseMode::kAbort ? 1 : 4);
  EXPECT_EQ(answers_.now(1).tokens.size(), num_tokens) << "a paused request receives no tokens";
  EXPECT_TRUE(answers_.now(4).tokens.empty());
  engine_.resume();
  EXPECT_EQ(answers_.end(4).tokens, expected_answer(other_.path(), make_request(4)));
  if (mode == PauseMode::kAbort) return;
  // The answer continues as the new model does after the tokens of the old one.
  const Tokens tokens = answers_.end(1).tokens;
  GenerationRequest rest = make_request(1, kManyTokens - static_cast<int>(num_tokens));
  auto& known = std::get<Tokens>(rest.prompt);
  known.insert(known.end(), tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(num_tokens));
  EXPECT_EQ(Tokens(tokens.begin() + static_cast<std::ptrdiff_t>(num_tokens), tokens.end()),
            expected_answer(other_.path(), rest));
}

INSTANTIATE_TEST_SUITE_P(Modes, AsyncPause,
                         testing::Values(PauseMode::kAbort, PauseMode::kRetract, PauseMode::kInPlace));

TEST_F(AsyncControl, SleepsWithPausedRequestsAndContinuesThem) {
  Result paused, released, allocated;
  engine_.submit(make_request(1, kManyTokens),
                 answers_.callback(1, [&] { engine_.pause(PauseMode::kInPlace, paused.callback()); }));
  paused.get();
  engine_.release_memory(kAll, released.callback());
  EXPECT_EQ(released.get().num_paused, 1);
  engine_.resume();  // no step runs before the memory is back
  engine_.allocate_memory(kAll, allocated.callback());
  allocated.get();
  EXPECT_EQ(answers_.end(1).tokens, expected_answer(kModel, make_request(1, kManyTokens)));
}

TEST(AsyncControlAtTheEnd, PassesAnErrorToControlsThatDidNotRun) {
  Answers answers;
  Result updated, released;
  {
    AsyncEngine engine(make_config());
    engine.submit(make_request(1, kManyTokens), answers.callback(1));
    answers.token(1);
    engine.update_weights({.model_path = kModel}, updated.callback());
    engine.release_memory(kAll, released.callback());
  }
  EXPECT_NE(answers.now(1).reason, FinishReason::kNone);
  for (Result* const result : {&updated, &released}) {
    ASSERT_TRUE(result->is_ready());
    try {
      result->get();
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("being destroyed"));
    }
  }
}

// Requests of several threads during updates, failed updates, pauses and sleep: each is answered once, by one
// of the models, or rejected because the engine sleeps.
TEST_F(AsyncControl, LosesNoRequestInAStormOfControls) {
  constexpr int kCallers = 3, kEach = 40;
  std::map<int, std::set<Tokens>> expected;
  for (int idx = 0; idx < kEach; ++idx)
    expected[idx] = {expected_answer(kModel, make_request(idx, 6)),
                     expected_answer(other_.path(), make_request(idx, 6))};
  std::atomic<int> num_rejected = 0, num_left = kCallers;
  std::vector<std::thread> callers;
  std::mutex mutex;
  std::vector<int> accepted;
  for (int caller = 0; caller < kCallers; ++caller)
    callers.emplace_back([&, caller] {
      for (int idx = 0; idx < kEach; ++idx) {
        const int key = caller * kEach + idx;
        try {
          engine_.submit(make_request(idx, 6), answers_.callback(key));
          const std::lock_guard lock(mutex);
          accepted.push_back(key);
        } catch (const UnavailableError&) {
          ++num_rejected;
        }
        if (idx % 4 == 3) std::this_thread::sleep_for(std::chrono::milliseconds(2));
      }
      --num_left;
    });
  int num_rounds = 0;
  for (; num_left > 0 || num_rounds < 3; ++num_rounds) {
    Result updated, failed, paused, released, allocated;
    update(num_rounds % 2 == 0 ? other_.path() : kModel, updated);
    update("/nowhere", failed);
    engine_.pause(num_rounds % 2 == 0 ? PauseMode::kRetract : PauseMode::kInPlace, paused.callback());
    paused.get();
    engine_.resume();
    updated.get();
    EXPECT_THROW(failed.get(), Error);
    engine_.release_memory(num_rounds % 2 == 0 ? kAll : MemoryParts{.kv_cache = true}, released.callback());
    released.get();
    engine_.allocate_memory(kAll, allocated.callback());
    allocated.get();
  }
  for (std::thread& caller : callers) caller.join();
  ASSERT_TRUE(engine_.drain(kLong));
  EXPECT_EQ(static_cast<int>(accepted.size()) + num_rejected, kCallers * kEach);
  const std::map<int, int> num_ended = answers_.num_ended();
  EXPECT_EQ(num_ended.size(), accepted.size());
  int num_mixed = 0;
  for (const int key : accepted) {
    const Captured answer = answers_.now(key);
    EXPECT_EQ(num_ended.at(key), 1);
    EXPECT_EQ(answer.reason, FinishReason::kLength);
    EXPECT_EQ(answer.tokens.size(), 6u);
    // Requests that were paused in the middle have tokens of both models.
    if (!expected[key % kEach].contains(answer.tokens)) ++num_mixed;
  }
  EXPECT_LE(num_mixed, num_rounds * 4) << "more than the running requests of all pauses";
}

}  // namespace async_control
}  // namespace attend
