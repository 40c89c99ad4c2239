// Scores, P and results of MLA on sm_90a as threads have them, and what they do with them.
#pragma once

#include "attend/kernels/attention/cuda/common/visible.cuh"
#include "attend/kernels/attention/cuda/common/warp_rows.cuh"
#include "attend/kernels/attention/cuda/common/work_tile_rows.cuh"
#include "attend/kernels/attention/cuda/sm90/mla/mla_shared.cuh"
#include "attend/kernels/common/cuda/ptx/copy.cuh"
#include "attend/kernels/common/cuda/ptx/mma.cuh"
#include "attend/kernels/common/cuda/ptx/warpgroup.cuh"
#include "attend/kernels/common/cuda/ptx/wgmma.cuh"
#include "attend_generated/wgmma_products.cuh"

namespace attend::kernels::cuda::sm90 {

// A thread has rows 16 w + l / 4 and 8 further (`half` 0 and 1), w its warp of the warpgroup and l its lane;
// element [4 n + 2 half + i] of scores and results is of column 8 n + 2 (l % 4) + i. So has the same thread
// of the other warpgroup, and threads hand P to one another.
template <class T>
struct MlaRowState {
  static constexpr int kSteps = kMlaKeys / 16;
  // P relative to a former row max may be up to 2^kSlack before that is replaced.
  static constexpr float kSlack = 8.0f;

  float scores[kMlaKeys / 2];
  float out[MlaTile::kColumns / 2];
  // A score, unscaled; no other exceeds it by more than kSlack once scaled.
  float row_max[2];
  float sum[2];  // of this lane's columns of the warpgroup's own KV tiles
  float rescale[2];
  bool rescales;

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (float& x : out) x = 0.0f;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      row_max[half] = -INFINITY;
      sum[half] = 0.0f;
    }
  }

  // Descriptors of operands in uniform registers: products of 64 columns follow one another faster than
  // others could be made. `lane_0`: what lane 0 has, which all have.
  __device__ __forceinline__ static uint32_t lane_0(uint32_t x) { return __shfl_sync(0xffffffffu, x, 0); }
  // `first`: of the beginning of the tile; addresses do not carry over into other fields.
  __device__ __forceinline__ static uint64_t further(uint64_t first, int bytes) {
    return (first & 0xffffffff00000000) | (static_cast<uint32_t>(first) + static_cast<uint32_t>(bytes / 16));
  }

  // Starts a panel's part of scores = q k^T. `q`, `k`: descriptors of the first panels.
  __device__ __forceinline__ void multiply_keys(uint64_t q, uint64_t k, int panel, bool add) {
    constexpr int kStepBytes = 32;
#pragma unroll
    for (int i = 0; i < kMlaPanelColumns / 16; ++i) {
      const int bytes = panel * MlaTile::kPanelBytes + i * kStepBytes;
      ptx::wgmma_mma_async(scores, further(q, bytes), further(k, bytes), add || i > 0, T());
    }
  }

  // Starts out += P v.
  __device__ __forceinline__ void multiply_values(const uint32_t (&p)[kSteps][4], uint32_t v) {
    constexpr int kStepBytes = 16 * kMlaPanelRowBytes;
    const uint64_t b = ptx::smem_descriptor_mn_major(lane_0(v), MlaTile::kPanelBytes);
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
      ptx::wgmma_mma_async_rs(out, p[step], further(b, step * kStepBytes), true, T());
    ptx::wgmma_commit_group();
  }

  // Scores of the KV tile from `first_key` on that a row does not see become -inf. `first_row`: the thread's.
  // What rows behind the tile's last one hold is of no account: rows are independent, and theirs are not
  // stored.
  template <bool kPlain>
  __device__ __forceinline__ void mask(const AttentionParams& params, const WorkTileRows& rows,
                                       int first_row, int first_key) {
    const int to_lane = static_cast<int>(threadIdx.x) % 4 * 2;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = first_row + 8 * half;
      if constexpr (kPlain) {
        const int end =
            mla_plain_end(params.batch, rows.span, rows.at(params, row).query) - first_key - to_lane;
#pragma unroll
        for (int n = 0; n < kMlaKeys / 8; ++n)
#pragma unroll
          for (int i = 0; i < 2; ++i)
            if (8 * n + i >= end) scores[4 * n + 2 * half + i] = -INFINITY;
      } else {
        const uint64_t visible = visible_keys<kMlaKeys>(params, rows, row, first_key) >> to_lane;
#pragma unroll
        for (int n = 0; n < kMlaKeys / 8; ++n)
#pragma unroll
          for (int i = 0; i < 2; ++i)
            if ((visible >> (8 * n + i) & 1) == 0) scores[4 * n + 2 * half + i] = -INFINITY;
      }
    }
  }

  // scores become P = 2^(scale_log2 (score - row_max)), and `rescale` what results and sums so far are to be
  // multiplied with. A row's own scores decide whether they are.
  __device__ __forceinline__ void softmax(float scale_log2) {
    bool changed = false;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float highest = row_max[half];
#pragma unroll
      for (int n = 0; n < kMlaKeys / 8; ++n)
        highest = fmaxf(highest, fmaxf(scores[4 * n + 2 * half], scores[4 * n + 2 * half + 1]));
      highest = quad_max(highest);
      if (!((highest - row_max[half]) * scale_log2 > kSlack)) highest = row_max[half];
      const float shift = raise(half, highest, scale_log2, changed);
      float sums[2] = {};
#pragma unroll
      for (int n = 0; n < kMlaKeys / 8; ++n)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float& score = scores[4 * n + 2 * half + i];
          score = ptx::ex2_approx(score * scale_log2 - shift);
          sums[i] += score;
        }
      sum[half] += sums[0] + sums[1];
    }
    rescales = __any_sync(0xffffffffu, changed);
  }

  // P as the left operand of the product with the values.
  __device__ __forceinline__ void pack(uint32_t (&p)[kSteps][4]) const {
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        p[step][i] = pack(scores[8 * step + 2 * i], scores[8 * step + 2 * i + 1], T());
  }

  // Hands P and the row max to the other warpgroup. `thread`: of the warpgroup.
  __device__ __forceinline__ void publish(const MlaShared& shared, const uint32_t (&p)[kSteps][4], int thread,
                                          int first_row) const {
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
      ptx::st_shared_16(cell(shared, step, thread),
                        make_uint4(p[step][0], p[step][1], p[step][2], p[step][3]));
    if (thread % 4 == 0) {
      shared.row_max()[first_row] = row_max[0];
      shared.row_max()[first_row + 8] = row_max[1];
    }
  }
  // Takes what the other published.
  __device__ __forceinline__ void receive(const MlaShared& shared, uint32_t (&p)[kSteps][4], int thread,
                                          int first_row, float scale_log2) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const uint4 four = ptx::ld_shared_16(cell(shared, step, thread));
      p[step][0] = four.x;
      p[step][1] = four.y;
      p[step][2] = four.z;
      p[step][3] = four.w;
    }
    const float highest[2] = {shared.row_max()[first_row], shared.row_max()[first_row + 8]};
    bool changed = highest[0] != row_max[0] || highest[1] != row_max[1];
    rescales = __any_sync(0xffffffffu, changed);
    if (!rescales) return;
#pragma unroll
    for (int half = 0; half < 2; ++half) raise(half, highest[half], scale_log2, changed);
  }

  // When no product is under way.
  __device__ __forceinline__ void rescale_results() {
    if (!rescales) return;
#pragma unroll
    for (int i = 0; i < MlaTile::kColumns / 2; ++i) out[i] *= rescale[i / 2 % 2];
  }

 private:
  __device__ __forceinline__ static uint32_t cell(const MlaShared& shared, int step, int thread) {
    return shared.p() + step * 128 * 16 + thread * 16;
  }

  // Takes another row max; what P is relative to.
  __device__ __forceinline__ float raise(int half, float highest, float scale_log2, bool& changed) {
    const float shift = highest == -INFINITY ? 0.0f : __fmul_rn(highest, scale_log2);
    // The product rounded by itself: exactly 1 for a row whose max stays.
    rescale[half] = ptx::ex2_approx(__fmul_rn(row_max[half], scale_log2) - shift);
    changed |= highest != row_max[half];
    row_max[half] = highest;
    sum[half] *= rescale[half];
    return shift;
  }
};

}  // namespace attend::kernels::cuda::sm90
