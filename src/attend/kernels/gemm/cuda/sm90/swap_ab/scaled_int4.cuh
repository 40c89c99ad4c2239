// Codes of int4 as factors of wgmma in registers, times the scales of their groups of 128 inputs and rounded
// once to 16 bits, as the weights of a 16-bit checkpoint are (scaled_quantized.cuh).
//
// Three or four instructions make a pair of factors: a byte twice, its low code masked in one half and its
// high one in the other, less the zero point, times the scale.
#pragma once

#include "attend/kernels/common/cuda/ptx/global_memory.cuh"
#include "attend/kernels/gemm/cuda/common/dequantize.cuh"
#include "attend/kernels/gemm/cuda/sm90/swap_ab/swap_ab_quantized_kernel.h"

namespace attend::kernels::cuda::sm90 {

// How the two codes of a byte become factors. The low one stands in bits 0 to 3 of the low half, the high one
// in bits 4 to 7 of the high half, so it counts 16 times as much, which the multiplications undo.
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

// Both are subnormal numbers or the first normal ones, which go on where those end: q 2^-133 and q 2^-129.
// 2^126 times that leaves 2^-7 and 2^-3 to the scale. Eight is a power of two, so that without other zero
// points one rounding makes q s - 8 s: of 2^-32 times that, which keeps the scale in range.
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

// A lane's rows of kBlocks tiles: scales, and factors of a part of 32 inputs.
template <class T, int kBlocks, bool kHasZeros>
class ScaledInt4 {
  using Byte = QuantizedByte<T>;
  static constexpr bool kSubtractsEight = !kHasZeros && Byte::kSubtractsEight;
  static constexpr int kGroups = kScaledStageInputs / kScaledInputs;
  static constexpr int kLineScales = 64;  // of 128 bytes
  static constexpr int kWords = 4;        // of a row, of a part
  // Of a stage and a lane's rows: two scales, two zero points, as loaded.
  struct Groups {
    uint32_t scales[kBlocks][2], zeros[kBlocks][2];
  };
  // Of a group, as factors and summands of pairs.
  struct Scaling {
    uint32_t scale[kBlocks][2], zero[kBlocks][2];
  };

 public:
  static constexpr int kStageInputs = kScaledStageInputs;
  static constexpr int kPartsPerGroup = kScaledInputs / kScaledPartInputs;
  static constexpr int kVectors = 1;            // of 16 bytes, of a row, of a part
  static constexpr bool kHasRowScales = false;  // that sums have

  using Factors = uint32_t[kBlocks][kScaledPartInputs / 16][4];
  using Codes = uint4[kBlocks][2][kVectors];  // a part of a lane's rows

  // What sums are multiplied by.
  static constexpr float kSumFactor = kSubtractsEight ? Byte::kSumFactor : 1.0f;

  __device__ __forceinline__ ScaledInt4(const QuantizedWeight& weight, int lane) : weight_(weight) {
    const uint32_t t = static_cast<uint32_t>(lane) % 4;
    selector_ = 0x4040u | t << 8 | t;  // byte t in both halves
  }

  // Row `i` of the two of a block is `row` of the weight, of which stages [begin, end) are multiplied.
  __device__ __forceinline__ void locate(int block, int i, int row, int begin, int end) {
    scales_[block][i] = row * weight_.scale_columns;
    prefetch_scales(scales_[block][i], begin, end);
  }

  // Asks for the scales of a stage.
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

  // Parts of this group of the stage that was asked for are widened next.
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
          // As two codes, so that codes less zero points are what the two products differ by.
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
  // To L2, where a stage's will be found in time. Four lanes have a row.
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
  Scaling scaling_;  // of the part that is widened next
  int scales_[kBlocks][2];
};

}  // namespace attend::kernels::cuda::sm90
