// Products of mxfp4 whose scales multiply sums, not codes: on tensor cores, by mma.m16n8k16 with W on the
// left.
//
// Codes are what their bits are in bf16, 2^-126 of their numbers. So that products are normal numbers x is
// 2^64 times itself (raised()). Sums are 2^-62 of what they are until the last ones are multiplied by
// kFromSums.
//
// So x is below 2^64: what is not becomes infinite. Products of x, code and scale that are below 2^-64 become
// subnormal, and lose bits; below 2^-87 they are zero.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "attend/kernels/common/cuda/ptx/copy.cuh"
#include "attend/kernels/common/cuda/ptx/mma.cuh"
#include "attend/kernels/gemm/cuda/common/dequantize.cuh"

namespace attend::kernels::cuda::sm80 {

struct MxFp4Sums {
  using T = __nv_bfloat16;
  static constexpr float kFromSums = 0x1p62f;

  static __device__ __forceinline__ uint4 raised(const uint4& x) {
    constexpr uint32_t kUpTwice = 0x5f805f80u;
    return make_uint4(scaled_up<T>(x.x, kUpTwice), scaled_up<T>(x.y, kUpTwice), scaled_up<T>(x.z, kUpTwice),
                      scaled_up<T>(x.w, kUpTwice));
  }
  // Of eight inputs j and j + 4 are pairs, as the codes of a word come: where an input lies, and the eight
  // so.
  static __device__ __forceinline__ int place_in_piece(int input) { return input % 4 * 2 + input / 4; }
  static __device__ __forceinline__ uint4 in_pairs(const uint4& x) {
    return make_uint4(__byte_perm(x.x, x.z, 0x5410), __byte_perm(x.x, x.z, 0x7632),
                      __byte_perm(x.y, x.w, 0x5410), __byte_perm(x.y, x.w, 0x7632));
  }

  // A word of codes of each of a lane's two rows as the left factors of two products.
  using Factors = uint32_t[2][4];
  static __device__ __forceinline__ void widen(uint32_t low, uint32_t high, Factors& factors) {
#pragma unroll
    for (int step = 0; step < 2; ++step) {
      const uint32_t low_codes = low >> 8 * step, high_codes = high >> 8 * step;
      factors[step][0] = e2m1_bits<T, 0>(low_codes);
      factors[step][1] = e2m1_bits<T, 0>(high_codes);
      factors[step][2] = e2m1_bits<T, 1>(low_codes);
      factors[step][3] = e2m1_bits<T, 1>(high_codes);
    }
  }
  // sums += these by `x`: the lane's eight inputs of its column, in pairs.
  static __device__ __forceinline__ void add_products(const Factors& factors, const uint4& x,
                                                      float (&sums)[4]) {
    ptx::mma_m16n8k16(sums, factors[0], x.x, x.y, T{});
    ptx::mma_m16n8k16(sums, factors[1], x.z, x.w, T{});
  }
  // sums += the codes of 32 inputs of each row by x at `x`, where a lane's eight of a word lie 64 bytes from
  // those of the next one.
  static __device__ __forceinline__ void add_group(const uint4& low, const uint4& high, uint32_t x,
                                                   float (&sums)[4]) {
    const uint32_t low_words[4] = {low.x, low.y, low.z, low.w},
                   high_words[4] = {high.x, high.y, high.z, high.w};
#pragma unroll
    for (int word = 0; word < 4; ++word) {
      Factors factors;
      widen(low_words[word], high_words[word], factors);
      add_products(factors, ptx::ld_shared_16(x + word * 64), sums);
    }
  }

  // 2^(e - 127) as e8m0_to_float(), exponents below 255 (NaN), where a maximum stands for a comparison and a
  // choice.
  static __device__ __forceinline__ float scale_of(uint32_t exponent) {
    return __uint_as_float(max(exponent << 23, 0x400000u));
  }
};

}  // namespace attend::kernels::cuda::sm80
