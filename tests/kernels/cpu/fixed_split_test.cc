// SplitRule::kFixed: a token's bits depend only on its own sequence.
#include <gtest/gtest.h>

#include "attend/kernels/attention/cpu/attention.h"
#include "tests/kernels/cpu/small_step.h"

namespace attend::kernels {
namespace {

using Results = std::vector<std::vector<uint8_t>>;

// Results of the queries of request `r`.
Results run(SmallStep& step, int r, const AttentionPlanLimits& limits, cpu::Isa isa) {
  const AttentionArgs args = step.args();
  AttentionPlan plan(limits, Device{});
  Stream stream;
  plan.plan(args.batch, args.attention_mask, stream);
  step.poison_results();
  cpu::attention(args, plan, isa);
  Results results;
  const auto request = static_cast<size_t>(r);
  for (int j = 0; j < args.batch.cu_seqlen_q[request + 1] - args.batch.cu_seqlen_q[request]; ++j)
    results.push_back(step.result(r, j));
  return results;
}

AttentionPlanLimits fixed_limits(const SmallStep& step, int num_workers) {
  AttentionPlanLimits limits = step.limits();
  limits.split_rule = SplitRule::kFixed;
  limits.split_tokens = 128;
  limits.num_workers = num_workers;
  return limits;
}

Results run_fixed(SmallStep& step, int r, cpu::Isa isa, int num_workers = 2) {
  return run(step, r, fixed_limits(step, num_workers), isa);
}

class FixedSplits : public testing::TestWithParam<std::tuple<DType, DType, AttentionMask>> {
 protected:
  StepConfig config() const {
    const auto& [q_dtype, kv_dtype, attention_mask] = GetParam();
    return {.q_dtype = q_dtype, .kv_dtype = kv_dtype, .attention_mask = attention_mask};
  }
};

TEST_P(FixedSplits, ProduceTheSameBitsInExtendVerifyAndDecode) {
  SmallStep extend(config(), {{.seqlen_q = 300, .seqlen_kv = 300}});
  SmallStep verify(config(), {{.seqlen_q = 8, .seqlen_kv = 300}});
  const std::vector<int> positions = {0, 1, 63, 64, 127, 128, 129, 299};
  std::vector<SmallStep> decodes;
  for (int position : positions)
    decodes.emplace_back(config(), std::vector{StepRequest{.seqlen_kv = position + 1}});
  for (cpu::Isa isa : cpu::available_isas()) {
    const Results extended = run_fixed(extend, 0, isa);
    const Results verified = run_fixed(verify, 0, isa);
    for (size_t j = 0; j < 8; ++j) EXPECT_EQ(verified[j], extended[292 + j]) << isa << " verify " << j;
    for (size_t i = 0; i < positions.size(); ++i)
      EXPECT_EQ(run_fixed(decodes[i], 0, isa)[0], extended[static_cast<size_t>(positions[i])])
          << isa << " position " << positions[i];
  }
}

TEST_P(FixedSplits, ProduceTheSameBitsInAnyBatchWithAnyWorkers) {
  const StepRequest request{.sequence = 3, .seqlen_q = 5, .seqlen_kv = 400};
  SmallStep single(config(), {request});
  SmallStep batch(config(), {{.sequence = 0, .seqlen_q = 40, .seqlen_kv = 100},
                             {.sequence = 1, .seqlen_q = 1, .seqlen_kv = 700},
                             request,
                             {.sequence = 2, .seqlen_q = 1, .seqlen_kv = 10}});
  for (cpu::Isa isa : cpu::available_isas()) {
    const Results expected = run_fixed(single, 0, isa, 1);
    for (int num_workers : {1, 2, 5, 32}) {
      EXPECT_EQ(run_fixed(single, 0, isa, num_workers), expected) << isa << ' ' << num_workers;
      EXPECT_EQ(run_fixed(batch, 2, isa, num_workers), expected) << isa << ' ' << num_workers;
    }
  }
}

TEST_P(FixedSplits, ProduceTheSameBitsWithAndWithoutSpaceForPartialResults) {
  SmallStep step(config(), {{.seqlen_q = 2, .seqlen_kv = 600}});
  for (cpu::Isa isa : cpu::available_isas()) {
    AttentionPlanLimits limits = fixed_limits(step, 8);
    const Results whole = run(step, 0, limits, isa);
    limits.max_kv_tokens *= 10;
    EXPECT_EQ(run(step, 0, limits, isa), whole) << isa;
  }
}

INSTANTIATE_TEST_SUITE_P(Dtypes, FixedSplits,
                         testing::Values(std::tuple(DType::kF32, DType::kF32, AttentionMask{}),
                                         std::tuple(DType::kBF16, DType::kBF16, AttentionMask{}),
                                         std::tuple(DType::kBF16, DType::kBF16,
                                                    AttentionMask{.window_left = 200}),
                                         std::tuple(DType::kF16, DType::kF16, AttentionMask{.chunk = 150}),
                                         std::tuple(DType::kBF16, DType::kF8E4M3, AttentionMask{})));

TEST(AnySplitRule, IsDeterministicForAPaddedStep) {
  SmallStep step(
      {.q_dtype = DType::kBF16, .kv_dtype = DType::kBF16},
      {{.sequence = 0, .seqlen_q = 30, .seqlen_kv = 200}, {.sequence = 1, .seqlen_q = 1, .seqlen_kv = 1500}});
  for (cpu::Isa isa : cpu::available_isas())
    for (SplitRule rule : {SplitRule::kNone, SplitRule::kFixed, SplitRule::kBalanced}) {
      AttentionPlanLimits limits = step.limits();
      limits.split_rule = rule;
      limits.num_workers = 6;
      const Results first = run(step, 1, limits, isa);
      for (int round = 0; round < 5; ++round) EXPECT_EQ(run(step, 1, limits, isa), first) << isa;
    }
}

}  // namespace
}  // namespace attend::kernels
