// K-block of a warp of the skinny experts (skinny_experts.cuh): rows of W of 16 outputs (if gated, of gate
// and of up) and rows of x, copied with cp.async and multiplied with mma.m16n8k16, with W as operand A. One
// policy class per weight format.
#pragma once

#include "attend/kernels/common/cuda/ptx/copy.cuh"
#include "attend/kernels/common/cuda/ptx/copy_word.cuh"
#include "attend/kernels/common/cuda/ptx/mma.cuh"
#include "attend/kernels/gemm/cuda/common/dequantize.cuh"
#include "attend/kernels/gemm/cuda/common/k_block_order.cuh"
#include "attend/kernels/moe/cuda/common/grouped_tile.cuh"
#include "attend/kernels/moe/cuda/sm80/skinny_experts_kernel.h"

namespace attend::kernels::cuda::sm80 {

// Rows of W of a tile: gate rows have stride `step`, and up rows follow after `to_up` rows.
struct ExpertWeightRows {
  int64_t first = 0;  // first row of the tile
  int64_t step = 0, to_up = 0;

  ExpertWeightRows() = default;
  __device__ __forceinline__ ExpertWeightRows(const SkinnyExpertsParams& params, int expert, int first_output)
      : first(int64_t{expert} * (params.gated ? 2 : 1) * params.out_features +
              (params.alternating ? 2 : 1) * first_output),
        step(params.alternating ? 2 : 1),
        to_up(params.alternating ? 1 : params.out_features) {}
  __device__ __forceinline__ int64_t row(int half, int output) const {
    return first + output * step + half * to_up;
  }
};

// Elements of the dtype of x. K-blocks of 64 inputs.
template <class T, int kHalves, int kRowPieces>
class PlainBlocks {
 public:
  static constexpr int kInputs = kBlockK;
  static constexpr int kXRowsAtOnce = 32 / kPieces;  // rows per copy of all lanes
  static constexpr int kWeightBytes = kHalves * kSkinnyOutputs * kRowBytes;
  static constexpr int kStageBytes = kWeightBytes + 8 * kRowPieces * kRowBytes;
  using Accumulators = float[kHalves][kRowPieces][4];

  // Source of a lane's copies: every fourth row.
  struct From {
    const char* weights;
  };

  __device__ explicit PlainBlocks(const SkinnyExpertsParams& params) : params_(params) {}

  __device__ __forceinline__ From from(int expert, int first_output) const {
    const ExpertWeightRows rows(params_, expert, first_output);
    return {static_cast<const char*>(params_.weight.data) +
            2 * (rows.row(0, lane() / kPieces) * params_.in_features + lane() % kPieces * 8)};
  }

  __device__ __forceinline__ void copy_weights(const From& from, int k_block, uint32_t stage) const {
    const int piece = lane() % kPieces, input = k_block * kInputs + piece * 8;
    const bool given = input < params_.in_features;
    const int64_t row_bytes = 2 * int64_t{params_.in_features};
    const int64_t step = kXRowsAtOnce * (params_.alternating ? 2 : 1) * row_bytes;
    const int64_t to_up = (params_.alternating ? 1 : params_.out_features) * row_bytes;
    const char* const first =
        given ? from.weights + 2 * int64_t{k_block} * kInputs : static_cast<const char*>(params_.weight.data);
#pragma unroll
    for (int half = 0; half < kHalves; ++half)
#pragma unroll
      for (int i = 0; i < kSkinnyOutputs / kXRowsAtOnce; ++i)
        ptx::cp_async_16(stage + half * kSkinnyOutputs * kRowBytes +
                             swizzled_piece(lane() / kPieces + kXRowsAtOnce * i, piece),
                         first + (given ? i * step + half * to_up : 0), given);
  }
  // Copies a row of x. `row`: index among the rows that are copied together; `at`: byte offset of the row in
  // x.
  __device__ __forceinline__ static int lane_x_row() { return lane() / kPieces; }
  __device__ __forceinline__ void copy_x(int row, int64_t at, int k_block, uint32_t stage) const {
    const int piece = lane() % kPieces, input = k_block * kInputs + piece * 8;
    const bool given = input < params_.in_features;
    ptx::cp_async_16(stage + kWeightBytes + swizzled_piece(row, piece),
                     static_cast<const char*>(params_.x) + at + (given ? 2 * input : 0), given);
  }

  __device__ __forceinline__ void multiply(const From&, int, uint32_t stage,
                                           Accumulators& accumulators) const {
    const uint32_t weights_lane = swizzled_piece(lane() % 16, lane() / 16),
                   x_lane = kWeightBytes + swizzled_piece(lane() % 8, lane() / 8);
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) {  // pairs of steps of 16 inputs
      uint32_t x[kRowPieces][4];
#pragma unroll
      for (int n = 0; n < kRowPieces; ++n)
        ptx::ldmatrix_x4(x[n], stage + (x_lane ^ (pair * 64)) + n * 8 * kRowBytes);
#pragma unroll
      for (int step = 0; step < 2; ++step)
#pragma unroll
        for (int half = 0; half < kHalves; ++half) {
          uint32_t weights[4];
          ptx::ldmatrix_x4(
              weights, stage + (weights_lane ^ (pair * 64 + step * 32)) + half * kSkinnyOutputs * kRowBytes);
#pragma unroll
          for (int n = 0; n < kRowPieces; ++n)
            ptx::mma_m16n8k16(accumulators[half][n], weights, x[n][2 * step], x[n][2 * step + 1], T{});
        }
    }
  }

 private:
  __device__ static int lane() { return static_cast<int>(threadIdx.x) % 32; }

  const SkinnyExpertsParams& params_;
};

// mxfp4: e2m1 values, and a power of two per 32 inputs. K-blocks of 128 inputs. A lane copies and multiplies
// 32 inputs, which share a scale, of rows l / 4 and l / 4 + 8. In an mma step, the four lanes of a row have
// different inputs, the same for both operands. Products of value and scale are exact in bf16.
template <class T, int kHalves, int kRowPieces>
class MxFp4Blocks {
  static constexpr int kLaneInputs = 32, kLaneBytes = kLaneInputs / 2;
  static constexpr int kXRowBytes = 2 * 4 * kLaneInputs, kXPieces = kXRowBytes / 16;
  static constexpr int kScaleBytes = 8;  // bytes per row: two words, which contain the four scales
  static constexpr int kQuantizedBytes = kHalves * 2 * 32 * kLaneBytes;

 public:
  static constexpr int kInputs = 4 * kLaneInputs;
  static constexpr int kXRowsAtOnce = 32 / kXPieces;
  static constexpr int kWeightBytes = kQuantizedBytes + kHalves * kSkinnyOutputs * kScaleBytes;
  static constexpr int kStageBytes = kWeightBytes + 8 * kRowPieces * kXRowBytes;
  using Accumulators = float[kHalves][kRowPieces][4];

  // Source of a lane's copies, and positions for its products.
  struct From {
    const char* codes[kHalves][2];
    const char* scales;  // the word that contains the first scale of the row that the lane copies
    int scales_left;     // bytes from there to the end of all scales
    uint32_t shifts;     // scale positions in that word for the rows that the lane multiplies: two bits each
  };

  __device__ explicit MxFp4Blocks(const SkinnyExpertsParams& params) : params_(params) {}

  __device__ __forceinline__ From from(int expert, int first_output) const {
    const ExpertWeightRows rows(params_, expert, first_output);
    From from;
    from.shifts = 0;
#pragma unroll
    for (int half = 0; half < kHalves; ++half)
#pragma unroll
      for (int high = 0; high < 2; ++high) {
        const int64_t row = rows.row(half, lane() / 4 + 8 * high);
        from.codes[half][high] = static_cast<const char*>(params_.weight.data) +
                                 row * (params_.in_features / 2) + lane() % 4 * kLaneBytes;
        from.shifts |= (static_cast<uint32_t>(row) * static_cast<uint32_t>(params_.weight.scale_columns) & 3u)
                       << 2 * (2 * half + high);
      }
    const int copied = lane() % (kHalves * kSkinnyOutputs);
    const int64_t begin =
        rows.row(copied / kSkinnyOutputs, copied % kSkinnyOutputs) * params_.weight.scale_columns &
        ~int64_t{3};
    from.scales = static_cast<const char*>(params_.weight.scales) + begin;
    from.scales_left = static_cast<int>(params_.num_scales - begin);
    return from;
  }

  __device__ __forceinline__ void copy_weights(const From& from, int k_block, uint32_t stage) const {
    const bool given = k_block * kInputs + lane() % 4 * kLaneInputs < params_.in_features;
    const int byte = given ? k_block * (kInputs / 2) : 0;
#pragma unroll
    for (int half = 0; half < kHalves; ++half)
#pragma unroll
      for (int high = 0; high < 2; ++high)
        ptx::cp_async_16(stage + ((half * 2 + high) * 32 + lane()) * kLaneBytes,
                         given ? from.codes[half][high] + byte : params_.weight.data, given);
    // One row per lane.
    if (lane() < kHalves * kSkinnyOutputs) {
      const int left = from.scales_left - 4 * k_block;
      const char* const scales = from.scales + 4 * k_block;
      const uint32_t to = stage + kQuantizedBytes + lane() * kScaleBytes;
      ptx::cp_async_4(to, scales, min(left, 4));
      ptx::cp_async_4(to + 4, left > 4 ? scales + 4 : scales, max(min(left - 4, 4), 0));
    }
  }
  __device__ __forceinline__ static int lane_x_row() { return lane() / kXPieces; }
  __device__ __forceinline__ void copy_x(int row, int64_t at, int k_block, uint32_t stage) const {
    const int piece = lane() % kXPieces, input = k_block * kInputs + piece * 8;
    const bool given = input < params_.in_features;
    ptx::cp_async_16(stage + kWeightBytes + x_piece(row, piece),
                     static_cast<const char*>(params_.x) + at + (given ? 2 * input : 0), given);
  }

  __device__ __forceinline__ void multiply(const From& from, int k_block, uint32_t stage,
                                           Accumulators& accumulators) const {
    const bool given = k_block * kInputs + lane() % 4 * kLaneInputs < params_.in_features;
    uint32_t exponents[kHalves][2], largest = 0;
#pragma unroll
    for (int half = 0; half < kHalves; ++half)
#pragma unroll
      for (int high = 0; high < 2; ++high) {
        const int output = lane() / 4 + 8 * high;
        const uint32_t shift = from.shifts >> 2 * (2 * half + high) & 3u;
        exponents[half][high] = given ? ptx::ld_shared_1(stage + kQuantizedBytes +
                                                         (half * kSkinnyOutputs + output) * kScaleBytes +
                                                         shift + static_cast<uint32_t>(lane() % 4))
                                      : 0;
        largest = max(largest, exponents[half][high]);
      }
    // If 2^126 times the scale is representable in bf16, one product is enough.
    if (__any_sync(0xffffffffu, largest > kMaxSingleProductExponent))
      multiply_quantized<false>(stage, exponents, accumulators);
    else
      multiply_quantized<true>(stage, exponents, accumulators);
  }

 private:
  static constexpr uint32_t kMaxSingleProductExponent = 128;

  __device__ static int lane() { return static_cast<int>(threadIdx.x) % 32; }
  // Returns the address of a piece of x. Lanes read four pieces of a row each, all lanes the same one at a
  // time; those of two rows are in different banks.
  __device__ static uint32_t x_piece(int row, int piece) {
    return static_cast<uint32_t>(row * kXRowBytes + (piece ^ (piece >> 3 | (row & 1) << 1)) * 16);
  }

  template <bool kOneProduct>
  __device__ __forceinline__ void multiply_quantized(uint32_t stage, const uint32_t (&exponents)[kHalves][2],
                                                     Accumulators& accumulators) const {
    uint32_t codes[kHalves][2][4], factors[kHalves][2];
#pragma unroll
    for (int half = 0; half < kHalves; ++half)
#pragma unroll
      for (int high = 0; high < 2; ++high) {
        const uint4 bits = ptx::ld_shared_16(stage + ((half * 2 + high) * 32 + lane()) * kLaneBytes);
        codes[half][high][0] = bits.x;
        codes[half][high][1] = bits.y;
        codes[half][high][2] = bits.z;
        codes[half][high][3] = bits.w;
        // As bf16: 2^(e - 127 + 126), or 2^(e - 127), which is subnormal for e = 0.
        const uint32_t e = exponents[half][high];
        const uint32_t factor = kOneProduct ? (e + 126) << 7 : e == 0 ? 0x40u : e << 7;
        factors[half][high] = factor << 16 | factor;
      }
#pragma unroll
    for (int word = 0; word < 4; ++word) {  // words of eight inputs
      uint32_t x[kRowPieces][4];
#pragma unroll
      for (int n = 0; n < kRowPieces; ++n) {
        const uint4 bits =
            ptx::ld_shared_16(stage + kWeightBytes + x_piece(n * 8 + lane() / 4, lane() % 4 * 4 + word));
        // Inputs j and j + 4, matching the pairs of values of a word.
        x[n][0] = __byte_perm(bits.x, bits.z, 0x5410);
        x[n][1] = __byte_perm(bits.x, bits.z, 0x7632);
        x[n][2] = __byte_perm(bits.y, bits.w, 0x5410);
        x[n][3] = __byte_perm(bits.y, bits.w, 0x7632);
      }
#pragma unroll
      for (int step = 0; step < 2; ++step)
#pragma unroll
        for (int half = 0; half < kHalves; ++half) {
          uint32_t weights[4];
#pragma unroll
          for (int high = 0; high < 2; ++high)
#pragma unroll
            for (int next = 0; next < 2; ++next)
              weights[2 * next + high] =
                  dequantize<kOneProduct>(codes[half][high][word] >> 8 * step, next, factors[half][high]);
#pragma unroll
          for (int n = 0; n < kRowPieces; ++n)
            ptx::mma_m16n8k16(accumulators[half][n], weights, x[n][2 * step], x[n][2 * step + 1], T{});
        }
    }
  }

  // Dequantizes values 0 and 4 of eight, or 1 and 5.
  template <bool kOneProduct>
  __device__ static uint32_t dequantize(uint32_t codes, int code, uint32_t factor) {
    const uint32_t bits = code == 0 ? e2m1_bits<T, 0>(codes) : e2m1_bits<T, 1>(codes);
    return scaled_up<T>(kOneProduct ? bits : scaled_up<T>(bits, PairType<T>::kE2m1Factor), factor);
  }

  const SkinnyExpertsParams& params_;
};

}  // namespace attend::kernels::cuda::sm80
