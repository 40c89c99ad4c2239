// The GPU kernels of a build without CUDA: there are none.
#include "attend/kernels/common/cuda/fill_random.h"
#include "attend/kernels/common/refuse_gpu.h"

namespace attend::kernels::cuda {

void fill_random(const TensorView&, const RandomNormal&, Stream&) { refuse("fill_random"); }

}  // namespace attend::kernels::cuda
