// Dense layers of a single row whose weight the registers of all SMs hold, on GPUs of compute capability 9.0.
#pragma once

#include "attend/kernels/gemm/linear.h"

namespace attend::kernels::cuda::sm90 {

// For what the candidate kLoneRow of choose.h takes: out = x weight^T (+ bias) (+ out). There is no norm.
void lone_row_gemm(const LinearArgs& args, Stream& stream);

}  // namespace attend::kernels::cuda::sm90
