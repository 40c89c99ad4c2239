// The CPU implementation of the merge family.
#pragma once

#include "attend/kernels/attention/merge.h"
#include "attend/kernels/common/cpu/isa.h"

namespace attend::kernels::cpu {

// As kernels::merge and kernels::merge_splits, with the instruction set chosen by the caller, who knows that
// the CPU has it. Arguments were checked.
void merge(const MergeArgs& args, Isa isa);
void merge_splits(const MergeSplitsArgs& args, Isa isa);

}  // namespace attend::kernels::cpu
