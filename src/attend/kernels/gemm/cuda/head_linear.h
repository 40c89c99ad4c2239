// Dense layers of heads on a GPU. Arguments as kernels::head_linear checks them.
#pragma once

#include "attend/kernels/gemm/head_linear.h"

namespace attend::kernels::cuda {

void head_linear(const HeadLinearArgs& args, Stream& stream);

}  // namespace attend::kernels::cuda
