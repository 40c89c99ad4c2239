// What a consumer of prefill on sm_90a (prefill.cuh) has in registers: products and online softmax.
#pragma once

#include "attend/kernels/attention/cuda/common/row_state.cuh"
#include "attend/kernels/attention/cuda/sm90/prefill_softmax.cuh"
#include "attend/kernels/attention/cuda/sm90/prefill_tile.cuh"
#include "attend/kernels/common/cuda/ptx/mma.cuh"
#include "attend/kernels/common/cuda/ptx/thread.cuh"
#include "attend/kernels/common/cuda/ptx/wgmma.cuh"
#include "attend_generated/wgmma_codes_products.cuh"
#include "attend_generated/wgmma_products.cuh"

namespace attend::kernels::cuda::sm90 {

struct PrefillPrecision {
  static constexpr float kSlack = 8.0f, kOffset = 0.0f;
};

// A consumer warpgroup's 64 rows in registers, with P and, under fixed splits, queries. Element [4 n + 2 half
// + i] of out is of column 8 n + 2 (l % 4) + i.
template <class T, class Tile>
struct PrefillRows : PrefillSoftmax<Tile::kKeys, Tile::kHeadDimV, PrefillPrecision> {
  using Softmax = PrefillSoftmax<Tile::kKeys, Tile::kHeadDimV, PrefillPrecision>;
  using Softmax::scores, Softmax::out, Softmax::row_max, Softmax::row_sum, Softmax::rescale, Softmax::shifts,
      Softmax::rescales;

  static constexpr int kKeys = Tile::kKeys, kSteps = kKeys / 16, kColumns = Tile::kHeadDimV;

  // Queries in registers, where 64 keys at a time would want them from shared memory as often as keys.
  static constexpr bool kHoldsQueries = Tile::kFixedSplits;
  static constexpr int kQuerySteps = Tile::kHeadDimQk / 16;

  uint32_t queries[kHoldsQueries ? kQuerySteps : 1][4];  // operand A of wgmma with K
  uint32_t p[kSteps][4];                                 // operand A of wgmma with V

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
