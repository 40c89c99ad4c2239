// Online softmax of prefill on sm_90a (prefill.cuh, prefill_e4m3.cuh): each thread processes its part of a
// row.
#pragma once

#include "attend/kernels/attention/cuda/common/row_state.cuh"
#include "attend/kernels/attention/cuda/common/warp_rows.cuh"
#include "attend/kernels/attention/cuda/common/work_tile_rows.cuh"
#include "attend/kernels/attention/cuda/sm90/prefill/prefill_loads.cuh"
#include "attend/kernels/common/cuda/ptx/thread.cuh"

namespace attend::kernels::cuda::sm90 {

// Mask of a thread's scores of a KV tile: bit 2 n + i of bits[half] for element [4 n + 2 half + i].
struct ScoreMask {
  uint32_t bits[2];
};

// A consumer warpgroup's 64 rows: scores of a KV tile, output accumulators, and state of the online softmax.
// A thread holds rows 16 w + l / 4 and 16 w + l / 4 + 8 (`half` 0 and 1), w its warp and l its lane; element
// [4 n + 2 half + i] of scores is of key 8 n + 2 (l % 4) + i. `Precision` has
//   kSlack    P may be up to 2^kSlack relative to a stale row max before the row max is raised
//   kOffset   P is scaled by 2^kOffset
template <int kKeys, int kColumns, class Precision>
struct PrefillSoftmax {
  static constexpr float kSlack = Precision::kSlack, kOffset = Precision::kOffset;

  // Shift of a row without keys so far: P of its first key overflows unless the row max is raised before.
  static constexpr float kNoMaxShift = -3e38f;

  float scores[kKeys / 2];
  float out[kColumns / 2];
  // Row max of unscaled scores; stale by at most kSlack after scaling.
  float row_max[2];
  float row_sum[2];  // sum over this lane's columns only
  float rescale[2], shifts[2];
  bool rescales;

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (float& x : out) x = 0.0f;
    clear_state();
  }
  // Clears all state except out.
  __device__ __forceinline__ void clear_state() {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      row_max[half] = -INFINITY;
      row_sum[half] = 0.0f;
    }
  }

  __device__ __forceinline__ static bool has_windows(const BatchParams& batch) {
    return batch.window_left >= 0 || batch.chunk > 0;
  }
  // Returns the end of those of `keys` that the thread's row attends to, without windows and chunks. `row`:
  // index in the work tile; the result for rows past its last one is not used.
  __device__ __forceinline__ static int row_key_end(const AttentionParams& params, const WorkTileRows& rows,
                                                    int row, const KeyRange& keys) {
    const int position = query_position<false>(params.batch, rows.span, rows.at(params, row).query);
    return min(position + params.batch.window_right + 1, keys.end);
  }
  // Returns the mask of those of `keys` that the thread's rows attend to, in the KV tile that begins at
  // `first_key`. `first_row`: the thread's first row in the work tile.
  __device__ __forceinline__ static ScoreMask score_mask(const AttentionParams& params,
                                                         const WorkTileRows& rows, int first_row,
                                                         int first_key, const KeyRange& keys) {
    const int first_column = first_key + ptx::lane() % 4 * 2;
    const uint32_t before = scores_below(keys.begin - first_column);
    const bool windows = has_windows(params.batch);
    ScoreMask visible;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = first_row + 8 * half;
      if (!windows) {
        visible.bits[half] = scores_below(row_key_end(params, rows, row, keys) - first_column) & ~before;
      } else {
        const UnmaskedRange range =
            unmasked_range(params.batch, rows.span,
                           query_position<false>(params.batch, rows.span, rows.at(params, row).query));
        visible.bits[half] = scores_below(min(range.hi + 1, keys.end) - first_column) &
                             ~(before | scores_below(range.lo - first_column));
      }
    }
    return visible;
  }
  // Same, from the ends of the rows' keys.
  __device__ __forceinline__ static ScoreMask score_mask(const int (&ends)[2], int first_key, int begin) {
    const int first_column = first_key + ptx::lane() % 4 * 2;
    const uint32_t before = scores_below(begin - first_column);
    ScoreMask visible;
#pragma unroll
    for (int half = 0; half < 2; ++half)
      visible.bits[half] = scores_below(ends[half] - first_column) & ~before;
    return visible;
  }
  // Returns the bits of a row's scores in the first `num_columns` columns, counted from the lane's first one.
  __device__ __forceinline__ static uint32_t scores_below(int num_columns) {
    static_assert(kKeys <= 128);
    const int within = min(max(num_columns, 0), kKeys);
    return static_cast<uint32_t>((uint64_t{1} << (within / 8 * 2 + min(within % 8, 2))) - 1);
  }
  // Sets masked scores to -inf.
  __device__ __forceinline__ void mask_scores(const ScoreMask& visible) {
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
        for (int i = 0; i < 2; ++i)
          if ((visible.bits[half] >> (2 * n + i) & 1) == 0) scores[4 * n + 2 * half + i] = -INFINITY;
  }

  // First half of the online softmax: updates the row max and `rescale`, the factor of out and row_sum so
  // far. Only a row's own scores decide this, so its bits do not depend on neighboring rows.
  __device__ __forceinline__ void raise_max(float softmax_scale_log2) {
    bool changed = false;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float new_max = row_max[half];
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n)
        new_max = fmaxf(new_max, fmaxf(scores[4 * n + 2 * half], scores[4 * n + 2 * half + 1]));
      new_max = quad_max(new_max);
      if ((new_max - row_max[half]) * softmax_scale_log2 <= kSlack) new_max = row_max[half];
      const float shift = new_max == -INFINITY ? kNoMaxShift : __fmul_rn(new_max, softmax_scale_log2);
      // The product is rounded separately, so the factor is exactly 1 if the row max does not change.
      rescale[half] = ptx::ex2_approx(__fmul_rn(row_max[half], softmax_scale_log2) - shift);
      changed |= new_max != row_max[half];
      row_max[half] = new_max;
      shifts[half] = shift - kOffset;
    }
    rescales = __any_sync(0xffffffffu, changed);
  }
};

// Results of a work tile on sm_90a: addresses, output scale and LSE.

// Returns the calling thread's first row in the work tile. `warpgroup`: consumer index.
template <class Tile>
__device__ __forceinline__ int prefill_row(int warpgroup) {
  return warpgroup * Tile::kConsumerRows + ptx::warp_in_warpgroup() * 16 + ptx::lane() / 4;
}

// Lane l of the four lanes of a row receives word l of each.
__device__ __forceinline__ void quad_transpose(uint32_t (&words)[4], int lane) {
#pragma unroll
  for (int step = 1; step <= 2; step *= 2) {
    const bool upper = (lane & step) != 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if ((i & step) != 0) continue;
      const uint32_t received = __shfl_xor_sync(0xffffffffu, upper ? words[i] : words[i | step], step);
      (upper ? words[i] : words[i | step]) = received;
    }
  }
}

// Common part of the epilogues of prefill. A thread holds rows `first_row` and `first_row` + 8 of the work
// tile.
class PrefillResults {
 protected:
  __device__ PrefillResults(const AttentionParams& params, const WorkTileRows& rows, int first_row)
      : params_(params), rows_(rows), first_row_(first_row) {}

  // Returns the factor of the row's output.
  template <class Rows>
  __device__ __forceinline__ float load_head_scale(const Rows& rows, int half,
                                                   float softmax_scale_log2) const {
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

  // Computes __frcp_rn() of an `x` that is neither denormal nor too large for it. The row sum of a row with
  // keys is such a number: it includes P of the row max, or of a slightly smaller score.
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
