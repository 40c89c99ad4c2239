// Codes of a quantized weight as the factors of wgmma in registers: 16-bit numbers, exactly; scales are left
// to who sums the products.
//
// A lane has rows g and g + 8 of its warp's 16 and, of each eight neighboring inputs, the pair 2 t, 2 t + 1
// (g = lane / 4, t = lane % 4). Four lanes that share a row load the same 16 bytes of it, which is a
// broadcast, and each takes its pairs.
#pragma once

#include "attend/kernels/gemm/cuda/common/dequantize.cuh"

namespace attend::kernels::cuda::sm90 {

template <WeightFormat kFormat>
struct QuantizedWeightLayout;
template <>
struct QuantizedWeightLayout<WeightFormat::kFp8> {
  static constexpr int kInputsPer16Bytes = 16, kInputsPerStage = 128;
};
template <>
struct QuantizedWeightLayout<WeightFormat::kInt8> : QuantizedWeightLayout<WeightFormat::kFp8> {};
template <>
struct QuantizedWeightLayout<WeightFormat::kInt4> {
  static constexpr int kInputsPer16Bytes = 32, kInputsPerStage = 256;
};

// As __byte_perm(), which leaves out that a selector with this bit takes the byte's sign, eight times.
inline constexpr uint32_t kByteSignMask = 8;
__device__ __forceinline__ uint32_t permute_bytes_and_signs(uint32_t low, uint32_t high, uint32_t selector) {
  uint32_t result;
  asm("prmt.b32 %0, %1, %2, %3;\n" : "=r"(result) : "r"(low), "r"(high), "r"(selector));
  return result;
}

// Takes a lane's pairs from 16 bytes of a row, those of eight inputs at a time.
template <class T, WeightFormat kFormat>
class LanePairs {
 public:
  // Pairs of 16 bytes, of eight inputs each.
  static constexpr int kPairs = QuantizedWeightLayout<kFormat>::kInputsPer16Bytes / 8;

  __device__ explicit LanePairs(int lane) {
    const uint32_t t = static_cast<uint32_t>(lane) % 4;
    if constexpr (!QuantizedBlock<kFormat>::kFourBits)
      selector_ =
          (kByteSignMask | (2 * t + 1)) << 12 | (2 * t + 1) << 8 | (kByteSignMask | 2 * t) << 4 | 2 * t;
    else
      selector_ = 0x4440u | t;  // byte t, and zeros
  }

  // `zero`: of int4, as shifted_zero().
  __device__ __forceinline__ void take(const uint4& bytes, uint32_t zero, uint32_t (&pairs)[kPairs]) const {
    if constexpr (kFormat == WeightFormat::kFp8) {
      pairs[0] = dequantize_extended_fp8<T>(permute_bytes_and_signs(bytes.x, bytes.y, selector_));
      pairs[1] = dequantize_extended_fp8<T>(permute_bytes_and_signs(bytes.z, bytes.w, selector_));
    } else if constexpr (kFormat == WeightFormat::kInt8) {
      pairs[0] = dequantize_even_int8<T>(permute_bytes_and_signs(bytes.x, bytes.y, selector_));
      pairs[1] = dequantize_even_int8<T>(permute_bytes_and_signs(bytes.z, bytes.w, selector_));
    } else {
      pairs[0] = int4_pair(bytes.x, zero);
      pairs[1] = int4_pair(bytes.y, zero);
      pairs[2] = int4_pair(bytes.z, zero);
      pairs[3] = int4_pair(bytes.w, zero);
    }
  }

 private:
  // The low four bits of a byte where they are, the high ones where the next 16 begin.
  __device__ __forceinline__ uint32_t int4_pair(uint32_t codes, uint32_t zero) const {
    constexpr uint32_t kStrideBits = 0x1001u;
    return dequantize_int4<T>(__byte_perm(codes, 0u, selector_) * kStrideBits, zero);
  }

  uint32_t selector_;
};

}  // namespace attend::kernels::cuda::sm90
