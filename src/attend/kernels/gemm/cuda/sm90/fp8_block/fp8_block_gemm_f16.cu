#include "attend/kernels/gemm/cuda/sm90/fp8_block/fp8_block_gemm.cuh"

namespace attend::kernels::cuda::sm90 {

void launch_fp8_block_gemm_f16(const Fp8BlockGemmParams& params, int tile_rows, int num_sms, void* stream) {
  launch_fp8_block_gemm<__half>(params, tile_rows, num_sms, stream);
}

}  // namespace attend::kernels::cuda::sm90
