// Dense layers in fp8 on both sides, on a GPU: a candidate of choose.h.
#pragma once

#include "attend/kernels/gemm/linear.h"

namespace attend::kernels::cuda {

// x is normalized where args.norm says so, rounded to e4m3 by rows, each with a scale of its own, into the
// workspace, so many rows at a time as fit there; then multiplied by the weight's codes as they are. No bias.
void fp8_linear(const LinearArgs& args, Stream& stream);

// The same of weights with scales of blocks (sm90/fp8_block_gemm.h): x has a scale for each 128 inputs of a
// row.
void fp8_block_linear(const LinearArgs& args, Stream& stream);

}  // namespace attend::kernels::cuda
