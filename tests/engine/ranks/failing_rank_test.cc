// A rank fails or hangs at each phase of a step. All requests end with an error, later ones too, and nothing
// waits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "attend/base/error.h"
#include "attend/engine/async_engine.h"
#include "tests/support/failing_backend.h"

namespace attend {
namespace {

using test::Fault;
using testing::HasSubstr;

constexpr std::chrono::milliseconds kPatience{60000};

class FailingRanks : public testing::Test {
 protected:
  static constexpr int kRanks = 4;

  EngineConfig config() {
    EngineConfig config;
    config.model_path = ATTEND_SOURCE_DIR "/tests/goldens/qwen3-yarn";
    config.tp_size = kRanks;
    config.max_total_tokens = 512;
    config.backends = {&entry_, 1};
    config.backend_options.attention_backend = "failing";
    return config;
  }
  // Submits requests, and returns the messages of their ends.
  static std::vector<std::string> ask(AsyncEngine& engine, int num_requests) {
    std::vector<std::string> ends;
    for (int i = 0; i < num_requests; ++i)
      engine.submit(GenerationRequest{.prompt = std::vector<int32_t>{5, 6, 7 + i},
                                      .params = {.max_new_tokens = 8, .ignore_eos = true}},
                    [&](const RequestOutput& output) {
                      if (output.finished())
                        ends.push_back(output.finish_reason == FinishReason::kError
                                           ? std::string(output.message)
                                           : "no error");
                    });
    EXPECT_TRUE(engine.drain(kPatience));
    return ends;
  }

  const BackendEntry entry_ = test::failing_backend();
};

TEST_F(FailingRanks, ServeWithoutAFault) {
  test::plant({});
  AsyncEngine engine(config());
  EXPECT_EQ(ask(engine, 2), std::vector<std::string>(2, "no error"));
  EXPECT_EQ(engine.failure(), "");
}

TEST_F(FailingRanks, EndAllRequestsAtEachPhase) {
  using Phase = Fault::Phase;
  for (const Phase phase : {Phase::kPlan, Phase::kFirstLayer, Phase::kLastLayer})
    for (const int step : {0, 3})  // of the prompts, and of decoding
      for (const int rank : {0, 2, kRanks - 1}) {
        SCOPED_TRACE(testing::Message()
                     << "phase " << static_cast<int>(phase) << " of step " << step << " on rank " << rank);
        test::plant({.phase = phase, .rank = rank, .step = step});
        AsyncEngine engine(config());
        const std::string reason = "rank " + std::to_string(rank) + ": planted";
        for (const std::string& end : ask(engine, 3)) EXPECT_THAT(end, HasSubstr(reason));
        EXPECT_EQ(engine.failure(), reason);
        const std::vector<std::string> later = ask(engine, 1);
        ASSERT_EQ(later.size(), 1u);
        EXPECT_THAT(later[0], HasSubstr(reason));
        EXPECT_EQ(engine.metrics().num_used_tokens, 0);
      }
}

TEST_F(FailingRanks, AreFoundByTheWatchdog) {
  for (const int rank : {0, 1}) {
    SCOPED_TRACE(rank);
    test::plant({.phase = Fault::Phase::kFirstLayer, .rank = rank, .step = 1, .hangs = true});
    EngineConfig watched = config();
    watched.watchdog_timeout = std::chrono::milliseconds(300);
    AsyncEngine engine(watched);
    for (const std::string& end : ask(engine, 2))
      EXPECT_THAT(end, HasSubstr("timed out after 300 ms; missing: rank " + std::to_string(rank)));
    EXPECT_THAT(engine.failure(), HasSubstr("timed out"));
  }
}

}  // namespace
}  // namespace attend
