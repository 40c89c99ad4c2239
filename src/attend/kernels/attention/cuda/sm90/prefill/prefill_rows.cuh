// What a consumer of prefill on sm_90a (prefill.cuh) has in registers: products and online softmax.
#pragma once

#include <type_traits>

#include "attend/kernels/attention/cuda/common/row_state.cuh"
#include "attend/kernels/attention/cuda/sm90/prefill/prefill_softmax.cuh"
#include "attend/kernels/attention/cuda/sm90/prefill/prefill_tile.cuh"
#include "attend/kernels/common/cuda/ptx/lane.cuh"
#include "attend/kernels/common/cuda/ptx/mma.cuh"
#include "attend/kernels/common/cuda/ptx/wgmma.cuh"
#include "attend_generated/wgmma_codes_products.cuh"
#include "attend_generated/wgmma_products.cuh"

namespace attend::kernels::cuda::sm90 {

// What the scores of a thread's rows are multiplied by so that the softmax's exponentials are powers of two:
// [half] of either row.
struct SameScale {
  float scale;
  __device__ __forceinline__ float operator[](int) const { return scale; }
};
struct RowScales {
  float scales[2];
  __device__ __forceinline__ float operator[](int half) const { return scales[half]; }
};

struct PrefillPrecision {
  static constexpr float kSlack = 8.0f, kOffset = 0.0f, kUnscale = 1.0f;  // 2^-kOffset
};
// Of P in f16 beside queries that may be bf16: what is small beside a row's largest stays as long as f16 can
// have it.
struct PrefillF16Precision {
  static constexpr float kSlack = 8.0f, kOffset = 7.0f, kUnscale = 0x1p-7f;
};
template <class Tile>
using PrefillPrecisionOf = std::conditional_t<Tile::kConverts, PrefillF16Precision, PrefillPrecision>;

// A consumer warpgroup's 64 rows in registers, with P and, under fixed splits, queries. Element [4 n + 2 half
// + i] of out is of column 8 n + 2 (l % 4) + i.
template <class T, class Tile>
struct PrefillRows : PrefillSoftmax<Tile::kKeys, Tile::kHeadDimV, PrefillPrecisionOf<Tile>> {
  using Precision = PrefillPrecisionOf<Tile>;
  using Softmax = PrefillSoftmax<Tile::kKeys, Tile::kHeadDimV, Precision>;
  using Softmax::scores, Softmax::out, Softmax::row_max, Softmax::row_sum, Softmax::rescale, Softmax::shifts,
      Softmax::rescales, Softmax::kOffset;

  static constexpr int kKeys = Tile::kKeys, kSteps = kKeys / 16, kColumns = Tile::kHeadDimV;

  // Queries in registers, where 64 keys at a time would want them from shared memory as often as keys.
  static constexpr bool kHoldsQueries = Tile::kFixedSplits;
  static constexpr int kQuerySteps = Tile::kHeadDimQk / 16;

  // Of a lane's P of a row: what is above raises the row max, so that P stays within 16 bits.
  static constexpr float kMaxSum = 256.0f / Precision::kUnscale;
  // What of that is too near to infinity to be scaled.
  static constexpr float kMaxScaledSum = 0x1p64f;

  uint32_t queries[kHoldsQueries ? kQuerySteps : 1][4];  // operand A of wgmma with K
  uint32_t p[kSteps][4];                                 // operand A of wgmma with V

  // Before the first multiply_keys(), with its `q`.
  __device__ __forceinline__ void hold_queries(uint32_t q) {
    if constexpr (kHoldsQueries) {
      constexpr int kStepsOfPanel = kPanelColumns / 16;
      const int lane = ptx::lane(), row = ptx::warp_of_warpgroup() * 16 + lane % 16;
#pragma unroll
      for (int i = 0; i < kQuerySteps; ++i)
        ptx::ldmatrix_x4(queries[i], q + i / kStepsOfPanel * Tile::kQueryPanelBytes +
                                         swizzled(row, i % kStepsOfPanel * 2 + lane / 16));
    }
  }

  // The descriptor of what lies `bytes` behind, by an addition of 32 bits: uniform registers are few, and
  // those between two wgmma count.
  __device__ __forceinline__ static uint64_t further(uint64_t first, int bytes) {
    return (first & 0xffffffff00000000) | (static_cast<uint32_t>(first) + static_cast<uint32_t>(bytes / 16));
  }

  // Issues scores = q k^T. `q`: the warpgroup's first row; `k`: the tile.
  __device__ __forceinline__ void multiply_keys(uint32_t q, uint32_t k) {
    constexpr int kStepsOfPanel = kPanelColumns / 16, kStepBytes = 32;
    // Else descriptors of all steps stay in registers between KV tiles.
    asm volatile("" : "+r"(q));
    const uint64_t a = ptx::smem_descriptor(q), b = ptx::smem_descriptor(k);
#pragma unroll
    for (int i = 0; i < kQuerySteps; ++i) {
      const int panel = i / kStepsOfPanel, in_panel = i % kStepsOfPanel * kStepBytes;
      const uint64_t keys = further(b, panel * Tile::kKeyPanelBytes + in_panel);
      if constexpr (kHoldsQueries)
        ptx::wgmma_mma_async_rs_k_major(scores, queries[i], keys, i > 0, T());
      else
        ptx::wgmma_mma_async(scores, further(a, panel * Tile::kQueryPanelBytes + in_panel), keys, i > 0, T());
    }
    ptx::wgmma_commit_group();
  }

  // Issues out += P v, or without `add` out = P v, over all keys of the tile: those that are nobody's are
  // zeros in both, and with branches around them ptxas serialises the products (its note C7520).
  __device__ __forceinline__ void multiply_values(uint32_t v, bool add) {
    constexpr int kStepBytes = 16 * kPanelRowBytes;
    const uint64_t b = ptx::smem_descriptor_mn_major(v, Tile::kKeyPanelBytes);
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
      ptx::wgmma_mma_async_rs(out, p[step], b + step * kStepBytes / 16, add || step > 0, T());
    ptx::wgmma_commit_group();
  }

  // Of the first KV tile: the row max, P and its sum.
  template <class Scales>
  __device__ __forceinline__ void begin(const Scales& scales) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      row_max[half] = quad_max(max_of(half));
      row_sum[half] = 0.0f;
      rescale[half] = 0.0f;
      shifts[half] = row_max[half] == -INFINITY ? Softmax::kShiftOfNoMax
                                                : __fmul_rn(row_max[half], scales[half]) - kOffset;
    }
    exponentiate(scales);
  }

  // Second half: scores become P = 2^(kOffset + scale (score - row_max)).
  template <class Scales>
  __device__ __forceinline__ void exponentiate(const Scales& scales) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      // Two chains are faster; sm80's kernel has one.
      float sums[2] = {};
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float& score = scores[4 * n + 2 * half + i];
          score = ptx::ex2_approx(score * scales[half] - shifts[half]);
          sums[Tile::kFixedSplits ? 0 : i] += score;
        }
      row_sum[half] = row_sum[half] * rescale[half] + (sums[0] + sums[1]);
    }
  }

  // Online softmax in one step, which waits for no row max: scores become P relative to that of the KV tiles
  // before. Where a lane's part of a row then has a sum above kMaxSum, the row max is raised. `score` makes
  // the scores once more.
  template <class Scales, class Score, class WaitForOut>
  __device__ __forceinline__ void exponentiate_by_old_max(const Scales& scales, const Score& score,
                                                          const WaitForOut& wait_for_out) {
    float sums[2][2] = {};
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
      for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float& x = scores[4 * n + 2 * half + i];
          x = ptx::ex2_approx(x * scales[half] - shifts[half]);
          sums[half][i] += x;
        }
    float tile_sum[2] = {sums[0][0] + sums[0][1], sums[1][0] + sums[1][1]};
    if (__any_sync(0xffffffffu, tile_sum[0] > kMaxSum || tile_sum[1] > kMaxSum)) [[unlikely]]
      raise_max_of_p(scales, tile_sum, score, wait_for_out);
#pragma unroll
    for (int half = 0; half < 2; ++half) row_sum[half] += tile_sum[half];
  }

  // Of rows with a sum above kMaxSum. P becomes relative to the new row max; where it may have overflowed, as
  // of a row that had none, from its score. The warp's other rows take theirs again with it, and those behind
  // the work tile's last row may be what asks for it, so that bits depend on a row alone as long as mma.sync
  // and wgmma add alike (deterministic.md), as they did wherever it was tried.
  template <class Scales, class Score, class WaitForOut>
  __device__ __forceinline__ void raise_max_of_p(const Scales& scales, float (&tile_sum)[2],
                                                 const Score& score, const WaitForOut& wait_for_out) {
    // 0: P overflows. In a register, since predicates are few.
#pragma unroll
    for (int half = 0; half < 2; ++half)
      rescale[half] = quad_max(tile_sum[half]) > kMaxScaledSum ? 0.0f : 1.0f;
    if (__any_sync(0xffffffffu, rescale[0] == 0.0f || rescale[1] == 0.0f)) {
      score();
#pragma unroll
      for (int half = 0; half < 2; ++half) tile_sum[half] = exponentiate_again(half, scales[half]);
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      scale_p(half, scales[half], tile_sum[half]);
      row_sum[half] *= rescale[half];
    }
    wait_for_out();
#pragma unroll
    for (int i = 0; i < kColumns / 2; ++i) out[i] *= rescale[i / 2 % 2];
  }
  // From scores, relative to their max where P has overflowed. Returns the sum of P.
  __device__ __forceinline__ float exponentiate_again(int half, float scale) {
    const float new_max = quad_max(max_of(half));
    if (rescale[half] == 0.0f) raise_max_to(half, new_max, scale);
    float sums[2] = {};
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float& x = scores[4 * n + 2 * half + i];
        x = ptx::ex2_approx(x * scale - shifts[half]);
        sums[i] += x;
      }
    return sums[0] + sums[1];
  }
  // P of a row with a sum above kMaxSum, and that sum, relative to P's max.
  __device__ __forceinline__ void scale_p(int half, float scale, float& tile_sum) {
    const bool raises = quad_max(tile_sum) > kMaxSum;
    const float most = quad_max(max_of(half));
    float p_scale = 1.0f;
    if (raises) {
      raise_max_to(half, row_max[half] + __fdividef(__log2f(most) - kOffset, scale), scale);
      p_scale = rescale[half];
    }
    tile_sum *= p_scale;
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
      for (int i = 0; i < 2; ++i) scores[4 * n + 2 * half + i] *= p_scale;
  }
  __device__ __forceinline__ float max_of(int half) const {
    float most = -INFINITY;
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n)
      most = fmaxf(most, fmaxf(scores[4 * n + 2 * half], scores[4 * n + 2 * half + 1]));
    return most;
  }
  __device__ __forceinline__ void raise_max_to(int half, float new_max, float scale) {
    const float shift = __fmul_rn(new_max, scale);
    rescale[half] = ptx::ex2_approx(__fmul_rn(row_max[half], scale) - shift);
    row_max[half] = new_max;
    shifts[half] = shift - kOffset;
  }

  // The scores of multiply_keys(), by each warp for its own rows.
  __device__ __forceinline__ void multiply_keys_by_warp(uint32_t q, uint32_t k) {
    constexpr int kStepsOfPanel = kPanelColumns / 16;
    const int lane = ptx::lane(), row = ptx::warp_of_warpgroup() * 16 + lane % 16;
    const int key = lane / 16 * 8 + lane % 8;
#pragma unroll
    for (float& score : scores) score = 0.0f;
#pragma unroll 1
    for (int i = 0; i < kQuerySteps; ++i) {
      const uint32_t q_panel = q + i / kStepsOfPanel * Tile::kQueryPanelBytes,
                     k_panel = k + i / kStepsOfPanel * Tile::kKeyPanelBytes;
      const int piece = i % kStepsOfPanel * 2;
      uint32_t a[4];
      ptx::ldmatrix_x4(a, q_panel + swizzled(row, piece + lane / 16));
#pragma unroll
      for (int n = 0; n < kKeys / 16; ++n) {
        uint32_t b[4];
        ptx::ldmatrix_x4(b, k_panel + swizzled(16 * n + key, piece + lane / 8 % 2));
        auto* const columns = reinterpret_cast<float(*)[4]>(&scores[8 * n]);
        ptx::mma_m16n8k16(columns[0], a, b[0], b[1], T());
        ptx::mma_m16n8k16(columns[1], a, b[2], b[3], T());
        __syncwarp();  // keeps registers of those that follow from being wanted now
      }
    }
  }

  // After exponentiate(), when the PV of the KV tile before has ended.
  __device__ __forceinline__ void rescale_and_pack_p() {
    if (rescales) {
#pragma unroll
      for (int i = 0; i < kColumns / 2; ++i) out[i] *= rescale[i / 2 % 2];
    }
    pack_p();
  }
  // For a product that nobody reads.
  __device__ __forceinline__ void clear_p() {
#pragma unroll
    for (auto& step : p)
#pragma unroll
      for (uint32_t& pair : step) pair = 0;
  }
  __device__ __forceinline__ void pack_p() {
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        p[step][i] = pack(scores[8 * step + 2 * i], scores[8 * step + 2 * i + 1], T());
  }

  // Row sums over all columns, as if P were not 2^kOffset times as large: call once, after the last tile.
  __device__ __forceinline__ void finish_sums() {
#pragma unroll
    for (float& s : row_sum) s = quad_sum(s) * Precision::kUnscale;
  }
};

}  // namespace attend::kernels::cuda::sm90
