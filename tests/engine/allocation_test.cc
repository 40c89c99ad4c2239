// Decode steps of a warm engine allocate no heap memory.
#include <gtest/gtest.h>

#include <vector>

#include "attend/engine/engine.h"
#include "tests/support/count_allocations.h"

namespace attend {
namespace {

using testing_support::num_allocations;

void expect_warm_steps_do_not_allocate(const SamplingParams& params, bool overlap = false) {
#ifndef NDEBUG
  GTEST_SKIP() << "in builds with assertions every step checks the allocator's invariants, which allocates";
#endif
  EngineConfig config;
  config.model_path = ATTEND_SOURCE_DIR "/models/attend-tiny";
  config.max_running_requests = 16;
  config.context_length = 512;
  config.overlap_schedule = overlap;
  Engine engine(config);
  for (int32_t request = 0; request < 16; ++request)
    engine.submit(std::vector<int32_t>(static_cast<size_t>(5 + 9 * request), 40 + request), params);
  const OutputSink ignore = [](const RequestOutput&) {};
  // The first steps include prefill. In the measured steps, requests still allocate pages.
  for (int step = 0; step < 40; ++step) ASSERT_TRUE(engine.step(ignore));
  const int64_t before = num_allocations();
  for (int step = 0; step < 80; ++step) ASSERT_TRUE(engine.step(ignore));
  EXPECT_EQ(num_allocations() - before, 0);
}

TEST(EngineStep, AllocatesNothingWhileItDecodesGreedily) {
  expect_warm_steps_do_not_allocate({.max_new_tokens = 200, .ignore_eos = true});
}

TEST(EngineStep, AllocatesNothingWhileStepsOverlap) {
  expect_warm_steps_do_not_allocate({.max_new_tokens = 200, .ignore_eos = true}, /*overlap=*/true);
}

TEST(EngineStep, AllocatesNothingWhileItSamples) {
  expect_warm_steps_do_not_allocate(
      {.max_new_tokens = 200, .temperature = 1.0f, .top_k = 50, .top_p = 0.9f, .ignore_eos = true});
}

}  // namespace
}  // namespace attend
