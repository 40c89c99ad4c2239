// Choosing tokens on the CPU. Arguments as kernels/sampling/sampling.h checks them. Allocates nothing.
#pragma once

#include "attend/kernels/common/cpu/isa.h"
#include "attend/kernels/sampling/sampling.h"

namespace attend::kernels::cpu {

void argmax(const TensorView& logits, View<int32_t> ids, Isa isa);
void sample(const TensorView& logits, View<const SamplingRule> rules, View<int32_t> ids, Isa isa);
void probabilities(const TensorView& logits, View<const SamplingRule> rules, const TensorView& out, Isa isa);

}  // namespace attend::kernels::cpu
