// Results of a work tile on sm_90a: where they lie, and the LSE.
#pragma once

#include "attend/kernels/attention/cuda/common/row_state.cuh"
#include "attend/kernels/attention/cuda/common/work_tile_rows.cuh"
#include "attend/kernels/common/cuda/ptx/lane.cuh"
#include "attend/kernels/common/cuda/ptx/reciprocal.cuh"

namespace attend::kernels::cuda::sm90 {

// The work tile's row that the present thread begins with, of the consumers' `warpgroup`.
template <class Tile>
__device__ __forceinline__ int prefill_row(int warpgroup) {
  return warpgroup * Tile::kConsumerRows + ptx::warp_of_warpgroup() * 16 + ptx::lane() / 4;
}

// Lane l of the four that share a row gets word l of each.
__device__ __forceinline__ void quad_transpose(uint32_t (&words)[4], int lane) {
#pragma unroll
  for (int step = 1; step <= 2; step *= 2) {
    const bool upper = (lane & step) != 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if ((i & step) != 0) continue;
      const uint32_t got = __shfl_xor_sync(0xffffffffu, upper ? words[i] : words[i | step], step);
      (upper ? words[i] : words[i | step]) = got;
    }
  }
}

// What epilogues of prefill share: a thread has `first_row` of the work tile and 8 further.
class PrefillResults {
 protected:
  __device__ PrefillResults(const AttentionParams& params, const WorkTileRows& rows, int first_row)
      : params_(params), rows_(rows), first_row_(first_row) {}

  // What the row's output is to be multiplied by.
  template <class Rows>
  __device__ __forceinline__ float scale_of(const Rows& rows, int half, float softmax_scale_log2) const {
    if (params_.sinks != nullptr) return result(rows, half, softmax_scale_log2, row(half).head).out_scale;
    return rows.row_sum[half] == 0.0f ? 0.0f : params_.v_scale * reciprocal(rows.row_sum[half]);
  }

  template <class Rows>
  __device__ __forceinline__ void write_lse(const Rows& rows, float softmax_scale_log2) const {
    if (params_.lse == nullptr) return;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const TileRow at = row(half);
      const float lse = result(rows, half, softmax_scale_log2, at.head).lse;
      if (lane_ % 4 == 0 && first_row_ + 8 * half < rows_.num_rows)
        params_.lse[(rows_.span.first_token + at.query) * params_.lse_token_stride +
                    at.head * params_.lse_head_stride] = lse;
    }
  }

  __device__ char* out_row(int tile_row, int element_bytes) const {
    return static_cast<char*>(params_.out.data) +
           rows_.offset_in(params_.out, rows_.at(params_, tile_row)) * element_bytes;
  }

  // __frcp_rn() of what is neither denormal nor too large for that, with which the row sum of a row that sees
  // keys has nothing to do: the P of its max, or of one that is little smaller, is among it.
  __device__ __forceinline__ static float reciprocal(float x) {
    const float rough = ptx::rcp_approx(x);
    return __fmaf_rn(rough, -__fmaf_rn(rough, x, -1.0f), rough);
  }
  __device__ __forceinline__ TileRow row(int half) const {
    return rows_.at(params_, min(first_row_ + 8 * half, rows_.num_rows - 1));
  }
  template <class Rows>
  __device__ __forceinline__ RowResult result(const Rows& rows, int half, float softmax_scale_log2,
                                                    int head) const {
    return finish_row(params_, rows.row_max[half], rows.row_sum[half], softmax_scale_log2, head);
  }

  const AttentionParams& params_;
  const WorkTileRows rows_;
  const int first_row_;
  const int lane_ = ptx::lane();
};

}  // namespace attend::kernels::cuda::sm90
