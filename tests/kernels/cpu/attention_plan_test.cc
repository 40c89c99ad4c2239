#include "attend/kernels/attention/attention_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "attend/kernels/attention/attention.h"
#include "attend/kernels/metadata/metadata.h"
#include "tests/kernels/cpu/small_step.h"

namespace attend::kernels {
namespace {

using testing::HasSubstr;

// Returns the message of the Error that fn throws.
template <class Fn>
std::string error_text(const Fn& fn) {
  try {
    fn();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(AttentionPlan, FillsInTheNumberOfWorkers) {
  AttentionPlanLimits limits = SmallStep({}, {{}}).limits();
  limits.num_workers = 0;
  EXPECT_GE(AttentionPlan(limits, Device{}).limits().num_workers, 1);
}

TEST(AttentionPlan, HasADefaultSplitSize) {
  AttentionPlanLimits limits = SmallStep({}, {{}}).limits();
  limits.split_rule = SplitRule::kFixed;
  limits.split_tokens = 0;
  EXPECT_EQ(AttentionPlan(limits, Device{}).limits().split_tokens, default_split_tokens(Device{}));
  limits.split_tokens = 128;
  EXPECT_EQ(AttentionPlan(limits, Device{}).limits().split_tokens, 128);
}

TEST(AttentionPlan, StatesTheBytesOfItsWorkspace) {
  AttentionPlanLimits limits = SmallStep({}, {{.seqlen_q = 4, .seqlen_kv = 4096}}).limits();
  for (SplitRule rule : {SplitRule::kNone, SplitRule::kFixed, SplitRule::kBalanced}) {
    limits.split_rule = rule;
    const AttentionPlan plan(limits, Device{});
    const size_t partial_bytes = plan.partial_out().num_bytes() + plan.partial_lse().num_bytes();
    const size_t list_bytes =
        plan.work().items.capacity() * sizeof(WorkItem) + plan.work().merges.capacity() * sizeof(MergeItem);
    EXPECT_GT(AttentionPlan::num_bytes(limits), partial_bytes + list_bytes);
    limits.num_workers += 1;
    const size_t with_one_more = AttentionPlan::num_bytes(limits);
    limits.num_workers -= 1;
    EXPECT_GT(with_one_more, AttentionPlan::num_bytes(limits)) << "each worker has scratch";
  }
}

TEST(AttentionPlan, RejectsABatchBeyondItsLimits) {
  const SmallStep step({}, {{.seqlen_q = 3, .seqlen_kv = 50}, {.seqlen_q = 1, .seqlen_kv = 20}});
  Stream stream;
  const auto message = [&](auto change) {
    AttentionPlanLimits limits = step.limits();
    change(limits);
    AttentionPlan plan(limits, Device{});
    return error_text([&] { plan.plan(step.batch(), {}, stream); });
  };
  EXPECT_EQ(message([](auto&) {}), "nothing was thrown");
  EXPECT_THAT(message([](auto& limits) { limits.max_reqs = 1; }), HasSubstr("2 requests"));
  EXPECT_THAT(message([](auto& limits) { limits.max_tokens = 3; }), HasSubstr("4 tokens"));
  EXPECT_THAT(message([](auto& limits) { limits.max_kv_tokens = 69; }), HasSubstr("70 KV tokens"));
}

TEST(AttentionPlan, NamesTheRequestWithInvalidLengths) {
  AttentionPlan plan({.max_reqs = 2,
                      .max_tokens = 8,
                      .max_kv_tokens = 100,
                      .num_q_heads = 2,
                      .num_kv_heads = 2,
                      .head_dim_v = 64,
                      .num_workers = 2},
                     Device{});
  Stream stream;
  const auto message = [&](std::vector<int32_t> cu_seqlen_q, std::vector<int32_t> seqlen_kv,
                           int max_seqlen_q) {
    return error_text([&] {
      plan.plan({.cu_seqlen_q = cu_seqlen_q, .seqlen_kv = seqlen_kv, .max_seqlen_q = max_seqlen_q}, {},
                stream);
    });
  };
  EXPECT_EQ(message({0, 3, 4}, {50, 20}, 3), "nothing was thrown");
  EXPECT_EQ(message({0, 3, 4}, {50, 20}, 8), "nothing was thrown") << "max_seqlen_q is an upper bound";
  EXPECT_EQ(message({0, 0, 0}, {0, 0}, 0), "nothing was thrown") << "requests may be empty";
  EXPECT_EQ(message({}, {}, 0), "nothing was thrown") << "a batch may be";
  EXPECT_THAT(message({0, 3, 4}, {50, -20}, 3),
              HasSubstr("request 1 has seqlen_kv -20: expected none below 0"));
  EXPECT_THAT(message({0, 3, 2}, {50, 20}, 3), HasSubstr("cu_seqlen_q falls from 3 to 2 at request 1"));
  EXPECT_THAT(message({-3, 0, 1}, {50, 20}, 3), HasSubstr("cu_seqlen_q[0] is -3"));
  EXPECT_THAT(message({0, 1, 5}, {50, 20}, 3),
              HasSubstr("request 1 has 4 new tokens: expected at most max_seqlen_q 3"));
  EXPECT_THAT(message({0, 4}, {50, 20}, 4), HasSubstr("cu_seqlen_q of 2 entries: expected 3 for 2 requests"));
}

TEST(AttentionPlan, RejectsUnsupportedLimits) {
  const auto message = [](auto change) {
    AttentionPlanLimits limits = SmallStep({}, {{}}).limits();
    change(limits);
    return error_text([&] { AttentionPlan plan(limits, Device{}); });
  };
  EXPECT_THAT(message([](auto& limits) { limits.num_q_heads = 7; }), HasSubstr("num_q_heads 7"));
  EXPECT_THAT(message([](auto& limits) { limits.split_tokens = 100; }), HasSubstr("multiple of 64"));
  EXPECT_THAT(message([](auto& limits) { limits.num_workers = -1; }), HasSubstr("num_workers -1"));
  EXPECT_THAT(message([](auto& limits) { limits.max_reqs = -1; }), HasSubstr("max_reqs -1"));
}

TEST(AttentionPlan, RejectsBatchesOtherThanThePlanned) {
  const SmallStep step({.attention_mask = {.window_left = 8}}, {{.seqlen_q = 3, .seqlen_kv = 50}});
  AttentionArgs args = step.args();
  AttentionPlan plan(step.limits(), Device{});
  Stream stream;
  EXPECT_THAT(error_text([&] { attention(args, plan, stream); }), HasSubstr("plan was made for 0"));
  plan.plan(step.batch(), {.window_left = 4}, stream);
  EXPECT_THAT(error_text([&] { attention(args, plan, stream); }), HasSubstr("window_left 8"));
  plan.plan(step.batch(), {}, stream);
  EXPECT_EQ(error_text([&] { attention(args, plan, stream); }), "nothing was thrown")
      << "a plan without a window contains every window's keys";
  AttentionPlanLimits other = step.limits();
  other.num_kv_heads = 4;
  AttentionPlan other_plan(other, Device{});
  EXPECT_THAT(error_text([&] { attention(args, other_plan, stream); }), HasSubstr("2 KV heads"));
}

}  // namespace
}  // namespace attend::kernels
