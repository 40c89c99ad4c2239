// Quantized GEMM tile: x W^T on mma.sync, with W dequantized in registers.
//
//   tile        16 or 64 rows of x x two pieces of 16 rows of W: 32 outputs, or gate and up of 16
//   warps       8, all alike: warp w has the K-blocks w, w + 8, ...; their sums are added in the order of
//               warps
//   registers   quantized values of the next K-block are loaded while one is multiplied; x too with 16 rows
//   shared      9.2 KB: sums of eight rows of x of all warps
//   bytes       W once per tile of rows, 16 bytes per lane; x from L2
//   bound       reading W up to about 16 rows, then dequantization, then tensor cores
//
// W is operand A, so that 16 of its rows fill the instruction even if x has few rows. Scales multiply sums in
// float32: 4 multiplications per 32 inputs of two rows (4 bits), or per 64 (8 bits).
#pragma once

#include "attend/kernels/common/cuda/element.cuh"
#include "attend/kernels/common/cuda/ptx/mma.cuh"
#include "attend/kernels/gemm/cuda/common/dequantize.cuh"
#include "attend/kernels/gemm/cuda/common/load_weight.cuh"
#include "attend/kernels/gemm/cuda/sm80/quantized_gemm_kernel.h"

namespace attend::kernels::cuda::sm80 {

inline constexpr int kQuantizedWarps = 8, kQuantizedThreads = 32 * kQuantizedWarps;
inline constexpr int kWeightPieces = 2, kPieceRows = 16;  // of W
inline constexpr int kPieceOutputs = kWeightPieces * kPieceRows;
inline constexpr int kRowsPerPiece = 8;  // of x

// Sums of eight rows of x, per warp. The outputs of a row are contiguous; the row stride avoids bank
// conflicts.
struct QuantizedAccumulators {
  static constexpr int kStride = kPieceOutputs + 4;
  float warp_sums[kQuantizedWarps][kRowsPerPiece * kStride];

  // Returns the sum over warps, in warp order.
  __device__ float total(int row, int output) const {
    float sum = warp_sums[0][row * kStride + output];
#pragma unroll
    for (int warp = 1; warp < kQuantizedWarps; ++warp) sum += warp_sums[warp][row * kStride + output];
    return sum;
  }
};

// Accumulators of a tile. kRowPieces: number of pieces of eight rows of x.
template <class T, WeightFormat kFormat, int kRowPieces>
class QuantizedTile {
  using Block = QuantizedBlock<kFormat>;
  static constexpr int kXVectors = Block::kLaneInputs / 8;  // 16-byte loads per row of x and part
  static constexpr bool kLoadsAhead = kRowPieces <= 2;      // loads all of x of a K-block ahead

 public:
  // x_row(i) returns the row of x for row i of the tile, or -1 for none. weight_row(piece, i) returns the row
  // of W, clamped to the last one.
  template <class XRow, class WeightRow>
  __device__ QuantizedTile(const void* x, int64_t x_stride, const QuantizedWeight& weight, const XRow& x_row,
                           const WeightRow& weight_row)
      : x_(static_cast<const T*>(x)), x_stride_(x_stride), weight_(weight) {
#pragma unroll
    for (int n = 0; n < kRowPieces; ++n) x_rows_[n] = x_row(n * kRowsPerPiece + lane_ / 4);
    const int64_t row_bytes = Block::kFourBits ? weight.in_features / 2 : weight.in_features;
#pragma unroll
    for (int m = 0; m < kWeightPieces; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int64_t row = weight_row(m, 8 * half + lane_ / 4);
        codes_[m][half] = static_cast<const uint8_t*>(weight.data) + row * row_bytes;
        scales_[m][half] = row_scales_begin(weight, row);
      }
  }

  __device__ __forceinline__ void multiply() {
    const int num_blocks = (weight_.in_features + Block::kInputs - 1) / Block::kInputs;
    Codes next;
    load_quantized(warp_, next);
#pragma unroll 1
    for (int block = warp_; block < num_blocks; block += kQuantizedWarps) {
      Codes codes = next;
      load_quantized(block + kQuantizedWarps, next);
      multiply_block(block * Block::kInputs, codes);
    }
  }

  // Calls write(row, output, sum) for rows of the tile and outputs 0 to 31; called by all threads together.
  // For a gated product calls write(row, output, gate, up) with outputs 0 to 15.
  template <bool kGated, class Write>
  __device__ __forceinline__ void write(QuantizedAccumulators& shared, const Write& write) const {
#pragma unroll
    for (int n = 0; n < kRowPieces; ++n) {
      __syncthreads();  // no thread reads the previous sums
#pragma unroll
      for (int m = 0; m < kWeightPieces; ++m)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int row = 2 * (lane_ % 4) + i % 2, output = kPieceRows * m + 8 * (i / 2) + lane_ / 4;
          shared.warp_sums[warp_][row * QuantizedAccumulators::kStride + output] = sums_[n][m][i];
        }
      __syncthreads();
      const int thread = static_cast<int>(threadIdx.x);
      const int row = thread / kPieceOutputs, output = thread % kPieceOutputs;
      if constexpr (kGated) {
        if (output < kPieceRows)
          write(n * kRowsPerPiece + row, output, shared.total(row, output),
                shared.total(row, kPieceRows + output));
      } else {
        write(n * kRowsPerPiece + row, output, shared.total(row, output));
      }
    }
  }

 private:
  // 16 bytes of each of a lane's rows.
  struct Codes {
    uint32_t words[kWeightPieces][2][4];
  };
  using Pairs = uint32_t[Block::kLaneInputs / 2];  // of one row of x and one part
  using Scales = float[kWeightPieces][2];

  static __device__ __forceinline__ void unpack(const uint4& from, uint32_t* to) {
    to[0] = from.x;
    to[1] = from.y;
    to[2] = from.z;
    to[3] = from.w;
  }

  // Loads zeros past the last input. x is 0 there too, so their value does not matter.
  __device__ __forceinline__ void load_quantized(int block, Codes& codes) const {
    const int input = block * Block::kInputs + lane_ % 4 * Block::kInputsPer16Bytes;
    const int byte = Block::kFourBits ? input / 2 : input;
    const bool given = input < weight_.in_features;
#pragma unroll
    for (int m = 0; m < kWeightPieces; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        unpack(given ? __ldg(reinterpret_cast<const uint4*>(codes_[m][half] + byte)) : make_uint4(0, 0, 0, 0),
               codes.words[m][half]);
  }

  // Loads a lane's inputs of row piece n for the part that starts at input `first`.
  __device__ __forceinline__ void load_x(int n, int first, Pairs& pairs) const {
    const int input = first + lane_ % 4 * Block::kLaneInputs;
    const bool given = x_rows_[n] >= 0 && input < weight_.in_features;
    const T* const from = x_ + x_rows_[n] * x_stride_ + input;
#pragma unroll
    for (int i = 0; i < kXVectors; ++i)
      unpack(given ? reinterpret_cast<const uint4*>(from)[i] : make_uint4(0, 0, 0, 0), pairs + 4 * i);
  }

  __device__ __forceinline__ void load_scales(int group, Scales& scales,
                                              uint32_t (&zeros)[kWeightPieces][2]) const {
#pragma unroll
    for (int m = 0; m < kWeightPieces; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int64_t at = scales_[m][half] + group;
        scales[m][half] = load_scale(weight_, at);
        if constexpr (kFormat == WeightFormat::kInt4)
          zeros[m][half] = shifted_zero<T>(load_zero(weight_, at));
      }
  }

  __device__ __forceinline__ void multiply_block(int first, Codes& codes) {
    if constexpr (Block::kFourBits) {
#pragma unroll
      for (int m = 0; m < kWeightPieces; ++m)
#pragma unroll
        for (int half = 0; half < 2; ++half) exchange_words(codes.words[m][half], lane_ % 4);
    }
    Pairs ahead[kLoadsAhead ? Block::kParts : 1][kLoadsAhead ? kRowPieces : 1];
    if constexpr (kLoadsAhead) {
#pragma unroll
      for (int part = 0; part < Block::kParts; ++part)
#pragma unroll
        for (int n = 0; n < kRowPieces; ++n) load_x(n, first + part * Block::kPartInputs, ahead[part][n]);
    }
    int group = -1;
    Scales scales;
    uint32_t zeros[kWeightPieces][2] = {};
#pragma unroll
    for (int part = 0; part < Block::kParts; ++part) {
      const int begin = first + part * Block::kPartInputs;
      if (begin >= weight_.in_features) break;
      const int own_group = input_group(weight_, begin);
      if (own_group != group) load_scales(own_group, scales, zeros);
      group = own_group;

      uint32_t factors[Block::kSteps][kWeightPieces][4];
#pragma unroll
      for (int step = 0; step < Block::kSteps; ++step)
#pragma unroll
        for (int m = 0; m < kWeightPieces; ++m)
#pragma unroll
          for (int half = 0; half < 2; ++half)
            dequantize_step<T, kFormat>(codes.words[m][half][Block::kFourBits ? part : step], step,
                                        zeros[m][half], factors[step][m][half], factors[step][m][half + 2]);
#pragma unroll
      for (int n = 0; n < kRowPieces; ++n) {
        if constexpr (kLoadsAhead) {
          multiply_part(n, ahead[part][n], factors, scales);
        } else {
          Pairs pairs;
          load_x(n, begin, pairs);
          multiply_part(n, pairs, factors, scales);
        }
      }
    }
  }

  __device__ __forceinline__ void multiply_part(int n, const Pairs& x,
                                                const uint32_t (&factors)[Block::kSteps][kWeightPieces][4],
                                                const Scales& scales) {
    float products[kWeightPieces][4] = {};
#pragma unroll
    for (int step = 0; step < Block::kSteps; ++step) {
      uint32_t first, second;
      load_x_pairs<kFormat>(x, step, first, second);
#pragma unroll
      for (int m = 0; m < kWeightPieces; ++m)
        ptx::mma_m16n8k16(products[m], factors[step][m], first, second, T{});
    }
#pragma unroll
    for (int m = 0; m < kWeightPieces; ++m)
#pragma unroll
      for (int i = 0; i < 4; ++i) sums_[n][m][i] = fmaf(products[m][i], scales[m][i / 2], sums_[n][m][i]);
  }

  const T* const x_;
  const int64_t x_stride_;
  const QuantizedWeight& weight_;
  const int warp_ = static_cast<int>(threadIdx.x) / 32, lane_ = static_cast<int>(threadIdx.x) % 32;
  int x_rows_[kRowPieces];
  const uint8_t* codes_[kWeightPieces][2];  // start of a lane's rows of W
  int64_t scales_[kWeightPieces][2];
  float sums_[kRowPieces][kWeightPieces][4] = {};
};

}  // namespace attend::kernels::cuda::sm80
