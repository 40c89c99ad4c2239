// Loads the queries of a work tile to shared memory: unchanged, or for fp8 keys as f16.
#pragma once

#include <type_traits>

#include "attend/kernels/attention/cuda/common/fp8_convert.cuh"
#include "attend/kernels/attention/cuda/common/work_tile_rows.cuh"
#include "attend/kernels/common/cuda/element_group.cuh"
#include "attend/kernels/common/cuda/ptx/copy.cuh"
#include "attend/kernels/common/cuda/ptx/thread.cuh"

namespace attend::kernels::cuda::sm80 {

// Producer of the queries: starts the copies of a work tile. Their layout in shared memory is [kRows,
// kHeadDimQk] of 16 bits, swizzled for ldmatrix; rows past the request's are zero. Several neighboring
// threads share a row.
template <int kHeadDimQk, int kRows, int kThreads>
__device__ void copy_queries(const AttentionParams& params, const WorkTileRows& rows, char* shared) {
  using Queries = SwizzledRows<kHeadDimQk * 2>;
  constexpr int kPieces = kHeadDimQk / 8, kLanes = 8, kRowsPerRound = kThreads / kLanes;
  static_assert(kPieces % kLanes == 0 && (kRows % kRowsPerRound == 0 || kRows < kRowsPerRound));
  const int first_row = static_cast<int>(threadIdx.x) / kLanes;
  if (kRows < kRowsPerRound && first_row >= kRows) return;
  const int first_piece = static_cast<int>(threadIdx.x) % kLanes;
  const char* q = static_cast<const char*>(params.q.data);
  const uint32_t to = ptx::shared_address(shared) + Queries::offset(first_row, first_piece);
#pragma unroll
  for (int round = 0; round * kRowsPerRound < kRows; ++round) {
    const int tile_row = first_row + round * kRowsPerRound;
    const TileRow row = rows.at(params, tile_row);
    const char* from = q + rows.offset_in(params.q, row) * 2;
#pragma unroll
    for (int piece = 0; piece < kPieces; piece += kLanes) {
      const bool valid = tile_row < rows.num_rows && (first_piece + piece) * 8 < params.head_dim_qk;
      ptx::cp_async_16(to + round * kRowsPerRound * kHeadDimQk * 2 + piece * 16,
                       valid ? from + (first_piece + piece) * 16 : q, valid);
    }
  }
}

// Scales of a row of queries. With fp8 keys, queries of any dtype are converted to f16, in the column order
// of Fp8WarpTile. Powers of two scale a row to the range of f16 and back; bf16 has 3 more exponent bits.
struct RowScale {
  float to_f16, from_f16;
};
// Returns the scale of a row with largest magnitude `row_absmax`. The scaled maximum is in [2^8, 2^9), far
// below the largest f16, and the error is below 2^-23 of it.
__device__ inline RowScale row_scale(float row_absmax) {
  constexpr int kBias = 127, kExponent = 8;
  const int exponent =
      min(max(static_cast<int>(__float_as_uint(row_absmax) >> 23), kExponent + 1), 2 * kBias);
  return {__int_as_float((2 * kBias + kExponent - exponent) << 23),
          __int_as_float((exponent - kExponent) << 23)};
}

// Writes a row to row `row` at shared address `rows`, and returns the scale to undo in the scores. Eight
// threads hold a row of 8 * 8 * kGroups columns; thread `lane` (of 8) has pieces lane, lane + 8, ... of 8
// columns.
//
// In every 16 columns, 4 c and 4 c + 1 move to positions 2 c and 2 c + 1, and 4 c + 2 and 4 c + 3 to 2 c + 8
// and 2 c + 9.
template <int kHeadDim, int kGroups>
__device__ float store_f16_queries(const float (&columns)[kGroups][kGroupElements], char* rows, int row,
                                   int lane) {
  using Rows = SwizzledRows<kHeadDim * 2>;
  float row_absmax = 0.0f;
#pragma unroll
  for (int g = 0; g < kGroups; ++g)
#pragma unroll
    for (float x : columns[g]) row_absmax = fmaxf(row_absmax, fabsf(x));
#pragma unroll
  for (int step = 4; step > 0; step /= 2)
    row_absmax = fmaxf(row_absmax, __shfl_xor_sync(0xffffffffu, row_absmax, step));
  const RowScale scale = row_scale(row_absmax);
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
    uint32_t words[kGroupElements / 2];
#pragma unroll
    for (int w = 0; w < kGroupElements / 2; ++w)
      words[w] = pack(columns[g][2 * w] * scale.to_f16, columns[g][2 * w + 1] * scale.to_f16, __half());
    const int piece = lane + 8 * g, first = piece / 2 * 2;
    *reinterpret_cast<uint2*>(rows + Rows::offset(row, first) + piece % 2 * 8) =
        make_uint2(words[0], words[2]);
    *reinterpret_cast<uint2*>(rows + Rows::offset(row, first + 1) + piece % 2 * 8) =
        make_uint2(words[1], words[3]);
  }
  return scale.from_f16;
}

// Producer of 16-bit queries for fp8 keys: like copy_queries(), but through registers, so that keys are being
// loaded before queries are converted. Each row is scaled by a power of two, which scale_scores() undoes.
template <int kHeadDimQk, int kRows, int kThreads>
class ConvertedQueries {
  static constexpr int kLanes = 8, kRowsPerRound = kThreads / kLanes, kGroups = kHeadDimQk / 8 / kLanes;
  static constexpr int kRounds = kRows < kRowsPerRound ? 1 : kRows / kRowsPerRound;
  static_assert(kHeadDimQk / 8 % kLanes == 0 && (kRows % kRowsPerRound == 0 || kRows < kRowsPerRound));

 public:
  // Issues the loads.
  __device__ void load(const AttentionParams& params, const WorkTileRows& rows) {
#pragma unroll
    for (int round = 0; round < kRounds; ++round) {
      const TileRow row = rows.at(params, tile_row(round));
      const auto* from = static_cast<const uint16_t*>(params.q.data) + rows.offset_in(params.q, row);
#pragma unroll
      for (int g = 0; g < kGroups; ++g) {
        const int column = (lane() + g * kLanes) * kGroupElements;
        bits_[round][g] = make_uint4(0, 0, 0, 0);
        if (tile_row(round) < rows.num_rows && column < params.head_dim_qk)
          bits_[round][g] = *reinterpret_cast<const uint4*>(from + column);
      }
    }
  }

  // Stores queries to [kRows, kHeadDimQk] at `shared`, and the factors of each row's scores, including
  // `score_scale`, to `row_scales`.
  __device__ void store(const AttentionParams& params, float score_scale, char* shared,
                        float* row_scales) const {
    // Exits whole warps only.
    if (kRows < kRowsPerRound && static_cast<int>(threadIdx.x) >= kRows * kLanes) return;
#pragma unroll
    for (int round = 0; round < kRounds; ++round) {
      float columns[kGroups][kGroupElements];
#pragma unroll
      for (int g = 0; g < kGroups; ++g) {
        if (params.q_element == Element::kBF16)
          convert_16_bit_group<__nv_bfloat16>(bits_[round][g], columns[g]);
        else
          convert_16_bit_group<__half>(bits_[round][g], columns[g]);
      }
      const float scale = store_f16_queries<kHeadDimQk>(columns, shared, tile_row(round), lane());
      if (lane() == 0) row_scales[tile_row(round)] = scale * score_scale;
    }
  }

 private:
  __device__ static int lane() { return static_cast<int>(threadIdx.x) % kLanes; }
  __device__ static int tile_row(int round) {
    return static_cast<int>(threadIdx.x) / kLanes + round * kRowsPerRound;
  }

  uint4 bits_[kRounds][kGroups];
};

}  // namespace attend::kernels::cuda::sm80
