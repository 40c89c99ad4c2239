#include "attend/attention/forward_batch.h"

#include <gtest/gtest.h>

namespace attend {
namespace {

TEST(PhaseOf, MapsModesToPrefillAndDecode) {
  EXPECT_EQ(to_phase(ForwardMode::kExtend), Phase::kPrefill);
  EXPECT_EQ(to_phase(ForwardMode::kMixed), Phase::kPrefill);
  EXPECT_EQ(to_phase(ForwardMode::kDraftExtend), Phase::kPrefill);
  EXPECT_EQ(to_phase(ForwardMode::kDecode), Phase::kDecode);
  EXPECT_EQ(to_phase(ForwardMode::kTargetVerify), Phase::kDecode);
  EXPECT_EQ(to_phase(ForwardMode::kIdle), Phase::kDecode);
}

}  // namespace
}  // namespace attend
