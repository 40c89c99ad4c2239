// Runs the suite over the reference: the cases are valid, and the reference reads no poisoned memory.
#include <gtest/gtest.h>

#include "tests/kernels/conformance/cases/cases.h"
#include "tests/kernels/conformance/merge_suite.h"
#include "tests/kernels/conformance/run.h"

namespace attend::conformance {
namespace {

void reference(const kernels::AttentionArgs& args, const BuiltCase&) { kernels::reference::attention(args); }
void mla_reference(const kernels::MlaArgs& args, const BuiltCase&) { kernels::reference::mla(args); }

TEST(ReferenceAttention, PassesItsOwnSuite) { run_conformance(reference, conformance_cases()); }
TEST(ReferenceAttention, DoesNotDependOnTheOrderOfPages) { run_page_order(reference, page_order_cases()); }
TEST(ReferenceAttention, DoesNotDependOnTheBatch) {
  run_batch_invariance(reference, batch_invariance_cases());
}
TEST(ReferenceMla, PassesItsOwnSuiteOverScaledRows) {
  run_mla_conformance(mla_reference, scaled_row_cases());
}
TEST(ReferenceMla, PassesItsOwnSuite) { run_mla_conformance(mla_reference, mla_conformance_cases()); }

TEST(ReferenceMerge, PassesItsOwnSuite) {
  run_merge_conformance(kernels::reference::merge);
  run_merge_splits_conformance(kernels::reference::merge_splits);
}

}  // namespace
}  // namespace attend::conformance
