// Attention steps do not allocate memory.
#include <gtest/gtest.h>

#include "attend/kernels/attention/attention.h"
#include "attend/kernels/metadata/metadata.h"
#include "tests/kernels/cpu/small_step.h"
#include "tests/support/count_allocations.h"

namespace attend::kernels {
namespace {

using testing_support::num_allocations;

TEST(AttentionStep, AllocatesNothingAfterThePlanIsMade) {
  const SmallStep step({}, {{.sequence = 0, .seqlen_q = 40, .seqlen_kv = 300},
                            {.sequence = 1, .seqlen_q = 1, .seqlen_kv = 3000}});
  for (SplitRule rule : {SplitRule::kNone, SplitRule::kFixed, SplitRule::kBalanced}) {
    AttentionPlanLimits limits = step.limits();
    limits.split_rule = rule;
    limits.num_workers = 4;
    AttentionPlan plan(limits, Device{});
    const AttentionArgs args = step.args();
    Stream stream;
    plan.plan(args.batch, args.attention_mask, stream);
    attention(args, plan, stream);  // starts the thread team
    const int64_t before = num_allocations();
    plan.plan(args.batch, args.attention_mask, stream);
    attention(args, plan, stream);
    EXPECT_EQ(num_allocations(), before);
    EXPECT_FALSE(plan.work().items.empty());
  }
}

}  // namespace
}  // namespace attend::kernels
