// Dense layers on the CPU. Weights are converted to f32 as they are read; products and sums are f32.
#pragma once

#include "attend/kernels/cpu/isa.h"
#include "attend/kernels/linear.h"

namespace attend::kernels::cpu {

// Arguments as kernels::linear checks them. A row's bits depend on its own values, and on whether it comes
// with more than kFewRows - 1 others; not on how many, nor on the number of threads.
void linear(const LinearArgs& args, Isa isa);

// Up to here each weight is used once, for all rows, as it streams by; above, tiles of weights are packed
// and used again and again.
inline constexpr int kFewRows = 16;

}  // namespace attend::kernels::cpu
