// The GPU kernels of a build without CUDA: there are none.
#include "attend/kernels/common/refuse_gpu.h"
#include "attend/kernels/gemm/cuda/head_linear.h"
#include "attend/kernels/gemm/cuda/linear.h"

namespace attend::kernels::cuda {

void head_linear(const HeadLinearArgs&, Stream&) { refuse("head_linear"); }
bool linear(const LinearArgs&, Stream&) { refuse("linear"); }
bool gated_linear(const GatedLinearArgs&, Stream&) { refuse("gated_linear"); }

}  // namespace attend::kernels::cuda
