// Injects faults at each point of a request's life. The request ends, the other requests get the same tokens
// as without the fault, and the engine keeps serving.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "attend/engine/async_engine.h"

namespace attend {
namespace {

constexpr std::chrono::milliseconds kPatience{60000};
constexpr int32_t kUnaffected = 100, kVictim = 200, kWaiting = 300;  // token that each prompt repeats

// Outputs that the callback of one request received.
struct Answer {
  std::vector<int32_t> tokens;
  std::vector<FinishReason> ends;
  bool operator==(const Answer&) const = default;
};

// Throws when the mask of its nth token is filled.
class FailingMask final : public TokenMask {
 public:
  explicit FailingMask(int num_good) : num_good_(num_good) {}
  bool fill(std::span<uint32_t>) override {
    if (num_good_-- == 0) throw std::runtime_error("planted");
    return false;
  }
  void accept(int32_t) override {}
  std::shared_ptr<TokenMask> fork() const override { return std::make_shared<FailingMask>(*this); }

 private:
  int num_good_;
};

// Three requests on one engine. The first decodes from the start and must not be affected. The second
// (victim) has a prompt of many chunks and a long answer, and is preempted since the pool is too small for
// both. The third waits for a row.
class PlantedFaults : public testing::Test {
 protected:
  static constexpr int kUnaffectedTokens = 60, kVictimTokens = 24;

  static EngineConfig config() {
    EngineConfig config;
    config.model_path = ATTEND_SOURCE_DIR "/models/attend-tiny";
    config.context_length = 512;
    config.max_total_tokens = 208;
    config.max_running_requests = 2;
    config.chunked_prefill_size = 16;
    config.backend_options.page_size = 16;
    config.schedule.conservativeness = 0.0;
    return config;
  }

  static GenerationRequest request(int32_t token, int num_prompt, int max_new_tokens) {
    return {.prompt = std::vector<int32_t>(static_cast<size_t>(num_prompt), token),
            .params = {.max_new_tokens = max_new_tokens, .ignore_eos = true}};
  }

  // Fault to inject through one of these hooks. An empty Fault injects none.
  struct Fault {
    std::function<void(int num_outputs)> on_unaffected =
        {};  // called on the engine's thread with each output of the unaffected request
    std::function<void(int num_outputs)> on_victim = {};
    std::shared_ptr<TokenMask> mask = {};  // mask of the victim
  };

  // Ids of the requests of the current run.
  RequestId victim_id() const { return victim_id_; }
  RequestId waiting_id() const { return waiting_id_; }

  std::map<int32_t, Answer> run(const Fault& fault) {
    std::map<int32_t, Answer> answers;
    const auto listen = [&](int32_t request, const std::function<void(int)>& then) {
      return [&answers, request, then](const RequestOutput& output) {
        Answer& answer = answers[request];
        answer.tokens.insert(answer.tokens.end(), output.token_ids.begin(), output.token_ids.end());
        if (output.finished()) answer.ends.push_back(output.finish_reason);
        if (then && !output.token_ids.empty()) then(static_cast<int>(answer.tokens.size()));
      };
    };
    engine_.pause();
    const auto submit = [&](GenerationRequest wanted, OutputCallback callback) {
      wanted.cache_salt = std::to_string(num_runs_);  // no run reuses the cached prefixes of another
      return engine_.submit(std::move(wanted), std::move(callback));
    };
    submit(request(kUnaffected, 20, kUnaffectedTokens), listen(kUnaffected, fault.on_unaffected));
    GenerationRequest victim = request(kVictim, 130, kVictimTokens);
    victim.mask = fault.mask;
    victim_id_ = submit(std::move(victim), listen(kVictim, fault.on_victim));
    waiting_id_ = submit(request(kWaiting, 20, 4), listen(kWaiting, {}));
    ++num_runs_;
    engine_.resume();
    EXPECT_TRUE(engine_.drain(kPatience));
    const EngineMetrics metrics = engine_.metrics();
    EXPECT_EQ(metrics.num_used_tokens, 0);
    EXPECT_EQ(metrics.num_running + metrics.num_waiting, 0);
    EXPECT_EQ(metrics.num_failed_steps, 0);
    EXPECT_EQ(metrics.num_recoveries, 0) << "no page was lost";
    return answers;
  }

  // All requests except `request` match the run without faults. `request` ended once, with `reason` or before
  // the fault.
  static void expect_one_ended(const std::map<int32_t, Answer>& without_fault,
                               std::map<int32_t, Answer> answers, int32_t request, FinishReason reason) {
    const Answer& whole = without_fault.at(request);
    const Answer ended = answers.at(request);
    ASSERT_EQ(ended.ends.size(), 1u);
    EXPECT_TRUE(ended.ends == whole.ends || ended.ends[0] == reason);
    ASSERT_LE(ended.tokens.size(), whole.tokens.size());
    EXPECT_TRUE(std::equal(ended.tokens.begin(), ended.tokens.end(), whole.tokens.begin()));
    answers[request] = whole;
    EXPECT_EQ(answers, without_fault);
  }

  AsyncEngine engine_{config()};

 private:
  int num_runs_ = 0;
  std::atomic<RequestId> victim_id_ = 0, waiting_id_ = 0;
};

TEST_F(PlantedFaults, AbortByAnotherThreadAtAnyPointEndsOneRequest) {
  const auto without_fault = run({});
  ASSERT_GT(engine_.metrics().num_preemptions, 0) << "the victim was not preempted";
  int num_aborted_before_tokens = 0, num_aborted_within = 0;
  for (const int32_t request : {kVictim, kWaiting})
    for (int point = 1; point < kUnaffectedTokens; point += 3) {
      const auto abort_at = [&](int num_outputs) {
        if (num_outputs != point) return;
        std::thread([&] { engine_.abort(request == kVictim ? victim_id() : waiting_id()); }).join();
      };
      const auto answers = run({.on_unaffected = abort_at});
      SCOPED_TRACE(testing::Message()
                   << "request " << request << " at output " << point << " of the unaffected request");
      expect_one_ended(without_fault, answers, request, FinishReason::kAbort);
      const size_t num_tokens = answers.at(request).tokens.size();
      num_aborted_before_tokens += num_tokens == 0 ? 1 : 0;
      num_aborted_within += num_tokens > 0 && num_tokens < without_fault.at(request).tokens.size() ? 1 : 0;
    }
  EXPECT_GT(num_aborted_before_tokens, 3);
  EXPECT_GT(num_aborted_within, 3);
}

TEST_F(PlantedFaults, CallbackThatThrowsAtAnyOutputEndsItsRequest) {
  const auto without_fault = run({});
  for (int point = 1; point <= kVictimTokens; point += point == 1 || point + 5 > kVictimTokens ? 1 : 4) {
    const auto throw_at = [&](int num_outputs) {
      if (num_outputs == point) throw std::runtime_error("the client is gone");
    };
    auto answers = run({.on_victim = throw_at});
    SCOPED_TRACE(testing::Message() << "at output " << point);
    EXPECT_EQ(static_cast<int>(answers.at(kVictim).tokens.size()), point)
        << "the callback is not called again";
    answers[kVictim] = without_fault.at(kVictim);
    EXPECT_EQ(answers, without_fault);
  }
}

TEST_F(PlantedFaults, MaskThatFailsAtAnyTokenEndsItsRequest) {
  const auto without_fault = run({});
  for (int num_good = 0; num_good < kVictimTokens; num_good += 5) {
    SCOPED_TRACE(testing::Message() << "after " << num_good << " tokens");
    const auto answers = run({.mask = std::make_shared<FailingMask>(num_good)});
    EXPECT_EQ(static_cast<int>(answers.at(kVictim).tokens.size()), num_good);
    expect_one_ended(without_fault, answers, kVictim, FinishReason::kError);
  }
}

}  // namespace
}  // namespace attend
