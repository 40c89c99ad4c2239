// Dense layers whose rows have the same bits in every batch.
#pragma once

#include "attend/kernels/gemm/linear.h"

namespace attend::kernels::cuda {

// As linear() with batch_invariant; x is normed already. What computes a layer is chosen by its shape, dtype
// and the alignment of its rows: the kernels that share a layer among different numbers of rows give the same
// bits.
void invariant_linear(const LinearArgs& args, Stream& stream);

}  // namespace attend::kernels::cuda
