// Faults at each point of a request's life: it ends, the others get what they would have got, and the engine
// goes on.
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
constexpr int32_t kUnaffected = 100, kVictim = 200, kWaiting = 300;  // tokens of their prompts

// What a request's callback heard.
struct Answer {
  std::vector<int32_t> tokens;
  std::vector<FinishReason> ends;
  bool operator==(const Answer&) const = default;
};

// Fails when it is asked for the mask of its nth token.
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

// Three requests over one engine. The first is a witness that decodes from the start. The second goes through
// all of a life: its prompt takes many steps, its answer many, and since the pool is too small for both it is
// preempted in its midst. The third waits for a row.
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

  // A fault, by what it hooks into; empty: none.
  struct Fault {
    std::function<void(int num_outputs)> on_unaffected =
        {};  // on the engine's thread, with an output of the witness
    std::function<void(int num_outputs)> on_victim = {};
    std::shared_ptr<TokenMask> mask = {};  // the victim's
  };

  // The ids of what is submitted next: victim, waiting.
  RequestId victim_id() const { return victim_id_; }
  RequestId waiting_id() const { return waiting_id_; }

  std::map<int32_t, Answer> run(const Fault& fault) {
    std::map<int32_t, Answer> answers;
    const auto listen = [&](int32_t who, const std::function<void(int)>& then) {
      return [&answers, who, then](const RequestOutput& output) {
        Answer& answer = answers[who];
        answer.tokens.insert(answer.tokens.end(), output.token_ids.begin(), output.token_ids.end());
        if (output.finished()) answer.ends.push_back(output.finish_reason);
        if (then && !output.token_ids.empty()) then(static_cast<int>(answer.tokens.size()));
      };
    };
    engine_.pause();
    const auto submit = [&](GenerationRequest wanted, OutputCallback callback) {
      wanted.cache_salt = std::to_string(num_runs_);  // nothing is cached yet
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

  // All but one are what they were, and the one ended once, for this reason unless it was through before.
  static void expect_one_ended(const std::map<int32_t, Answer>& undisturbed,
                               std::map<int32_t, Answer> answers, int32_t who, FinishReason reason) {
    const Answer& whole = undisturbed.at(who);
    const Answer ended = answers.at(who);
    ASSERT_EQ(ended.ends.size(), 1u);
    EXPECT_TRUE(ended.ends == whole.ends || ended.ends[0] == reason);
    ASSERT_LE(ended.tokens.size(), whole.tokens.size());
    EXPECT_TRUE(std::equal(ended.tokens.begin(), ended.tokens.end(), whole.tokens.begin()));
    answers[who] = whole;
    EXPECT_EQ(answers, undisturbed);
  }

  AsyncEngine engine_{config()};

 private:
  int num_runs_ = 0;
  std::atomic<RequestId> victim_id_ = 0, waiting_id_ = 0;
};

TEST_F(PlantedFaults, AbortByAnotherThreadAtAnyPointEndsOneRequest) {
  const auto undisturbed = run({});
  ASSERT_GT(engine_.metrics().num_preemptions, 0) << "the victim is to be preempted";
  int num_aborted_before_tokens = 0, num_aborted_within = 0;
  for (const int32_t who : {kVictim, kWaiting})
    for (int point = 1; point < kUnaffectedTokens; point += 3) {
      const auto abort_at = [&](int num_outputs) {
        if (num_outputs != point) return;
        std::thread([&] { engine_.abort(who == kVictim ? victim_id() : waiting_id()); }).join();
      };
      const auto answers = run({.on_unaffected = abort_at});
      SCOPED_TRACE(testing::Message() << "request " << who << " at output " << point << " of the witness");
      expect_one_ended(undisturbed, answers, who, FinishReason::kAbort);
      const size_t num_tokens = answers.at(who).tokens.size();
      num_aborted_before_tokens += num_tokens == 0 ? 1 : 0;
      num_aborted_within += num_tokens > 0 && num_tokens < undisturbed.at(who).tokens.size() ? 1 : 0;
    }
  EXPECT_GT(num_aborted_before_tokens, 3);
  EXPECT_GT(num_aborted_within, 3);
}

TEST_F(PlantedFaults, CallbackThatThrowsAtAnyOutputEndsItsRequest) {
  const auto undisturbed = run({});
  for (int point = 1; point <= kVictimTokens; point += point == 1 || point + 5 > kVictimTokens ? 1 : 4) {
    const auto throw_at = [&](int num_outputs) {
      if (num_outputs == point) throw std::runtime_error("the client is gone");
    };
    auto answers = run({.on_victim = throw_at});
    SCOPED_TRACE(testing::Message() << "at output " << point);
    EXPECT_EQ(static_cast<int>(answers.at(kVictim).tokens.size()), point) << "it hears nothing more";
    answers[kVictim] = undisturbed.at(kVictim);
    EXPECT_EQ(answers, undisturbed);
  }
}

TEST_F(PlantedFaults, MaskThatFailsAtAnyTokenEndsItsRequest) {
  const auto undisturbed = run({});
  for (int num_good = 0; num_good < kVictimTokens; num_good += 5) {
    SCOPED_TRACE(testing::Message() << "after " << num_good << " tokens");
    const auto answers = run({.mask = std::make_shared<FailingMask>(num_good)});
    EXPECT_EQ(static_cast<int>(answers.at(kVictim).tokens.size()), num_good);
    expect_one_ended(undisturbed, answers, kVictim, FinishReason::kError);
  }
}

}  // namespace
}  // namespace attend
