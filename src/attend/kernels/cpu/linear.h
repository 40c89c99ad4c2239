// Dense layers on the CPU. Weights are converted to f32 as they are read; products and sums are f32.
#pragma once

#include "attend/kernels/cpu/isa.h"
#include "attend/kernels/linear.h"

namespace attend::kernels::cpu {

// Arguments as kernels::linear checks them. A row's bits depend on its own values, and on whether it comes
// with kFewRows or more others (linear_kernel.h); not on how many, nor on the number of threads.
void linear(const LinearArgs& args, Isa isa);

}  // namespace attend::kernels::cpu
