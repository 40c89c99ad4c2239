// Queries that meet keys of fp8: f16, whatever they come as, with columns in the order of Fp8WarpTile.
#pragma once

#include "attend/kernels/attention/cuda/common/warp_rows.cuh"
#include "attend/kernels/common/cuda/element_group.cuh"

namespace attend::kernels::cuda::sm80 {

// Powers of two that take a row to the range of f16 and back. bf16 has 3 bits more of exponent.
struct RowScale {
  float to_f16, from_f16;
};
// For a row whose largest magnitude is `largest`: it comes to lie in [2^8, 2^9), far below f16's largest, and
// what is lost is below 2^-23 of it.
__device__ inline RowScale row_scale(float largest) {
  constexpr int kBias = 127, kExponent = 8;
  const int exponent = min(max(static_cast<int>(__float_as_uint(largest) >> 23), kExponent + 1), 2 * kBias);
  return {__int_as_float((2 * kBias + kExponent - exponent) << 23),
          __int_as_float((exponent - kExponent) << 23)};
}

// Eight threads hold a row of 8 * 8 * kGroups columns; thread `lane` (of 8) its pieces of 8 columns lane,
// lane + 8, ... Writes them to row `row` at shared address `rows` and returns the scale to undo in the
// scores.
//
// Of every 16 columns, 4 c and 4 c + 1 go to places 2 c and 2 c + 1, and 4 c + 2 and 4 c + 3 to 2 c + 8 and
// 2 c + 9.
template <int kHeadDim, int kGroups>
__device__ float store_f16_queries(const float (&columns)[kGroups][kGroupElements], char* rows, int row,
                                   int lane) {
  using Rows = SwizzledRows<kHeadDim * 2>;
  float largest = 0.0f;
#pragma unroll
  for (int g = 0; g < kGroups; ++g)
#pragma unroll
    for (float x : columns[g]) largest = fmaxf(largest, fabsf(x));
#pragma unroll
  for (int step = 4; step > 0; step /= 2)
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, step));
  const RowScale scale = row_scale(largest);
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
    uint32_t words[kGroupElements / 2];
#pragma unroll
    for (int w = 0; w < kGroupElements / 2; ++w)
      words[w] = pack(columns[g][2 * w] * scale.to_f16, columns[g][2 * w + 1] * scale.to_f16, __half());
    const int piece = lane + 8 * g, first = piece / 2 * 2;
    *reinterpret_cast<uint2*>(rows + Rows::offset(row, first) + piece % 2 * 8) =
        make_uint2(words[0], words[2]);
    *reinterpret_cast<uint2*>(rows + Rows::offset(row, first + 1) + piece % 2 * 8) =
        make_uint2(words[1], words[3]);
  }
  return scale.from_f16;
}

}  // namespace attend::kernels::cuda::sm80
