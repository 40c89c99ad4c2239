// Products of mxfp4 with scales applied to sums instead of to quantized values: mma.m16n8k16 with W as
// operand A.
//
// The bits of a value are used as bf16, which is 2^-126 times the value. So that products are normal numbers,
// x is multiplied by 2^64 (raised()). Sums are 2^-62 times their value until the final ones are multiplied by
// kFromSums.
//
// x must be below 2^64 in magnitude; larger values become infinite. Products of x, value and scale below
// 2^-64 become subnormal and lose bits; below 2^-87 they are zero.
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
  // Order of eight inputs that matches the pairs of values of a word, j and j + 4: the position of an input,
  // and the eight inputs in that order.
  static __device__ __forceinline__ int place_in_piece(int input) { return input % 4 * 2 + input / 4; }
  static __device__ __forceinline__ uint4 in_pairs(const uint4& x) {
    return make_uint4(__byte_perm(x.x, x.z, 0x5410), __byte_perm(x.x, x.z, 0x7632),
                      __byte_perm(x.y, x.w, 0x5410), __byte_perm(x.y, x.w, 0x7632));
  }

  // Converts a word of quantized values of each of a lane's two rows to operand A of two mma instructions.
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
  // sums += product with `x`: the lane's eight inputs of its column, in pairs.
  static __device__ __forceinline__ void add_products(const Factors& factors, const uint4& x,
                                                      float (&sums)[4]) {
    ptx::mma_m16n8k16(sums, factors[0], x.x, x.y, T{});
    ptx::mma_m16n8k16(sums, factors[1], x.z, x.w, T{});
  }
  // sums += product of the values of 32 inputs of each row with the inputs at address `x`. A lane's groups of
  // eight inputs for consecutive words are 64 bytes apart.
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

  // Returns 2^(e - 127) like e8m0_to_float(), for exponents below 255 (NaN). A maximum replaces a comparison
  // and a select.
  static __device__ __forceinline__ float to_scale(uint32_t exponent) {
    return __uint_as_float(max(exponent << 23, 0x400000u));
  }
};

}  // namespace attend::kernels::cuda::sm80
