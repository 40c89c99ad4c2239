// Packed position in a pipeline (kernels/common/cuda/sm90/packed_pipeline_state.h).
#include "attend/kernels/common/cuda/sm90/packed_pipeline_state.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace attend::kernels::cuda::sm90 {
namespace {

// Compares with a counter over several wraparounds.
template <uint32_t kStages, uint32_t kRounds, uint32_t kOther>
void expect_counted() {
  constexpr uint32_t kNumSteps = 100, kBefore = 2;
  PackedPipelineState<kStages, kRounds> state;
  for (uint32_t count = 0; count < kNumSteps; ++count, state.advance()) {
    const auto expect_at = [](const auto& at, uint32_t stages, uint32_t position) {
      EXPECT_EQ(at.stage(), static_cast<int>(position % stages)) << position << " of " << stages;
      EXPECT_EQ(at.parity(), position / stages % 2) << position << " of " << stages;
    };
    expect_at(state, kStages, count);
    expect_at(state.template with_stages<kOther>(), kOther, count);
    for (uint32_t before = 0; before <= std::min(kBefore, count); ++before)
      expect_at(state.before(before), kStages, count - before);
  }
}

TEST(PackedPipelineState, MatchesACounter) {
  expect_counted<1, count_wrap(1), 2>();
  expect_counted<2, count_wrap(2), 4>();
  expect_counted<4, count_wrap(4), 2>();
  expect_counted<3, count_wrap(3), 1>();
  // K in three stages and V in two.
  expect_counted<3, 12, 2>();
  expect_counted<2, 12, 3>();
}

}  // namespace
}  // namespace attend::kernels::cuda::sm90
