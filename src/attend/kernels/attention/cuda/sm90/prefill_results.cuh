// Results of a work tile on sm_90a: where they lie, and the LSE.
#pragma once

#include "attend/kernels/attention/cuda/common/row_state.cuh"
#include "attend/kernels/attention/cuda/common/work_tile_rows.cuh"
#include "attend/kernels/common/cuda/ptx/thread.cuh"

namespace attend::kernels::cuda::sm90 {

// The work tile's row that the present thread begins with, of the consumers' `warpgroup`.
template <class Tile>
__device__ __forceinline__ int prefill_row(int warpgroup) {
  const int thread = ptx::tid_x();
  return warpgroup * Tile::kConsumerRows + thread / 32 % 4 * 16 + thread % 32 / 4;
}

// What epilogues of prefill share: a thread has `first_row` of the work tile and 8 further.
class PrefillResults {
 protected:
  __device__ PrefillResults(const AttentionParams& params, const sm80::WorkTileRows& rows, int first_row)
      : params_(params), rows_(rows), first_row_(first_row) {}

  // Writes the row's LSE; returns the scale of its output.
  template <class Rows>
  __device__ float finish(const Rows& rows, int half, float softmax_scale_log2) const {
    const int tile_row = first_row_ + 8 * half;
    const sm80::TileRow row = rows_.at(params_, min(tile_row, rows_.num_rows - 1));
    const sm80::RowResult result =
        sm80::finish_row(params_, rows.row_max[half], rows.row_sum[half], softmax_scale_log2, row.head);
    if (params_.lse != nullptr && lane_ % 4 == 0 && tile_row < rows_.num_rows)
      params_.lse[(rows_.span.first_token + row.query) * params_.lse_token_stride +
                  row.head * params_.lse_head_stride] = result.lse;
    return result.out_scale;
  }

  __device__ char* out_row(int tile_row, int element_bytes) const {
    return static_cast<char*>(params_.out.data) +
           rows_.offset_in(params_.out, rows_.at(params_, tile_row)) * element_bytes;
  }

  const AttentionParams& params_;
  const sm80::WorkTileRows rows_;
  const int first_row_;
  const int lane_ = ptx::tid_x() % 32;
};

}  // namespace attend::kernels::cuda::sm90
