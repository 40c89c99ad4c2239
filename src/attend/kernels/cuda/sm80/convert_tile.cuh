// Tiles of fp8 rows to 16-bit rows, in shared memory.
#pragma once

#include <cuda_fp8.h>

#include "attend/kernels/cuda/ptx/thread.cuh"
#include "attend/kernels/cuda/sm80/attention_tile.cuh"

namespace attend::kernels::cuda::sm80 {

// Two fp8 values to two of T. Exact: f16 holds every value of both formats, bf16 too.
__device__ inline uint32_t convert_pair(uint32_t bits, bool e5m2, __half) {
  const auto pair = static_cast<__nv_fp8x2_storage_t>(bits & 0xffffu);
  const __half2_raw raw = __nv_cvt_fp8x2_to_halfraw2(pair, e5m2 ? __NV_E5M2 : __NV_E4M3);
  return static_cast<uint32_t>(raw.x) | static_cast<uint32_t>(raw.y) << 16;
}
__device__ inline uint32_t convert_pair(uint32_t bits, bool e5m2, __nv_bfloat16) {
  const uint32_t halves = convert_pair(bits, e5m2, __half());
  const float2 floats = __half22float2(*reinterpret_cast<const __half2*>(&halves));
  return pack(floats.x, floats.y, __nv_bfloat16());
}

// kRows rows of kHeadDim fp8 values, one after another, to swizzled rows of T. All threads of the CTA.
template <class T, int kRows, int kHeadDim, int kThreads>
__device__ void convert_rows(const char* from, char* to, bool e5m2) {
  constexpr int kPieces = kHeadDim / 16;
#pragma unroll 2
  for (int i = ptx::fresh_thread(); i < kRows * kPieces; i += kThreads) {
    const int row = i / kPieces, piece = i % kPieces;
    const uint4 bytes = *reinterpret_cast<const uint4*>(from + i * 16);
    const uint32_t words[4] = {bytes.x, bytes.y, bytes.z, bytes.w};
    uint32_t converted[8];
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      converted[2 * w] = convert_pair(words[w], e5m2, T());
      converted[2 * w + 1] = convert_pair(words[w] >> 16, e5m2, T());
    }
#pragma unroll
    for (int half = 0; half < 2; ++half)
      *reinterpret_cast<uint4*>(to + SwizzledRows<kHeadDim * 2>::offset(row, piece * 2 + half)) = make_uint4(
          converted[4 * half], converted[4 * half + 1], converted[4 * half + 2], converted[4 * half + 3]);
  }
}

}  // namespace attend::kernels::cuda::sm80
