// The conformance suite of the attention and MLA families: runs an implementation over cases and compares it
// to the float64 reference. A failing case is reported as the literal that makes it.
//
//   TEST(MyKernel, ConformsToTheReference) {
//     run_conformance([](const AttentionArgs& args, const BuiltCase& built) { my_kernel(args); },
//                     conformance_cases());
//   }
#pragma once

#include <functional>
#include <span>
#include <string>

#include "tests/kernels/conformance/cases/attention_case.h"
#include "tests/kernels/conformance/cases/built_case.h"

namespace attend::conformance {

// Writes args.out and args.lse. The built case tells what else an implementation may want: the limits of its
// plan (plan_limits(built.spec)), its values, its pages.
using AttentionFn = std::function<void(const kernels::AttentionArgs& args, const BuiltCase& built)>;
using MlaFn = std::function<void(const kernels::MlaArgs& args, const BuiltCase& built)>;

// What is wrong with an implementation in one case, in a line; empty when nothing is. What it throws is told
// too.
//
// The result is within its tolerance, nothing else was written, and a second call gives the same bits.
std::string conformance_problem(const AttentionFn& kernel, const AttentionCase& c);
std::string conformance_problem(const MlaFn& kernel, const AttentionCase& c);

// The results keep their bits when the pages of the pool are permuted.
std::string page_order_problem(const AttentionFn& kernel, const AttentionCase& c);

// Under SplitRule::kFixed the bits of a token depend on its own sequence alone: not on the other requests,
// nor on how many of its tokens come in one step.
std::string batch_invariance_problem(const AttentionFn& kernel, const AttentionCase& c);

// Each of the above over cases, as failures of the running test.
void run_conformance(const AttentionFn& kernel, std::span<const AttentionCase> cases);
void run_mla_conformance(const MlaFn& kernel, std::span<const AttentionCase> cases);
void run_page_order(const AttentionFn& kernel, std::span<const AttentionCase> cases);
void run_batch_invariance(const AttentionFn& kernel, std::span<const AttentionCase> cases);

}  // namespace attend::conformance
