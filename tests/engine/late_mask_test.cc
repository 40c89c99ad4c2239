// Masks that are computed elsewhere: until one is ready, its request sits out, and others continue.
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <vector>

#include "attend/engine/engine.h"

namespace attend {
namespace {

// Allows every token. Its mask is ready if `gate` is open.
class GatedMask : public TokenMask {
 public:
  explicit GatedMask(std::shared_ptr<std::atomic<bool>> gate) : gate_(std::move(gate)) {}
  bool fill(std::span<uint32_t>) override {
    EXPECT_TRUE(ready()) << "a step waits for it";
    return false;
  }
  void accept(int32_t) override {}
  bool ready() override { return *gate_; }
  std::shared_ptr<TokenMask> fork() const override { return std::make_shared<GatedMask>(gate_); }

 private:
  std::shared_ptr<std::atomic<bool>> gate_;
};

struct Counts {
  std::map<RequestId, int> num_tokens;
  std::map<RequestId, FinishReason> reasons;
  OutputSink sink = [this](const RequestOutput& output) {
    num_tokens[output.id] += static_cast<int>(output.token_ids.size());
    if (output.finished()) reasons[output.id] = output.finish_reason;
  };
};

EngineConfig tiny() {
  EngineConfig config;
  config.model_path = ATTEND_SOURCE_DIR "/models/attend-tiny";
  return config;
}

SamplingParams tokens(int num) { return {.max_new_tokens = num, .ignore_eos = true}; }

TEST(LateMask, LetsItsRequestSitOutWhileOthersContinue) {
  Engine engine(tiny());
  const auto gate = std::make_shared<std::atomic<bool>>(true);
  const RequestId masked =
      engine.submit({.prompt = "sun", .params = tokens(40), .mask = std::make_shared<GatedMask>(gate)});
  Counts counts;
  while (counts.num_tokens[masked] < 3) ASSERT_TRUE(engine.step(counts.sink));
  *gate = false;
  const RequestId plain = engine.submit("moon", tokens(30));
  while (!counts.reasons.contains(plain)) ASSERT_TRUE(engine.step(counts.sink));
  EXPECT_EQ(counts.num_tokens[plain], 30);
  EXPECT_EQ(counts.num_tokens[masked], 3) << "it has no mask for the next token";
  *gate = true;
  while (engine.step(counts.sink)) {
  }
  EXPECT_EQ(counts.num_tokens[masked], 40);
  EXPECT_EQ(counts.reasons[masked], FinishReason::kLength);
}

TEST(LateMask, LeavesTheEngineFreeForAborts) {
  Engine engine(tiny());
  const auto gate = std::make_shared<std::atomic<bool>>(true);
  const RequestId masked =
      engine.submit({.prompt = "sun", .params = tokens(40), .mask = std::make_shared<GatedMask>(gate)});
  Counts counts;
  ASSERT_TRUE(engine.step(counts.sink));
  *gate = false;
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(engine.step(counts.sink)) << "the request is not finished";
  EXPECT_TRUE(engine.abort(masked, counts.sink));
  EXPECT_EQ(counts.reasons[masked], FinishReason::kAbort);
  EXPECT_FALSE(engine.step(counts.sink));
  engine.check_memory();
}

// Preempted requests compute their tokens again, and may have to wait for their mask before they are
// admitted.
TEST(LateMask, WaitsAcrossPreemptions) {
  EngineConfig config = tiny();
  config.schedule.conservativeness = 0.0;
  config.max_total_tokens = 384;
  Engine engine(config);
  const auto gate = std::make_shared<std::atomic<bool>>(true);
  std::vector<RequestId> ids;
  for (int i = 0; i < 8; ++i)
    ids.push_back(
        engine.submit({.prompt = "sun", .params = tokens(100), .mask = std::make_shared<GatedMask>(gate)}));
  Counts counts;
  for (int i = 0; counts.reasons.size() < ids.size(); ++i) {
    *gate = i % 3 != 0;
    engine.step(counts.sink);
  }
  EXPECT_GT(engine.num_preemptions(), 0);
  for (const RequestId id : ids) EXPECT_EQ(counts.num_tokens[id], 100);
  engine.check_memory();
}

}  // namespace
}  // namespace attend
