// Quantized values as wgmma operands in registers: converted exactly to 16-bit floats. The caller applies
// scales to the sums.
//
// A lane has rows g and g + 8 of its warp's 16 and, of each eight neighboring inputs, the pair 2 t, 2 t + 1
// (g = lane / 4, t = lane % 4). Four lanes that share a row load the same 16 bytes of it, which is a
// broadcast, and each extracts its pairs.
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

// __byte_perm() with sign replication: __byte_perm() ignores this selector bit, which replicates the byte's
// sign eight times.
inline constexpr uint32_t kByteSignMask = 8;
__device__ __forceinline__ uint32_t permute_bytes_and_signs(uint32_t low, uint32_t high, uint32_t selector) {
  uint32_t result;
  asm("prmt.b32 %0, %1, %2, %3;\n" : "=r"(result) : "r"(low), "r"(high), "r"(selector));
  return result;
}

// Extracts a lane's pairs from 16 bytes of a row, one pair per eight inputs.
template <class T, WeightFormat kFormat>
class LanePairs {
 public:
  // Pairs per 16 bytes, one per eight inputs.
  static constexpr int kPairs = QuantizedWeightLayout<kFormat>::kInputsPer16Bytes / 8;

  __device__ explicit LanePairs(int lane) {
    const uint32_t t = static_cast<uint32_t>(lane) % 4;
    if constexpr (!QuantizedBlock<kFormat>::kFourBits)
      selector_ =
          (kByteSignMask | (2 * t + 1)) << 12 | (2 * t + 1) << 8 | (kByteSignMask | 2 * t) << 4 | 2 * t;
    else
      selector_ = 0x4440u | t;  // byte t, and zeros
  }

  // `zero`: for int4, a result of shifted_zero().
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
  // Keeps the low four bits of a byte in place, and moves the high ones to the next 16 bits.
  __device__ __forceinline__ uint32_t int4_pair(uint32_t codes, uint32_t zero) const {
    constexpr uint32_t kStrideBits = 0x1001u;
    return dequantize_int4<T>(__byte_perm(codes, 0u, selector_) * kStrideBits, zero);
  }

  uint32_t selector_;
};

}  // namespace attend::kernels::cuda::sm90
