// Product of a K-block by wgmma, as GEMMs of 16-bit elements on sm_90a have it.
#pragma once

#include <cstdint>

#include "attend/kernels/common/cuda/ptx/wgmma.cuh"
#include "attend_generated/wgmma_products.cuh"

namespace attend::kernels::cuda::sm90 {

// Begins accumulators (+)= a b^T of 64 inputs, by the descriptors of a and b, whose rows are of 128 bytes.
// `T`:
// __nv_bfloat16 or __half.
template <class T, int kAccumulators>
__device__ __forceinline__ void multiply_k_block(float (&accumulators)[kAccumulators], uint64_t a, uint64_t b,
                                                 bool add) {
  constexpr int kMmas = 4, kMmaBytes = 32;  // of a row
  ptx::wgmma_fence();
#pragma unroll
  for (int k = 0; k < kMmas; ++k)
    ptx::wgmma_mma_async(accumulators, a + k * (kMmaBytes / 16), b + k * (kMmaBytes / 16), add || k > 0, T{});
  ptx::wgmma_commit_group();
}

}  // namespace attend::kernels::cuda::sm90
