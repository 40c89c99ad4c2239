// Online softmax of prefill on sm_90a (prefill.cuh, prefill_e4m3.cuh), by the thread that has a part of the
// row.
#pragma once

#include "attend/kernels/attention/cuda/common/row_state.cuh"
#include "attend/kernels/attention/cuda/common/warp_rows.cuh"
#include "attend/kernels/attention/cuda/sm90/prefill/prefill_loads.cuh"
#include "attend/kernels/common/cuda/ptx/lane.cuh"

namespace attend::kernels::cuda::sm90 {

// Of a thread's scores of a KV tile: bit 2 n + i of bits[half] for element [4 n + 2 half + i].
struct VisibleScores {
  uint32_t bits[2];
};

// A consumer warpgroup's 64 rows: scores of a KV tile, output accumulators, and what the online softmax knows
// of them. A thread has rows 16 w + l / 4 and 8 further (`half` 0 and 1), w its warp and l its lane; element
// [4 n + 2 half + i] of scores is of key 8 n + 2 (l % 4) + i. `Precision` has
//   kSlack    P may be up to 2^kSlack relative to a stale row max before that is raised
//   kOffset   P is 2^kOffset times as large
template <int kKeys, int kColumns, class Precision>
struct PrefillSoftmax {
  static constexpr float kSlack = Precision::kSlack, kOffset = Precision::kOffset;

  // Of a row that has seen no key: P of its first one overflows where the row max is not raised before.
  static constexpr float kShiftOfNoMax = -3e38f;

  float scores[kKeys / 2];
  float out[kColumns / 2];
  // Row max of unscaled scores; stale by at most kSlack after scaling.
  float row_max[2];
  float row_sum[2];  // of this lane's columns only
  float rescale[2], shifts[2];
  bool rescales;

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (float& x : out) x = 0.0f;
    clear_state();
  }
  // All but out.
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
  // Where what the thread's row sees of `keys` ends, without windows and chunks. `row`: of the work tile;
  // what rows beyond it see is nobody's business.
  __device__ __forceinline__ static int end_of_row(const AttentionParams& params,
                                                   const WorkTileRows& rows, int row,
                                                   const KeyRange& keys) {
    const int position = position_of<false>(params.batch, rows.span, rows.at(params, row).query);
    return min(position + params.batch.window_right + 1, keys.end);
  }
  // Which of `keys` the thread's rows see of the KV tile from `first_key` on. `first_row`: the thread's, of
  // the work tile.
  __device__ __forceinline__ static VisibleScores visible_scores(const AttentionParams& params,
                                                                 const WorkTileRows& rows,
                                                                 int first_row, int first_key,
                                                                 const KeyRange& keys) {
    const int first_column = first_key + ptx::lane() % 4 * 2;
    const uint32_t before = scores_below(keys.begin - first_column);
    const bool windows = has_windows(params.batch);
    VisibleScores visible;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = first_row + 8 * half;
      if (!windows) {
        visible.bits[half] = scores_below(end_of_row(params, rows, row, keys) - first_column) & ~before;
      } else {
        const VisibleRange range = visible_range(
            params.batch, rows.span, position_of<false>(params.batch, rows.span, rows.at(params, row).query));
        visible.bits[half] = scores_below(min(range.hi + 1, keys.end) - first_column) &
                             ~(before | scores_below(range.lo - first_column));
      }
    }
    return visible;
  }
  // The same by the rows' ends.
  __device__ __forceinline__ static VisibleScores visible_scores(const int (&ends)[2], int first_key,
                                                                 int begin) {
    const int first_column = first_key + ptx::lane() % 4 * 2;
    const uint32_t before = scores_below(begin - first_column);
    VisibleScores visible;
#pragma unroll
    for (int half = 0; half < 2; ++half)
      visible.bits[half] = scores_below(ends[half] - first_column) & ~before;
    return visible;
  }
  // Bits of a row's scores in the first `num_columns` columns from the lane's first one on.
  __device__ __forceinline__ static uint32_t scores_below(int num_columns) {
    static_assert(kKeys <= 128);
    const int within = min(max(num_columns, 0), kKeys);
    return static_cast<uint32_t>((uint64_t{1} << (within / 8 * 2 + min(within % 8, 2))) - 1);
  }
  // Mask: other scores become -inf.
  __device__ __forceinline__ void mask_scores(const VisibleScores& visible) {
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
        for (int i = 0; i < 2; ++i)
          if ((visible.bits[half] >> (2 * n + i) & 1) == 0) scores[4 * n + 2 * half + i] = -INFINITY;
  }

  // Online softmax, first half: the row max, and `rescale`, what out and row_sum so far are to be multiplied
  // with. A row's own scores decide whether they are, so its bits do not depend on the rows beside it.
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
      const float shift = new_max == -INFINITY ? kShiftOfNoMax : __fmul_rn(new_max, softmax_scale_log2);
      // The product rounded by itself: exactly 1 for a row whose max stays.
      rescale[half] = ptx::ex2_approx(__fmul_rn(row_max[half], softmax_scale_log2) - shift);
      changed |= new_max != row_max[half];
      row_max[half] = new_max;
      shifts[half] = shift - kOffset;
    }
    rescales = __any_sync(0xffffffffu, changed);
  }
};

}  // namespace attend::kernels::cuda::sm90
