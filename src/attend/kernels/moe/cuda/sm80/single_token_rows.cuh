// Rows of W in the registers of single-token experts: one policy class per weight format.
#pragma once

#include <cstdint>

#include "attend/kernels/common/cuda/ptx/copy.cuh"
#include "attend/kernels/common/cuda/ptx/global_memory.cuh"
#include "attend/kernels/common/cuda/ptx/mma.cuh"
#include "attend/kernels/gemm/cuda/common/quantized_weight.h"
#include "attend/kernels/moe/cuda/sm80/mxfp4_sums.cuh"

namespace attend::kernels::cuda::sm80 {

// A lane's part of two rows of W, and the layout of its pieces of x, 16 bytes each. One policy class per
// format. This one has elements of the dtype of x: a lane has 8 neighboring inputs of each row.
template <class T>
class SingleTokenPlainRows {
 public:
  static constexpr int kInputs = 32, kDepth = 5;
  static constexpr bool kLanesSum = false;  // true if each of a row's four lanes has a separate sum
  static constexpr bool kPlain = true;      // supports shared experts, and products without gates
  static constexpr float kFromSums = 1.0f;  // final factor of the sums
  static constexpr int kGatedSlices = 4;    // warps that share K
  struct Block {
    uint4 low, high;
  };

  __device__ SingleTokenPlainRows(const T* low_row, const T* high_row, int in_features)
      : in_features_(in_features), low_(low_row + first_input()), high_(high_row + first_input()) {}

  __device__ __forceinline__ Block load(int k_block) const {
    const int input = k_block * kInputs;
    if (input + first_input() >= in_features_) return {};
    return {ptx::ld_global_16_by_policy(low_ + input, policy_),
            ptx::ld_global_16_by_policy(high_ + input, policy_)};
  }
  static __device__ __forceinline__ int place(int piece) { return piece; }
  // Position of an input among its eight, and the eight inputs in that order.
  static __device__ __forceinline__ int place_in_piece(int input) { return input; }
  static __device__ __forceinline__ uint4 ordered(const uint4& x) { return x; }

  // A lane's 8 inputs are two mma steps; the order of inputs within a K-block is the same for both operands.
  static __device__ __forceinline__ void multiply(const Block& block, uint32_t x_row, int k_block,
                                                  float (&sums)[4]) {
    const uint4 x = ptx::ld_shared_16(x_row + (k_block * 4 + threadIdx.x % 4) * 16);
    const uint32_t even[4] = {block.low.x, block.high.x, block.low.y, block.high.y},
                   odd[4] = {block.low.z, block.high.z, block.low.w, block.high.w};
    ptx::mma_m16n8k16(sums, even, x.x, x.y, T{});
    ptx::mma_m16n8k16(sums, odd, x.z, x.w, T{});
  }

 private:
  __device__ static int first_input() { return static_cast<int>(threadIdx.x) % 4 * 8; }

  int in_features_;
  const T* low_;
  const T* high_;
  // W is read once. Data that other kernels of the step read again stays in L2.
  const uint64_t policy_ = ptx::createpolicy_evict_first();
};

// mxfp4: a lane has 32 neighboring inputs of each row, which share a scale. The single row of x has separate
// columns for each of the four lanes of a row of W, and zeros elsewhere: columns 2 j and 2 j + 1 contain the
// inputs of lane j only. So a lane's sums are those of its own rows and inputs, and are multiplied by their
// scale (mxfp4_sums.cuh).
template <int kDepth_>
class SingleTokenMxFp4Rows {
 public:
  static constexpr int kInputs = 128, kDepth = kDepth_;
  static constexpr bool kLanesSum = true, kPlain = false;
  static constexpr int kGatedSlices = 2;
  static constexpr float kFromSums = MxFp4Sums::kFromSums;
  struct Block {
    uint4 low, high;
    uint32_t low_exponent, high_exponent;
  };

  __device__ SingleTokenMxFp4Rows(const QuantizedWeight& weight, int64_t low_row, int64_t high_row)
      : in_features_(weight.in_features),
        low_(static_cast<const uint8_t*>(weight.data) + low_row * (in_features_ / 2) + first_input() / 2),
        high_(static_cast<const uint8_t*>(weight.data) + high_row * (in_features_ / 2) + first_input() / 2),
        low_scales_(static_cast<const uint8_t*>(weight.scales) + low_row * weight.scale_columns +
                    threadIdx.x % 4),
        high_scales_(static_cast<const uint8_t*>(weight.scales) + high_row * weight.scale_columns +
                     threadIdx.x % 4) {}

  __device__ __forceinline__ Block load(int k_block) const {
    const int input = k_block * kInputs;
    if (input + first_input() >= in_features_) return {};
    return {__ldg(reinterpret_cast<const uint4*>(low_ + input / 2)),
            __ldg(reinterpret_cast<const uint4*>(high_ + input / 2)), __ldg(low_scales_ + k_block * 4),
            __ldg(high_scales_ + k_block * 4)};
  }
  // The four lanes' pieces for one word of quantized values are adjacent.
  static __device__ __forceinline__ int place(int piece) {
    return piece / 16 * 16 + piece % 4 * 4 + piece / 4 % 4;
  }
  static __device__ __forceinline__ int place_in_piece(int input) { return MxFp4Sums::place_in_piece(input); }
  static __device__ __forceinline__ uint4 ordered(const uint4& x) {
    return MxFp4Sums::raised(MxFp4Sums::in_pairs(x));
  }

  // `x_row`: address of this lane's column, or of a K-block of zeros.
  static __device__ __forceinline__ void multiply(const Block& block, uint32_t x_row, int k_block,
                                                  float (&sums)[4]) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    float products[4] = {};
    MxFp4Sums::add_group(block.low, block.high,
                         x_row + lane % 4 * 16 + (lane / 8 == lane % 4 ? k_block * 256 : 0), products);
    sums[0] = fmaf(products[0], MxFp4Sums::to_scale(block.low_exponent), sums[0]);
    sums[2] = fmaf(products[2], MxFp4Sums::to_scale(block.high_exponent), sums[2]);
  }

 private:
  __device__ static int first_input() { return static_cast<int>(threadIdx.x) % 4 * 32; }

  int in_features_;
  const uint8_t* low_;
  const uint8_t* high_;
  const uint8_t* low_scales_;
  const uint8_t* high_scales_;
};

}  // namespace attend::kernels::cuda::sm80
