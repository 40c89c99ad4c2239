// The GPU kernels of a build without CUDA: there are none.
#include "attend/kernels/common/refuse_gpu.h"
#include "attend/kernels/sampling/cuda/sampling.h"

namespace attend::kernels::cuda {

void argmax(const TensorView&, View<int32_t>, Stream&) { refuse("argmax"); }
void sample(const TensorView&, View<const SamplingRule>, View<int32_t>, Stream&) { refuse("sample"); }

}  // namespace attend::kernels::cuda
