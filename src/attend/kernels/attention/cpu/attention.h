// The CPU implementation of the attention and MLA families.
#pragma once

#include "attend/kernels/attention/attention.h"
#include "attend/kernels/common/cpu/isa.h"

namespace attend::kernels::cpu {

// The instruction set that attention runs fastest with on this CPU. Not always the highest: Intel's
// AVX512-BF16 multiplies pairs at a quarter of the rate of its two float32 units (measured on Sapphire
// Rapids: 121 against 241 GFLOP/s per core), AMD's at twice the rate. AMX's tiles reach 3550 there.
Isa attention_isa();

// As kernels::attention and kernels::mla, with the instruction set chosen by the caller, who knows that the
// CPU has it. Arguments were checked.
void attention(const AttentionArgs& args, AttentionPlan& plan, Isa isa);
void mla(const MlaArgs& args, AttentionPlan& plan, Isa isa);

// The CPU implementation of the merge family.

// As kernels::merge and kernels::merge_splits, with the instruction set chosen by the caller, who knows that
// the CPU has it. Arguments were checked.
void merge(const MergeArgs& args, Isa isa);
void merge_splits(const MergeSplitsArgs& args, Isa isa);

}  // namespace attend::kernels::cpu
