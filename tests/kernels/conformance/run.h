// Conformance suite of the attention and MLA families: runs an implementation over cases and compares it with
// the float64 reference. A failing case is reported as a C++ literal.
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

// Implementation under test; writes args.out and args.lse. The built case provides what else an
// implementation needs: the limits of its plan (plan_limits(built.spec)), values and pages.
using AttentionFn = std::function<void(const kernels::AttentionArgs& args, const BuiltCase& built)>;
using MlaFn = std::function<void(const kernels::MlaArgs& args, const BuiltCase& built)>;

// Returns one line about what is wrong with an implementation in one case, or an empty string. Includes the
// message of an exception.
//
// Checks that the result is within its tolerance, that nothing else was written, and that a second call
// returns the same bits.
std::string conformance_problem(const AttentionFn& kernel, const AttentionCase& c);
std::string conformance_problem(const MlaFn& kernel, const AttentionCase& c);

// Checks that results keep their bits if the pages of the pool are permuted.
std::string page_order_problem(const AttentionFn& kernel, const AttentionCase& c);

// Checks with SplitRule::kFixed that a token's bits depend only on its own sequence: not on other requests,
// nor on the number of its tokens in one step.
std::string batch_invariance_problem(const AttentionFn& kernel, const AttentionCase& c);

// Runs each of the checks above over cases and reports failures of the running test.
void run_conformance(const AttentionFn& kernel, std::span<const AttentionCase> cases);
void run_mla_conformance(const MlaFn& kernel, std::span<const AttentionCase> cases);
void run_page_order(const AttentionFn& kernel, std::span<const AttentionCase> cases);
void run_batch_invariance(const AttentionFn& kernel, std::span<const AttentionCase> cases);

}  // namespace attend::conformance
