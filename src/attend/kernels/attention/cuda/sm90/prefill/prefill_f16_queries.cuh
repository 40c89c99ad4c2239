// Queries of bf16 for products with K/V of fp8 that have become f16 (prefill.cuh): each row is scaled by a
// power of two, since bf16 has three bits more of exponent than f16.
#pragma once

#include <cuda_bf16.h>

#include "attend/kernels/attention/cuda/common/warp_rows.cuh"
#include "attend/kernels/attention/cuda/sm90/prefill/prefill_rows.cuh"
#include "attend/kernels/common/cuda/ptx/copy.cuh"
#include "attend/kernels/common/cuda/ptx/lane.cuh"

namespace attend::kernels::cuda::sm90 {

// For a row whose largest magnitude is `row_absmax`: what takes that to [2^8, 2^9), far below f16's largest,
// and what scores are multiplied by for it. Elements lose what is below 2^-24 of the scaled row, 2^-32 of
// its largest; of rows below 2^-32 what is below 2^-64.
struct QueryScale {
  float to_f16, from_f16;
};
__device__ __forceinline__ QueryScale query_scale(float row_absmax) {
  constexpr int kBias = 127, kExponent = 8, kLeast = kBias - 32;
  const int exponent = min(max(static_cast<int>(__float_as_uint(row_absmax) >> 23), kLeast), 2 * kBias);
  return {__int_as_float((2 * kBias + kExponent - exponent) << 23),
          __int_as_float((exponent - kExponent) << 23)};
}

// `scaled` / `scale`, which are normal and a power of two apart, or both zero (1).
__device__ __forceinline__ float power_of_two_between(float scale, float scaled) {
  return __int_as_float(__float_as_int(scaled) - __float_as_int(scale) + __float_as_int(1.0f));
}

// Converts the 16 rows of a warp of consumers in their place. `q`: the warpgroup's first row. Returns what
// the scores of the thread's rows (PrefillSoftmax) are to be multiplied by.
template <class Tile>
__device__ __forceinline__ RowScales queries_to_f16(uint32_t q) {
  // Four lanes have a row, each two pieces of 16 bytes of a panel; of two neighbouring rows one has the other
  // half of the panel first, in other banks.
  constexpr int kPieces = 2 * Tile::kQkPanels;
  const int lane = ptx::lane();
  RowScales from_f16;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = ptx::warp_of_warpgroup() * 16 + lane / 4 + 8 * half;
    const uint32_t at[2] = {q + swizzled(row, lane % 4 + row % 2 * 4),
                            q + swizzled(row, lane % 4 + 4 - row % 2 * 4)};
    const auto address = [&](int piece) { return at[piece % 2] + piece / 2 * Tile::kQueryPanelBytes; };
    uint4 pieces[kPieces];
#pragma unroll
    for (int i = 0; i < kPieces; ++i) pieces[i] = ptx::ld_shared_16(address(i));
    __nv_bfloat162 most = __float2bfloat162_rn(0.0f);
    const auto add_to_most = [&](uint32_t pair) {
      most = __hmax2(most, __habs2(*reinterpret_cast<const __nv_bfloat162*>(&pair)));
    };
#pragma unroll
    for (const uint4& piece : pieces) {
      add_to_most(piece.x);
      add_to_most(piece.y);
      add_to_most(piece.z);
      add_to_most(piece.w);
    }
    const QueryScale scale = query_scale(quad_max(fmaxf(__low2float(most), __high2float(most))));
    from_f16.scales[half] = scale.from_f16;
    const auto to_f16 = [&](uint32_t pair) {
      return pack(__uint_as_float(pair << 16) * scale.to_f16,
                        __uint_as_float(pair & 0xffff0000u) * scale.to_f16, __half());
    };
#pragma unroll
    for (int i = 0; i < kPieces; ++i)
      ptx::st_shared_16(address(i), make_uint4(to_f16(pieces[i].x), to_f16(pieces[i].y), to_f16(pieces[i].z),
                                               to_f16(pieces[i].w)));
  }
  return from_f16;
}

}  // namespace attend::kernels::cuda::sm90
