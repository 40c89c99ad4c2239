// int4 values as wgmma operands in registers, multiplied by the scales of their groups of 128 inputs and
// rounded once to 16 bits, like the weights of a 16-bit checkpoint (scaled_quantized.cuh).
//
// A pair of operands needs three or four instructions: duplicate a byte, mask its low value in one half and
// its high value in the other, subtract the zero point, multiply by the scale.
#pragma once

#include "attend/kernels/common/cuda/ptx/global_memory.cuh"
#include "attend/kernels/gemm/cuda/common/dequantize.cuh"
#include "attend/kernels/gemm/cuda/sm90/swap_ab/swap_ab_quantized_kernel.h"

namespace attend::kernels::cuda::sm90 {

// Constants that convert the two values of a byte to operands. The low value is in bits 0 to 3 of the low
// half. The high value is in bits 4 to 7 of the high half, so it counts 16 times as much, which the
// multiplications undo.
template <class T>
struct QuantizedByte;

template <class T>
__device__ __forceinline__ uint32_t multiply_pairs(uint32_t a, uint32_t b) {
  using Pair = typename PairType<T>::Type;
  return pair_to_bits(__hmul2(bits_to_pair<Pair>(a), bits_to_pair<Pair>(b)));
}
template <class T>
__device__ __forceinline__ uint32_t fused_multiply_add(uint32_t a, uint32_t b, uint32_t c) {
  using Pair = typename PairType<T>::Type;
  return pair_to_bits(__hfma2(bits_to_pair<Pair>(a), bits_to_pair<Pair>(b), bits_to_pair<Pair>(c)));
}

inline constexpr uint32_t kSigns = 0x80008000u;

// Both values are bf16 subnormals or the smallest normal numbers, which continue the subnormals linearly: q
// 2^-133 and q 2^-129. Multiplying by 2^126 leaves 2^-7 and 2^-3 for the scale. Eight is a power of two, so
// without zero points one rounding yields q s - 8 s, 2^-32 times that to keep the scale in range.
template <>
struct QuantizedByte<__nv_bfloat16> {
  static constexpr uint32_t kBits = 0, kFactor = 0x7e807e80u;
  static constexpr bool kSubtractsEight = true;
  static constexpr uint32_t kMinusEight = 0x80808008u, k2To97And101 = 0x70007200u, k8And128 = 0x41004300u;
  static constexpr float kSumFactor = 0x1p32f;
};
// 1024 + q and 1024 + 16 q, times 1 and 1 / 16.
template <>
struct QuantizedByte<__half> {
  static constexpr uint32_t kBits = 0x64006400u, kFactor = 0x2c003c00u;
  static constexpr bool kSubtractsEight = false;
  static constexpr float kSumFactor = 1.0f;
};

// A lane's rows of kBlocks tiles: scales, and operands of a part of 32 inputs.
template <class T, int kBlocks, bool kHasZeros>
class ScaledInt4 {
  using Byte = QuantizedByte<T>;
  static constexpr bool kSubtractsEight = !kHasZeros && Byte::kSubtractsEight;
  static constexpr int kGroups = kScaledStageInputs / kScaledInputs;
  static constexpr int kLineScales = 64;  // scales per 128 bytes
  static constexpr int kWords = 4;        // words per row and part
  // Two scales and two zero points per row of a lane for one stage, as loaded.
  struct Groups {
    uint32_t scales[kBlocks][2], zeros[kBlocks][2];
  };
  // Multipliers and addends of pairs for one group.
  struct Scaling {
    uint32_t scale[kBlocks][2], zero[kBlocks][2];
  };

 public:
  static constexpr int kStageInputs = kScaledStageInputs;
  static constexpr int kPartsPerGroup = kScaledInputs / kScaledPartInputs;
  static constexpr int kVectors = 1;            // 16-byte vectors per row and part
  static constexpr bool kHasRowScales = false;  // sums are not multiplied by a row scale

  using Factors = uint32_t[kBlocks][kScaledPartInputs / 16][4];
  using Codes = uint4[kBlocks][2][kVectors];  // a part of a lane's rows

  // Factor of the sums.
  static constexpr float kSumFactor = kSubtractsEight ? Byte::kSumFactor : 1.0f;

  __device__ __forceinline__ ScaledInt4(const QuantizedWeight& weight, int lane) : weight_(weight) {
    const uint32_t t = static_cast<uint32_t>(lane) % 4;
    selector_ = 0x4040u | t << 8 | t;  // byte t in both halves
  }

  // Sets row `i` of the two rows of a block to `row` of the weight. Its stages [begin, end) are multiplied.
  __device__ __forceinline__ void locate(int block, int i, int row, int begin, int end) {
    scales_[block][i] = row * weight_.scale_columns;
    prefetch_scales(scales_[block][i], begin, end);
  }

  // Loads the scales of a stage.
  __device__ __forceinline__ void load(int stage) {
#pragma unroll
    for (int block = 0; block < kBlocks; ++block)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int at = scales_[block][i] + stage * kGroups;
        groups_.scales[block][i] =
            *reinterpret_cast<const uint32_t*>(static_cast<const uint16_t*>(weight_.scales) + at);
        if constexpr (kHasZeros)
          groups_.zeros[block][i] = *reinterpret_cast<const uint16_t*>(weight_.zeros + at);
      }
  }

  // Selects the group of the loaded stage that is dequantized next.
  __device__ __forceinline__ void use_group(int group) {
    const uint32_t twice = group == 0 ? 0x1010u : 0x3232u;
#pragma unroll
    for (int block = 0; block < kBlocks; ++block)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        uint32_t& scale = scaling_.scale[block][i];
        scale = __byte_perm(groups_.scales[block][i], 0u, twice);
        if constexpr (kSubtractsEight) {
          scale = multiply_pairs<T>(scale, Byte::k2To97And101);
          scaling_.zero[block][i] = multiply_pairs<T>(scale, Byte::kMinusEight);
        } else {
          if constexpr (std::is_same_v<T, __nv_bfloat16>) scale = multiply_pairs<T>(scale, Byte::k8And128);
          // Zero point, in the same form as two quantized values, so that q - zero is the difference of the
          // two products.
          const uint32_t zero = kHasZeros ? groups_.zeros[block][i] >> (8 * group) & 0xffu : 8u;
          const uint32_t bits = zero * 0x00100001u | Byte::kBits;
          scaling_.zero[block][i] = fused_multiply_add<T>(bits, Byte::kFactor ^ kSigns, kSigns);
        }
      }
  }

  __device__ __forceinline__ void widen(const Codes& codes, Factors& factors) const {
#pragma unroll
    for (int block = 0; block < kBlocks; ++block)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const uint4& bytes = codes[block][i][0];
        const uint32_t words[kWords] = {bytes.x, bytes.y, bytes.z, bytes.w};
#pragma unroll
        for (int word = 0; word < kWords; ++word) {
          const uint32_t pair = and_or(__byte_perm(words[word], 0u, selector_), 0x00f0000fu, Byte::kBits);
          uint32_t& factor = factors[block][word / 2][word % 2 * 2 + i];
          const uint32_t scale = scaling_.scale[block][i], zero = scaling_.zero[block][i];
          if constexpr (kSubtractsEight)
            factor = fused_multiply_add<T>(pair, scale, zero);
          else
            factor = multiply_pairs<T>(fused_multiply_add<T>(pair, Byte::kFactor, zero), scale);
        }
      }
  }

 private:
  // Prefetches scales to L2, ahead of the stages that need them. Four lanes share a row.
  __device__ __forceinline__ void prefetch_scales(int first, int begin, int end) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const auto* const scales = static_cast<const uint16_t*>(weight_.scales) + first;
#pragma unroll 1
    for (int group = begin * kGroups + lane % 4 * kLineScales; group < end * kGroups + kLineScales;
         group += 4 * kLineScales) {
      const int at = min(group, weight_.scale_columns - 1);
      ptx::prefetch_l2(scales + at);
      if constexpr (kHasZeros) ptx::prefetch_l2(weight_.zeros + first + at);
    }
  }

  const QuantizedWeight& weight_;
  uint32_t selector_;
  Groups groups_;
  Scaling scaling_;  // for the part that is dequantized next
  int scales_[kBlocks][2];
};

}  // namespace attend::kernels::cuda::sm90
