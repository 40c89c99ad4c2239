// Conformance suite of the merge family.
#pragma once

#include <functional>

#include "attend/kernels/attention/attention.h"

namespace attend::conformance {

using MergeFn = std::function<void(const kernels::MergeArgs& args)>;
using MergeSplitsFn = std::function<void(const kernels::MergeSplitsArgs& args)>;

// Covers rows with similar and very different LSE, empty rows with poisoned output, all dtypes, in place,
// strided, with and without LSE. Each row must be within twice the rounding of its dtype of the float64
// reference; empty rows must be exactly 0 and -inf.
void run_merge_conformance(const MergeFn& kernel);
// Like run_merge_conformance(), for 1 to 33 splits, with and without sinks.
void run_merge_splits_conformance(const MergeSplitsFn& kernel);

}  // namespace attend::conformance
