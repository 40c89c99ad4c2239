// fp8 (e4m3) values as exact wgmma operands in registers. A row of W has one scale, which multiplies its sums
// (scaled_quantized.cuh). A pair of operands needs four instructions.
#pragma once

#include "attend/kernels/gemm/cuda/sm90/swap_ab/quantized_weight_layout.cuh"
#include "attend/kernels/gemm/cuda/sm90/swap_ab/swap_ab_quantized_kernel.h"

namespace attend::kernels::cuda::sm90 {

// Same interface as ScaledInt4 (scaled_int4.cuh), without groups: functions that load group scales do
// nothing.
template <class T, int kBlocks>
class RowScaledFp8 {
 public:
  static constexpr int kStageInputs = kScaledStageInputs / 2;
  static constexpr int kPartsPerGroup = kStageInputs / kScaledPartInputs;
  static constexpr int kVectors = 2;
  static constexpr bool kHasRowScales = true;
  static constexpr float kSumFactor = 1.0f;

  using Factors = uint32_t[kBlocks][kScaledPartInputs / 16][4];
  using Codes = uint4[kBlocks][2][kVectors];

  __device__ __forceinline__ RowScaledFp8(const QuantizedWeight&, int lane) : pairs_(lane) {}

  __device__ __forceinline__ void locate(int, int, int, int, int) {}
  __device__ __forceinline__ void load(int) {}
  __device__ __forceinline__ void use_group(int) {}

  __device__ __forceinline__ void widen(const Codes& codes, Factors& factors) const {
#pragma unroll
    for (int block = 0; block < kBlocks; ++block)
#pragma unroll
      for (int i = 0; i < 2; ++i)
#pragma unroll
        for (int step = 0; step < kVectors; ++step) {
          uint32_t pairs[Pairs::kPairs];
          pairs_.take(codes[block][i][step], 0u, pairs);
          factors[block][step][i] = pairs[0];
          factors[block][step][2 + i] = pairs[1];
        }
  }

 private:
  using Pairs = LanePairs<T, WeightFormat::kFp8>;

  const Pairs pairs_;
};

}  // namespace attend::kernels::cuda::sm90
