// What a consumer warpgroup of prefill_e4m3.cuh has of its 64 rows: products, softmax, P in e4m3.
#pragma once

#include "attend/kernels/attention/cuda/common/warp_rows.cuh"
#include "attend/kernels/attention/cuda/sm90/prefill/prefill_softmax.cuh"
#include "attend/kernels/attention/cuda/sm90/prefill_e4m3/prefill_e4m3_layout.h"
#include "attend/kernels/attention/cuda/sm90/prefill_e4m3/prefill_e4m3_tile.cuh"
#include "attend/kernels/common/cuda/ptx/fp8.cuh"
#include "attend/kernels/common/cuda/ptx/wgmma.cuh"
#include "attend_generated/wgmma_e4m3_products.cuh"

namespace attend::kernels::cuda::sm90 {

struct PrefillE4m3Precision {
  static constexpr float kSlack = 0.75f, kOffset = 8.0f;
};

// A consumer warpgroup's 64 rows in registers, with P. prefill_e4m3_layout.h tells which column an element of
// out is of.
template <class Tile>
struct PrefillE4m3Rows : PrefillSoftmax<Tile::kKeys, Tile::kHeadDimV, PrefillE4m3Precision> {
  using Softmax = PrefillSoftmax<Tile::kKeys, Tile::kHeadDimV, PrefillE4m3Precision>;
  using Softmax::scores, Softmax::out, Softmax::row_max, Softmax::row_sum, Softmax::rescale, Softmax::shifts,
      Softmax::rescales;

  static constexpr int kKeys = Tile::kKeys, kSteps = kKeys / 32, kStepBytes = 32;
  static constexpr float kUnscale = 0x1p-8f;  // 2^-kOffset

  uint32_t p[kSteps][4];  // operand A of wgmma with V^T

  // Issues scores = q k^T. `q`: the warpgroup's first row; `k`: the tile.
  __device__ __forceinline__ void multiply_keys(uint32_t q, uint32_t k) {
    constexpr int kStepsOfPanel = kPanelRowBytes / kStepBytes;
    const uint64_t a = ptx::smem_descriptor(q), b = ptx::smem_descriptor(k);
#pragma unroll
    for (int i = 0; i < Tile::kHeadDimQk / kStepBytes; ++i) {
      const int panel = i / kStepsOfPanel, in_panel = i % kStepsOfPanel * kStepBytes;
      ptx::wgmma_mma_async(scores, a + (panel * Tile::kQueryPanelBytes + in_panel) / 16,
                           b + (panel * Tile::kKeyPanelBytes + in_panel) / 16, i > 0, __nv_fp8_e4m3());
    }
    ptx::wgmma_commit_group();
  }

  // Issues out += P v over all keys of the tile: those that are nobody's are zeros in both, and with branches
  // around them ptxas serialises the products (its note C7520).
  // `v`: transposed.
  __device__ __forceinline__ void multiply_values(uint32_t v) {
    const uint64_t b = ptx::smem_descriptor(v);
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
      ptx::wgmma_mma_async_rs(out, p[step], b + step * kStepBytes / 16, true, __nv_fp8_e4m3());
    ptx::wgmma_commit_group();
  }

  // Second half, when the PV of the KV tile before has ended: P = 2^(kOffset + softmax_scale_log2 (score -
  // row_max)). Exponentials have a unit of their own, which packing and sums go beside. `pass_turn`: called
  // once, among them.
  template <class PassTurn>
  __device__ __forceinline__ void make_p(float softmax_scale_log2, const PassTurn& pass_turn) {
    float sums[2][2] = {};
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
#pragma unroll
      for (int reg = 0; reg < 4; ++reg) {
        if (4 * step + reg == Tile::kPackedBeforeTurn) pass_turn();
        const int half = reg % 2;
        float four[4];
#pragma unroll
        for (int byte = 0; byte < 4; ++byte) {
          const float score = scores[e4m3::score_of_byte(step, reg, byte)];
          four[byte] = ptx::ex2_approx(score * softmax_scale_log2 - shifts[half]);
          sums[half][byte % 2] += four[byte];
        }
        p[step][reg] = ptx::cvt_e4m3x4(four[0], four[1], four[2], four[3]);
      }
#pragma unroll
    for (int half = 0; half < 2; ++half)
      row_sum[half] = row_sum[half] * rescale[half] + (sums[half][0] + sums[half][1]);
    if (rescales) {
#pragma unroll
      for (int i = 0; i < Tile::kHeadDimV / 2; ++i) out[i] *= rescale[i / 2 % 2];
    }
  }

  // Row sums over all columns, as if P were not so large: call once, after the last tile.
  __device__ __forceinline__ void finish_sums() {
#pragma unroll
    for (float& s : row_sum) s = quad_sum(s) * kUnscale;
  }
};

}  // namespace attend::kernels::cuda::sm90
