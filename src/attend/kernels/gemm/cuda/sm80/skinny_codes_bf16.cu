#include "attend/kernels/gemm/cuda/sm80/skinny_codes.cuh"

namespace attend::kernels::cuda::sm80 {

void launch_skinny_codes_bf16(const SkinnyCodesParams& params, void* stream) {
  launch_skinny_codes<__nv_bfloat16>(params, stream);
}

}  // namespace attend::kernels::cuda::sm80
