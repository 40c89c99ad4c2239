// Product of a K-block with wgmma, for GEMMs of 16-bit elements on sm_90a.
#pragma once

#include <cstdint>

#include "attend/kernels/common/cuda/ptx/wgmma.cuh"
#include "attend_generated/wgmma_products.cuh"

namespace attend::kernels::cuda::sm90 {

// Starts accumulators = a b^T, or += if `add`, over 64 inputs, from the descriptors of a and b, which have
// rows of 128 bytes. `T`: __nv_bfloat16 or __half.
template <class T, int kAccumulators>
__device__ __forceinline__ void multiply_k_block(float (&accumulators)[kAccumulators], uint64_t a, uint64_t b,
                                                 bool add) {
  constexpr int kMmas = 4, kMmaBytes = 32;  // bytes of a row
  ptx::wgmma_fence();
#pragma unroll
  for (int k = 0; k < kMmas; ++k)
    ptx::wgmma_mma_async(accumulators, a + k * (kMmaBytes / 16), b + k * (kMmaBytes / 16), add || k > 0, T{});
  ptx::wgmma_commit_group();
}

}  // namespace attend::kernels::cuda::sm90
