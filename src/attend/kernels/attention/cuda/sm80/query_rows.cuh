// Queries of a job on their way into shared memory, [kRows, kHeadDimQk] of 16 bits, swizzled as ldmatrix
// wants them.
#pragma once

#include "attend/kernels/attention/cuda/common/job_rows.cuh"
#include "attend/kernels/attention/cuda/common/warp_rows.cuh"
#include "attend/kernels/attention/cuda/sm80/fp8_queries.cuh"
#include "attend/kernels/common/cuda/ptx/copy.cuh"

namespace attend::kernels::cuda::sm80 {

// Starts the copies of a job's queries. Rows beyond the request's are zero. A few neighbouring threads share
// a row.
template <int kHeadDimQk, int kRows, int kThreads>
__device__ void copy_queries(const AttentionParams& params, const JobRows& rows, char* shared) {
  using Queries = SwizzledRows<kHeadDimQk * 2>;
  constexpr int kPieces = kHeadDimQk / 8, kLanes = 8, kRowsPerRound = kThreads / kLanes;
  static_assert(kPieces % kLanes == 0 && kRows % kRowsPerRound == 0);
  const int first_row = static_cast<int>(threadIdx.x) / kLanes;
  const int first_piece = static_cast<int>(threadIdx.x) % kLanes;
  const char* q = static_cast<const char*>(params.q.data);
  const uint32_t to = ptx::shared_address(shared) + Queries::offset(first_row, first_piece);
#pragma unroll
  for (int round = 0; round < kRows / kRowsPerRound; ++round) {
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

// The same as f16, each row scaled by a power of two that unscale_scores() takes back.
template <int kHeadDimQk, int kRows, int kThreads>
__device__ void convert_queries(const AttentionParams& params, const JobRows& rows, char* shared,
                                float* row_scales) {
  constexpr int kLanes = 8, kRowsPerRound = kThreads / kLanes, kGroups = kHeadDimQk / 8 / kLanes;
  static_assert(kHeadDimQk / 8 % kLanes == 0 && kRows % kRowsPerRound == 0);
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
#pragma unroll
  for (int round = 0; round < kRows / kRowsPerRound; ++round) {
    const int tile_row = static_cast<int>(threadIdx.x) / kLanes + round * kRowsPerRound;
    const TileRow row = rows.at(params, tile_row);
    const int64_t from = rows.offset_in(params.q, row);
    float columns[kGroups][kGroupElements] = {};
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      const int column = (lane + g * kLanes) * kGroupElements;
      if (tile_row < rows.num_rows && column < params.head_dim_qk)
        load_group(params.q.data, from + column, params.q_element, columns[g]);
    }
    const float scale = store_f16_queries<kHeadDimQk>(columns, shared, tile_row, lane);
    if (lane == 0) row_scales[tile_row] = scale;
  }
}

}  // namespace attend::kernels::cuda::sm80
