// What a consumer of prefill on sm_90a (prefill.cuh) has in registers: products and online softmax.
#pragma once

#include "attend/kernels/attention/cuda/common/row_state.cuh"
#include "attend/kernels/attention/cuda/common/warp_rows.cuh"
#include "attend/kernels/attention/cuda/sm90/prefill_tile.cuh"
#include "attend/kernels/common/cuda/ptx/mma.cuh"
#include "attend/kernels/common/cuda/ptx/thread.cuh"
#include "attend/kernels/common/cuda/ptx/wgmma.cuh"
#include "attend_generated/wgmma_codes_products.cuh"
#include "attend_generated/wgmma_products.cuh"

namespace attend::kernels::cuda::sm90 {

// A consumer warpgroup's 64 rows in registers: scores of a KV tile, the online softmax, P and the output
// accumulators. A thread has rows 16 w + l / 4 and 8 further (`half` 0 and 1), w its warp and l its lane;
// element [4 n + 2 half + i] of scores and out is of column 8 n + 2 (l % 4) + i.
template <class T, class Tile>
struct PrefillRows {
  static constexpr int kKeys = Tile::kKeys, kSteps = kKeys / 16, kColumns = Tile::kHeadDimV;
  // P relative to a stale row max may be up to 2^kSlack before that is raised.
  static constexpr float kSlack = 8.0f;

  // Queries in registers, where 64 keys at a time would want them from shared memory as often as keys.
  static constexpr bool kHoldsQueries = Tile::kFixedSplits;
  static constexpr int kQuerySteps = Tile::kHeadDimQk / 16;

  uint32_t queries[kHoldsQueries ? kQuerySteps : 1][4];  // operand A of wgmma with K
  float scores[kKeys / 2];
  float out[kColumns / 2];
  uint32_t p[kSteps][4];  // operand A of wgmma with V
  // Row max of unscaled scores; stale by at most kSlack after scaling.
  float row_max[2];
  float row_sum[2];  // of this lane's columns only
  float rescale[2], shifts[2];
  bool rescales;

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (float& x : out) x = 0.0f;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      row_max[half] = -INFINITY;
      row_sum[half] = 0.0f;
    }
  }

  // Before the first multiply_keys(), with its `q`.
  __device__ __forceinline__ void hold_queries(uint32_t q) {
    if constexpr (kHoldsQueries) {
      constexpr int kStepsOfPanel = kPanelColumns / 16;
      const int thread = ptx::tid_x(), lane = thread % 32, row = thread / 32 % 4 * 16 + lane % 16;
#pragma unroll
      for (int i = 0; i < kQuerySteps; ++i)
        ptx::ldmatrix_x4(queries[i], q + i / kStepsOfPanel * Tile::kQueryPanelBytes +
                                         swizzled(row, i % kStepsOfPanel * 2 + lane / 16));
    }
  }

  // Issues scores = q k^T. `q`: the warpgroup's first row; `k`: the tile.
  __device__ __forceinline__ void multiply_keys(uint32_t q, uint32_t k) {
    constexpr int kStepsOfPanel = kPanelColumns / 16, kStepBytes = 32;
    const uint64_t a = ptx::smem_descriptor(q), b = ptx::smem_descriptor(k);
#pragma unroll
    for (int i = 0; i < kQuerySteps; ++i) {
      const int panel = i / kStepsOfPanel, in_panel = i % kStepsOfPanel * kStepBytes;
      const uint64_t keys = b + (panel * Tile::kKeyPanelBytes + in_panel) / 16;
      if constexpr (kHoldsQueries)
        ptx::wgmma_mma_async_rs_k_major(scores, queries[i], keys, i > 0, T());
      else
        ptx::wgmma_mma_async(scores, a + (panel * Tile::kQueryPanelBytes + in_panel) / 16, keys, i > 0, T());
    }
    ptx::wgmma_commit_group();
  }

  // Issues out += P v over all keys of the tile: those that are nobody's are zeros in both, and with branches
  // around them ptxas serialises the products (its note C7520).
  __device__ __forceinline__ void multiply_values(uint32_t v) {
    constexpr int kStepBytes = 16 * kPanelRowBytes;
    const uint64_t b = ptx::smem_descriptor_mn_major(v, Tile::kKeyPanelBytes);
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
      ptx::wgmma_mma_async_rs(out, p[step], b + step * kStepBytes / 16, T());
    ptx::wgmma_commit_group();
  }

  // Mask: scores of the KV tile from `first_key` on that a row does not see, or that lie outside of `keys`,
  // become -inf. `first_row`: the thread's, of the work tile.
  __device__ __forceinline__ void mask_scores(const AttentionParams& params, const sm80::WorkTileRows& rows,
                                              int first_row, int first_key, const KeyRange& keys) {
    const int first_column = first_key + static_cast<int>(threadIdx.x) % 4 * 2;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = first_row + 8 * half;
      const QueryRange query = query_range<false>(params.batch, rows.span, rows.at(params, row).query);
      const int begin = max(query.lo, keys.begin) - first_column;
      const int end = row < rows.num_rows ? min(query.hi + 1, keys.end) - first_column : begin;
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
        for (int i = 0; i < 2; ++i)
          if (8 * n + i < begin || 8 * n + i >= end) scores[4 * n + 2 * half + i] = -INFINITY;
    }
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
      new_max = sm80::quad_max(new_max);
      if (!((new_max - row_max[half]) * softmax_scale_log2 > kSlack)) new_max = row_max[half];
      const float shift = new_max == -INFINITY ? 0.0f : __fmul_rn(new_max, softmax_scale_log2);
      // The product rounded by itself: exactly 1 for a row whose max stays.
      rescale[half] = ptx::ex2_approx(__fmul_rn(row_max[half], softmax_scale_log2) - shift);
      changed |= new_max != row_max[half];
      row_max[half] = new_max;
      shifts[half] = shift;
    }
    rescales = __any_sync(0xffffffffu, changed);
  }

  // Second half: scores become P = 2^(softmax_scale_log2 (score - row_max)).
  __device__ __forceinline__ void exponentiate(float softmax_scale_log2) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      // Two chains are faster; sm80's kernel has one.
      float sums[2] = {};
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float& score = scores[4 * n + 2 * half + i];
          score = ptx::ex2_approx(score * softmax_scale_log2 - shifts[half]);
          sums[Tile::kFixedSplits ? 0 : i] += score;
        }
      row_sum[half] = row_sum[half] * rescale[half] + (sums[0] + sums[1]);
    }
  }

  // After exponentiate(), when the PV of the KV tile before has ended.
  __device__ __forceinline__ void rescale_and_pack_p() {
    if (rescales) {
#pragma unroll
      for (int i = 0; i < kColumns / 2; ++i) out[i] *= rescale[i / 2 % 2];
    }
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        p[step][i] = sm80::pack(scores[8 * step + 2 * i], scores[8 * step + 2 * i + 1], T());
  }

  // Row sums over all columns: call once, after the last tile.
  __device__ __forceinline__ void finish_sums() {
#pragma unroll
    for (float& s : row_sum) s = sm80::quad_sum(s);
  }
};

}  // namespace attend::kernels::cuda::sm90
