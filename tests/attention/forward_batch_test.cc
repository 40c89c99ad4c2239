#include "attend/attention/forward_batch.h"

#include <gtest/gtest.h>

namespace attend {
namespace {

TEST(PhaseOf, PrefillsWhatBringsManyTokensAndDecodesTheRest) {
  EXPECT_EQ(phase_of(ForwardMode::kExtend), Phase::kPrefill);
  EXPECT_EQ(phase_of(ForwardMode::kMixed), Phase::kPrefill);
  EXPECT_EQ(phase_of(ForwardMode::kDraftExtend), Phase::kPrefill);
  EXPECT_EQ(phase_of(ForwardMode::kDecode), Phase::kDecode);
  EXPECT_EQ(phase_of(ForwardMode::kTargetVerify), Phase::kDecode);
  EXPECT_EQ(phase_of(ForwardMode::kIdle), Phase::kDecode);
}

}  // namespace
}  // namespace attend
