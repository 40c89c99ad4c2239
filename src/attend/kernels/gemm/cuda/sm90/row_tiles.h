// Dense layers of many rows with TMA and wgmma on GPUs of compute capability 9.0, bit for bit as few-row
// layers sum them (skinny_gemm_kernel.h).
#pragma once

#include "attend/kernels/gemm/linear.h"

namespace attend::kernels::cuda::sm90 {

// Whether row_tiles() takes these arguments: not on other devices, in builds without code for sm_90a, for
// other dtypes than bf16 and f16, and for rows of x or of the weight off 16 bytes.
bool takes_row_tiles(const LinearArgs& args, const Stream& stream);

// out = x weight^T (+ bias) (+ out). A row's bits depend neither on the other rows nor on their number. There
// is no norm.
void row_tiles(const LinearArgs& args, Stream& stream);

}  // namespace attend::kernels::cuda::sm90
