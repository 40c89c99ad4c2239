// The GPU kernels of a build without CUDA: there are none.
#include "attend/kernels/common/refuse_gpu.h"
#include "attend/kernels/fused/cuda/qkv.h"

namespace attend::kernels::cuda {

bool qkv_norm_rope_store(const LinearArgs&, const NormRopeArgs&, const StoreKvArgs&, Stream&) {
  refuse("qkv_norm_rope_store");
}

}  // namespace attend::kernels::cuda
