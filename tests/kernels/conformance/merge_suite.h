// The conformance suite of the merge family.
#pragma once

#include <functional>

#include "attend/kernels/attention/attention.h"

namespace attend::conformance {

using MergeFn = std::function<void(const kernels::MergeArgs& args)>;
using MergeSplitsFn = std::function<void(const kernels::MergeSplitsArgs& args)>;

// Rows of far and near LSE, empty rows whose output is poisoned, all dtypes, in place, strided, with and
// without LSE: each row within twice the rounding of its dtype of the float64 reference, empty rows exactly 0
// and -inf.
void run_merge_conformance(const MergeFn& kernel);
// The same for 1 to 33 splits, with and without sinks.
void run_merge_splits_conformance(const MergeSplitsFn& kernel);

}  // namespace attend::conformance
