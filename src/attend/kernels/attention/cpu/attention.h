// CPU implementation of the attention and MLA families.
#pragma once

#include "attend/kernels/attention/attention.h"
#include "attend/kernels/common/cpu/isa.h"

namespace attend::kernels::cpu {

// Returns the instruction set for which attention is fastest on this CPU. It is not always the highest:
// Intel's AVX512-BF16 multiplies pairs at a quarter of the rate of its two float32 units (measured on
// Sapphire Rapids: 121 against 241 GFLOP/s per core), AMD's at twice the rate. AMX tiles reach 3550 there.
Isa attention_isa();

// Like kernels::attention and kernels::mla, for an instruction set that the caller has checked. Arguments
// must have been checked.
void attention(const AttentionArgs& args, AttentionPlan& plan, Isa isa);
void mla(const MlaArgs& args, AttentionPlan& plan, Isa isa);

// CPU implementation of the merge family.

// Like kernels::merge and kernels::merge_splits, for an instruction set that the caller has checked.
// Arguments must have been checked.
void merge(const MergeArgs& args, Isa isa);
void merge_splits(const MergeSplitsArgs& args, Isa isa);

}  // namespace attend::kernels::cpu
