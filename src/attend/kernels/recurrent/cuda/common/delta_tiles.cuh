// Tiles of mma.m16n8k16 for the chunk forms of recurrences.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "attend/kernels/common/cuda/ptx/copy.cuh"
#include "attend/kernels/common/cuda/ptx/mma.cuh"

namespace attend::kernels::cuda {

__device__ inline uint32_t pack_pair(float low, float high, __nv_bfloat16) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return reinterpret_cast<const uint32_t&>(pair);
}
// Values beyond the range of float16 become its largest ones: infinity would end in NaN.
__device__ inline uint32_t pack_pair(float low, float high, __half) {
  constexpr float kMax = 65504.0f;
  const __half2 pair = __floats2half2_rn(fminf(fmaxf(low, -kMax), kMax), fminf(fmaxf(high, -kMax), kMax));
  return reinterpret_cast<const uint32_t&>(pair);
}

template <class T>
__device__ inline float2 unpack_pair(uint32_t bits) {
  const T* const pair = reinterpret_cast<const T*>(&bits);
  return make_float2(static_cast<float>(pair[0]), static_cast<float>(pair[1]));
}

// Converts two neighboring tiles of d, 16 x 16 together, to operand A with these 16 columns.
template <class T>
__device__ inline void to_operand_a(const float (&left)[4], const float (&right)[4], uint32_t (&a)[4]) {
  a[0] = pack_pair(left[0], left[1], T{});
  a[1] = pack_pair(left[2], left[3], T{});
  a[2] = pack_pair(right[0], right[1], T{});
  a[3] = pack_pair(right[2], right[3], T{});
}

// A 16 x 16 block of d as operand B, with its rows as columns of B: b0 and b1 of its first 8 rows, then of
// the others.
template <class T>
__device__ inline uint4 to_operand_b(const float (&left)[4], const float (&right)[4]) {
  return {pack_pair(left[0], left[1], T{}), pack_pair(right[0], right[1], T{}),
          pack_pair(left[2], left[3], T{}), pack_pair(right[2], right[3], T{})};
}

// Address that a lane passes to ldmatrix_x4 for a 16 x 16 block at `block` of rows of kStride elements.
//
// Operand A, rows of the block as rows. With _trans, operand B of two tiles with the block's columns as
// columns of B: (b0, b1) of the first tile, then of the second.
template <int kStride>
__device__ inline uint32_t address_a(uint32_t block, int lane) {
  return block + static_cast<uint32_t>(((lane & 15) * kStride + (lane >> 4) * 8) * 2);
}
// Operand B of two tiles with the block's rows as columns of B: (b0, b1) of the first tile, then of the
// second. With _trans, a transposed block as two tiles of d: (rows 0-7, rows 8-15) of each.
template <int kStride>
__device__ inline uint32_t address_b(uint32_t block, int lane) {
  return block + static_cast<uint32_t>((((lane & 7) + (lane >> 4) * 8) * kStride + (lane >> 3 & 1) * 8) * 2);
}

}  // namespace attend::kernels::cuda
