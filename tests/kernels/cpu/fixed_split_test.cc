// SplitRule::kFixed: a token's bits depend on its own sequence alone.
#include <gtest/gtest.h>

#include "attend/kernels/cpu/attention.h"
#include "tests/kernels/cpu/small_step.h"

namespace attend::kernels {
namespace {

std::vector<std::vector<uint8_t>> run(const StepConfig& config, const std::vector<StepRequest>& requests,
                                      int r, AttentionPlanLimits limits, cpu::Isa isa) {
  SmallStep step(config, requests);
  const AttentionArgs args = step.args();
  AttentionPlan plan(limits, Device{});
  Stream stream;
  plan.plan(args.batch, args.visibility, stream);
  step.poison_results();
  cpu::attention(args, plan, isa);
  std::vector<std::vector<uint8_t>> results;
  for (int j = 0; j < requests[static_cast<size_t>(r)].seqlen_q; ++j) results.push_back(step.result(r, j));
  return results;
}

AttentionPlanLimits fixed_limits(const StepConfig& config, const std::vector<StepRequest>& requests,
                                 int num_workers) {
  AttentionPlanLimits limits = SmallStep(config, requests).limits();
  limits.split_rule = SplitRule::kFixed;
  limits.split_tokens = 128;
  limits.num_workers = num_workers;
  return limits;
}

std::vector<std::vector<uint8_t>> run_fixed(const StepConfig& config,
                                            const std::vector<StepRequest>& requests, int r, cpu::Isa isa,
                                            int num_workers = 2) {
  return run(config, requests, r, fixed_limits(config, requests, num_workers), isa);
}

class FixedSplits : public testing::TestWithParam<std::tuple<DType, DType>> {
 protected:
  StepConfig config() const {
    return {.q_dtype = std::get<0>(GetParam()), .kv_dtype = std::get<1>(GetParam())};
  }
};

TEST_P(FixedSplits, GiveATokenTheSameBitsInExtendVerifyAndDecode) {
  for (const Visibility& visibility :
       {Visibility{}, Visibility{.window_left = 200}, Visibility{.chunk = 150}})
    for (cpu::Isa isa : cpu::available_isas()) {
      StepConfig step = config();
      step.visibility = visibility;
      const auto extend = run_fixed(step, {{.seqlen_q = 500, .seqlen_kv = 500}}, 0, isa);
      const auto verify = run_fixed(step, {{.seqlen_q = 8, .seqlen_kv = 500}}, 0, isa);
      for (size_t j = 0; j < 8; ++j) EXPECT_EQ(verify[j], extend[492 + j]) << isa << " verify " << j;
      for (int32_t position : {0, 1, 63, 64, 127, 128, 129, 300, 499}) {
        const auto decode = run_fixed(step, {{.seqlen_q = 1, .seqlen_kv = position + 1}}, 0, isa);
        EXPECT_EQ(decode[0], extend[static_cast<size_t>(position)]) << isa << " position " << position;
      }
    }
}

TEST_P(FixedSplits, GiveATokenTheSameBitsInAnyBatchWithAnyWorkers) {
  const StepRequest request{.sequence = 3, .seqlen_q = 5, .seqlen_kv = 1000};
  const std::vector<StepRequest> crowd = {{.sequence = 0, .seqlen_q = 40, .seqlen_kv = 300},
                                          {.sequence = 1, .seqlen_q = 1, .seqlen_kv = 2000},
                                          request,
                                          {.sequence = 2, .seqlen_q = 1, .seqlen_kv = 10}};
  for (cpu::Isa isa : cpu::available_isas()) {
    const auto alone = run_fixed(config(), {request}, 0, isa, 1);
    for (int num_workers : {1, 2, 5, 32}) {
      EXPECT_EQ(run_fixed(config(), {request}, 0, isa, num_workers), alone) << isa << ' ' << num_workers;
      EXPECT_EQ(run_fixed(config(), crowd, 2, isa, num_workers), alone) << isa << ' ' << num_workers;
    }
  }
}

TEST_P(FixedSplits, GiveTheSameBitsWhetherOrNotThereIsRoomForPartialResults) {
  const std::vector<StepRequest> requests = {{.seqlen_q = 2, .seqlen_kv = 2000}};
  for (cpu::Isa isa : cpu::available_isas()) {
    AttentionPlanLimits limits = fixed_limits(config(), requests, 8);
    const auto whole = run(config(), requests, 0, limits, isa);
    limits.max_kv_tokens *= 10;
    EXPECT_EQ(run(config(), requests, 0, limits, isa), whole) << isa;
  }
}

INSTANTIATE_TEST_SUITE_P(Dtypes, FixedSplits,
                         testing::Values(std::tuple(DType::kF32, DType::kF32),
                                         std::tuple(DType::kBF16, DType::kBF16),
                                         std::tuple(DType::kF16, DType::kF16),
                                         std::tuple(DType::kBF16, DType::kF8E4M3)));

TEST(AnySplitRule, GivesTheSamePaddedStepTheSameBits) {
  const StepConfig config{.q_dtype = DType::kBF16, .kv_dtype = DType::kBF16};
  const std::vector<StepRequest> requests = {{.sequence = 0, .seqlen_q = 30, .seqlen_kv = 400},
                                             {.sequence = 1, .seqlen_q = 1, .seqlen_kv = 3000}};
  for (cpu::Isa isa : cpu::available_isas())
    for (SplitRule rule : {SplitRule::kNone, SplitRule::kFixed, SplitRule::kBalanced}) {
      AttentionPlanLimits limits = SmallStep(config, requests).limits();
      limits.split_rule = rule;
      limits.num_workers = 6;
      const auto first = run(config, requests, 1, limits, isa);
      for (int round = 0; round < 5; ++round) EXPECT_EQ(run(config, requests, 1, limits, isa), first) << isa;
    }
}

}  // namespace
}  // namespace attend::kernels
