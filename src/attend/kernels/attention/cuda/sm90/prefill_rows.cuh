// What a warpgroup of prefill on sm_90a holds of its 64 rows in registers: scores of a tile of keys, the
// online softmax, and results.
#pragma once

#include "attend/kernels/attention/cuda/common/score_rules.cuh"
#include "attend/kernels/attention/cuda/common/warp_rows.cuh"
#include "attend/kernels/attention/cuda/sm90/prefill_tile.h"
#include "attend/kernels/common/cuda/ptx/wgmma.cuh"
#include "attend_generated/wgmma_products.cuh"

namespace attend::kernels::cuda::sm90 {

// A thread has rows 16 w + l / 4 and 8 further (`half` 0 and 1), w its warp and l its lane; element
// [4 n + 2 half + i] of scores and results is of column 8 n + 2 (l % 4) + i.
template <class T, class Tile>
struct PrefillRows {
  static constexpr int kKeys = Tile::kKeys, kSteps = kKeys / 16, kColumns = Tile::kVChunks * kChunkColumns;
  // Weights relative to a former largest score may be up to 2^kSlack before it is replaced.
  static constexpr float kSlack = 8.0f;

  float scores[kKeys / 2];
  float out[kColumns / 2];
  uint32_t weights[kSteps][4];  // as the left operand of the product with V
  // A score, before the factor of exp2, that no other exceeds by more than kSlack after the factor.
  float largest[2];
  float sum[2];  // of this lane's columns only
  float rescale[2];
  bool rescales;

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (float& x : out) x = 0.0f;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      largest[half] = -INFINITY;
      sum[half] = 0.0f;
    }
  }

  // Starts scores = q k^T. `q`: the warpgroup's first row; `k`: the tile.
  __device__ __forceinline__ void multiply_keys(uint32_t q, uint32_t k) {
    constexpr int kStepsOfChunk = kChunkColumns / 16, kStepBytes = 32;
    const uint64_t a = ptx::smem_descriptor(q), b = ptx::smem_descriptor(k);
#pragma unroll
    for (int i = 0; i < Tile::kQkChunks * kStepsOfChunk; ++i) {
      const int chunk = i / kStepsOfChunk, in_chunk = i % kStepsOfChunk * kStepBytes;
      ptx::wgmma_mma_async(scores, a + (chunk * Tile::kQueryChunkBytes + in_chunk) / 16,
                          b + (chunk * Tile::kKeyChunkBytes + in_chunk) / 16, i > 0, T());
    }
    ptx::wgmma_commit_group();
  }

  // Starts out += weights v over the first `num_steps` times 16 keys of the tile.
  __device__ __forceinline__ void multiply_values(uint32_t v, int num_steps = kSteps) {
    constexpr int kStepBytes = 16 * kChunkRowBytes;
    const uint64_t b = ptx::smem_descriptor_mn_major(v, Tile::kKeyChunkBytes);
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
      if (step < num_steps)
        ptx::wgmma_mma_async_rs(out, weights[step], b + step * kStepBytes / 16, T());
    ptx::wgmma_commit_group();
  }

  // Scores of the tile of keys from `first_key` on that a row does not see become -inf. `first_row`: the
  // thread's, of the job.
  __device__ __forceinline__ void hide_scores(const AttentionParams& params, const sm80::JobRows& rows,
                                              int first_row, int first_key) {
    const int first_column = first_key + static_cast<int>(threadIdx.x) % 4 * 2;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = first_row + 8 * half;
      const QueryRange query = query_range(params.batch, rows.span, rows.at(params, row).query);
      const int begin = query.lo - first_column;
      const int end = row < rows.num_rows ? query.hi + 1 - first_column : begin;
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
        for (int i = 0; i < 2; ++i)
          if (8 * n + i < begin || 8 * n + i >= end) scores[4 * n + 2 * half + i] = -INFINITY;
    }
  }

  // scores become weights 2^(factor (score - largest)), and `rescale` what results and sums so far are to be
  // multiplied with. A row's own scores decide whether they are, so that its bits do not depend on the rows
  // beside it.
  __device__ __forceinline__ void softmax(float factor) {
    bool changed = false;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float highest = largest[half];
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n)
        highest = fmaxf(highest, fmaxf(scores[4 * n + 2 * half], scores[4 * n + 2 * half + 1]));
      highest = sm80::quad_max(highest);
      if (!((highest - largest[half]) * factor > kSlack)) highest = largest[half];
      const float shift = highest == -INFINITY ? 0.0f : __fmul_rn(highest, factor);
      // The product rounded by itself: exactly 1 for a row whose largest score stays.
      rescale[half] = ptx::ex2_approx(__fmul_rn(largest[half], factor) - shift);
      changed |= highest != largest[half];
      largest[half] = highest;
      float sums[2] = {};
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float& score = scores[4 * n + 2 * half + i];
          score = ptx::ex2_approx(score * factor - shift);
          sums[i] += score;
        }
      sum[half] = sum[half] * rescale[half] + (sums[0] + sums[1]);
    }
    rescales = __any_sync(0xffffffffu, changed);
  }

  // After softmax(), when the product with the weights before has ended.
  __device__ __forceinline__ void take_weights() {
    if (rescales) {
#pragma unroll
      for (int i = 0; i < kColumns / 2; ++i) out[i] *= rescale[i / 2 % 2];
    }
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        weights[step][i] = sm80::pack(scores[8 * step + 2 * i], scores[8 * step + 2 * i + 1], T());
  }

  // Sums over all columns: call once, after the last tile.
  __device__ __forceinline__ void finish_sums() {
#pragma unroll
    for (float& s : sum) s = sm80::quad_sum(s);
  }
};

}  // namespace attend::kernels::cuda::sm90
