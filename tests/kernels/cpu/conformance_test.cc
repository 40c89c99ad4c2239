// Conformance suite of the CPU kernels. Each case and its expected result are computed once for all
// instruction sets.
#include <gtest/gtest.h>

#include "attend/kernels/attention/cpu/attention.h"
#include "tests/kernels/conformance/cases/cases.h"
#include "tests/kernels/conformance/run.h"
#include "tests/kernels/conformance/tolerance.h"

namespace attend::kernels::cpu {
namespace {

using conformance::AttentionCase;
using conformance::BuiltCase;

void run_kernel(const AttentionArgs& args, AttentionPlan& plan, Isa isa) { attention(args, plan, isa); }
void run_kernel(const MlaArgs& args, AttentionPlan& plan, Isa isa) { mla(args, plan, isa); }

template <class Args>
void run_planned(const Args& args, const BuiltCase& built, Isa isa) {
  check(args);
  AttentionPlan plan(conformance::plan_limits(built.spec), Device{});
  Stream stream;
  plan.plan(args.batch, args.attention_mask, stream);
  run_kernel(args, plan, isa);
}

template <class Args>
void expect_conforms(BuiltCase& built, const Args& args) {
  const conformance::Expected expected = conformance::expect(args);
  for (Isa isa : available_isas()) {
    built.poison_results();
    run_planned(args, built, isa);
    if (const auto problem = conformance::mismatch(expected, args.out, args.lse))
      ADD_FAILURE() << isa << ": " << *problem << "\n  " << built.spec;
    EXPECT_TRUE(built.gaps_untouched()) << isa << ": wrote between or around the results\n  " << built.spec;
    const auto first = built.result_bytes();
    built.poison_results();
    run_planned(args, built, isa);
    EXPECT_EQ(built.result_bytes(), first) << isa << ": a second call gave other bits\n  " << built.spec;
  }
}

TEST(CpuKernels, ConformToTheReferenceOnEveryInstructionSet) {
  for (const AttentionCase& c : conformance::conformance_cases()) {
    BuiltCase built(c);
    expect_conforms(built, built.args);
  }
}

TEST(CpuKernels, ConformToTheMlaReferenceOnEveryInstructionSet) {
  for (const AttentionCase& c : conformance::mla_conformance_cases()) {
    BuiltCase built(c);
    expect_conforms(built, built.mla_args);
  }
}

TEST(CpuKernels, ConformToTheMlaReferenceOverScaledRows) {
  for (const AttentionCase& c : conformance::scaled_row_cases()) {
    BuiltCase built(c);
    expect_conforms(built, built.mla_args);
  }
}

void run_best(const AttentionArgs& args, const BuiltCase& built) { run_planned(args, built, detect_isa()); }

TEST(CpuKernels, DoNotDependOnTheOrderOfPages) {
  conformance::run_page_order(run_best, conformance::page_order_cases());
}

TEST(CpuKernels, DoNotDependOnTheBatchUnderFixedSplits) {
  conformance::run_batch_invariance(run_best, conformance::batch_invariance_cases());
}

}  // namespace
}  // namespace attend::kernels::cpu
