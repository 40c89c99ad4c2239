// What becomes of scores between the product with the keys and the softmax.
#pragma once

#include "attend/kernels/attention/cuda/common/job_rows.cuh"
#include "attend/kernels/attention/cuda/common/row_state.cuh"
#include "attend/kernels/common/cuda/ptx/thread.cuh"

namespace attend::kernels::cuda::sm80 {

// Takes back what convert_queries() scaled rows with. `row_scales`: of the warp's first row and on.
template <class Warp>
__device__ void unscale_scores(Warp& warp, const float* row_scales) {
  const int first_row = static_cast<int>(threadIdx.x) % 32 / 4;
#pragma unroll
  for (int b = 0; b < Warp::kNumRowBlocks; ++b) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float scale = row_scales[first_row + b * 16 + half * 8];
#pragma unroll
      for (auto& eight : warp.scores[b]) {
        eight[2 * half] *= scale;
        eight[2 * half + 1] *= scale;
      }
    }
  }
}

// A score, scaled, becomes cap tanh(score / cap).
struct ScoreCap {
  float cap, to_exponent;

  __device__ explicit ScoreCap(const AttentionParams& params)
      : cap(params.logit_cap), to_exponent(2.0f * kLog2E * params.scale / params.logit_cap) {}
  __device__ float operator()(float score) const {
    // tanh x = 1 - 2 / (e^2x + 1)
    return cap * (1.0f - __fdividef(2.0f, ptx::ex2_approx(fminf(score * to_exponent, 120.0f)) + 1.0f));
  }
};

template <class Warp>
__device__ void cap_scores(const AttentionParams& params, Warp& warp) {
  const ScoreCap cap(params);
#pragma unroll
  for (auto& block : warp.scores)
#pragma unroll
    for (auto& eight : block)
#pragma unroll
      for (float& score : eight) score = cap(score);
}

// Bit i: the row sees key first_key + i.
template <int kKeys>
__device__ uint64_t visible_keys(const AttentionParams& params, const JobRows& rows, int tile_row,
                                 int first_key) {
  if (tile_row >= rows.num_rows) return 0;
  const QueryRange query = query_range(params.batch, rows.span, rows.at(params, tile_row).query);
  uint64_t visible = 0;
  if (params.batch.tree_mask != nullptr && params.batch.causal) {
#pragma unroll 1
    for (int i = 0; i < kKeys; ++i)
      if (sees(params.batch, rows.span, query, first_key + i)) visible |= uint64_t{1} << i;
  } else {
    const int begin = max(query.lo - first_key, 0), end = min(query.hi + 1 - first_key, 64);
    if (begin < end) visible = ~uint64_t{0} >> (64 - (end - begin)) << begin;
  }
  return visible;
}

// Scores of keys that a row does not see become -inf. `row_of(thread)`: of the tile, the warp's first;
// `first_key`: position of the warp's first.
template <class Warp, class RowOf>
__device__ void hide_scores(const AttentionParams& params, const JobRows& rows, Warp& warp,
                            const RowOf& row_of, int first_key) {
  const int thread = ptx::tid_x(), lane = thread % 32;
#pragma unroll
  for (int b = 0; b < Warp::kNumRowBlocks; ++b) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int tile_row = row_of(thread) + b * 16 + half * 8 + lane / 4;
      const uint64_t visible =
          visible_keys<Warp::kNumKeys>(params, rows, tile_row, first_key) >> (lane % 4 * 2);
#pragma unroll
      for (int n = 0; n < Warp::kNumKeys / 8; ++n)
#pragma unroll
        for (int i = 0; i < 2; ++i)
          if ((visible >> (n * 8 + i) & 1) == 0) warp.scores[b][n][2 * half + i] = -INFINITY;
    }
  }
}

}  // namespace attend::kernels::cuda::sm80
