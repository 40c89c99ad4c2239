// Scores, P and results of MLA on sm_90a in registers, and operations on them.
#pragma once

#include "attend/kernels/attention/cuda/common/attention_mask.cuh"
#include "attend/kernels/attention/cuda/common/row_state.cuh"
#include "attend/kernels/attention/cuda/common/warp_rows.cuh"
#include "attend/kernels/attention/cuda/common/work_tile_rows.cuh"
#include "attend/kernels/attention/cuda/sm90/mla/mla_shared.cuh"
#include "attend/kernels/common/cuda/ptx/copy.cuh"
#include "attend/kernels/common/cuda/ptx/global_memory.cuh"
#include "attend/kernels/common/cuda/ptx/mma.cuh"
#include "attend/kernels/common/cuda/ptx/warpgroup.cuh"
#include "attend/kernels/common/cuda/ptx/wgmma.cuh"
#include "attend_generated/wgmma_products.cuh"

namespace attend::kernels::cuda::sm90 {

// A thread has row 16 w + l / 4 and the row 8 further (`half` 0 and 1), with warp w in the warpgroup and lane
// l. Element [4 n + 2 half + i] of scores and results is column 8 n + 2 (l % 4) + i. The same thread of the
// other warpgroup has the same rows, and these two threads exchange P.
template <class T>
struct MlaRowState {
  static constexpr int kSteps = kMlaKeys / 16;
  // P relative to a previous row max may be up to 2^kSlack before the row max is replaced.
  static constexpr float kSlack = 8.0f;

  float scores[kMlaKeys / 2];
  float out[MlaTile::kColumns / 2];
  // An unscaled score; scaled, no other exceeds it by more than kSlack.
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

  // Keeps descriptors of operands in uniform registers: products of 64 columns are issued faster than other
  // descriptors could be computed. `lane_0` returns the value of lane 0, which all lanes share.
  __device__ __forceinline__ static uint32_t lane_0(uint32_t x) { return __shfl_sync(0xffffffffu, x, 0); }
  // `first`: descriptor of the start of the tile; the address does not overflow into other fields.
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

  // Sets scores of the KV tile from `first_key` that a row does not see to -inf. `first_row`: the thread's
  // first row. Rows past the tile's last one may have any scores: rows are independent, and these are not
  // stored.
  template <bool kPlain>
  __device__ __forceinline__ void mask(const AttentionParams& params, const WorkTileRows& rows, int first_row,
                                       int first_key) {
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
        const uint64_t visible = unmasked_keys<kMlaKeys>(params, rows, row, first_key) >> to_lane;
#pragma unroll
        for (int n = 0; n < kMlaKeys / 8; ++n)
#pragma unroll
          for (int i = 0; i < 2; ++i)
            if ((visible >> (8 * n + i) & 1) == 0) scores[4 * n + 2 * half + i] = -INFINITY;
      }
    }
  }

  // Converts scores to P = 2^(scale_log2 (score - row_max)), and sets `rescale` to the factor of earlier
  // results and sums. Only a row's own scores determine whether it is rescaled.
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

  // Packs P as operand A of the product with the values.
  __device__ __forceinline__ void pack(uint32_t (&p)[kSteps][4]) const {
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        p[step][i] = cuda::pack(scores[8 * step + 2 * i], scores[8 * step + 2 * i + 1], T());
  }

  // Passes P and the row max to the other warpgroup. `thread`: index in the warpgroup.
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
  // Receives P and the row max that the other warpgroup published.
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

  // Called when no product is in flight.
  __device__ __forceinline__ void rescale_results() {
    if (!rescales) return;
#pragma unroll
    for (int i = 0; i < MlaTile::kColumns / 2; ++i) out[i] *= rescale[i / 2 % 2];
  }

 private:
  __device__ __forceinline__ static uint32_t cell(const MlaShared& shared, int step, int thread) {
    return shared.p() + step * 128 * 16 + thread * 16;
  }

  // Replaces the row max, the reference of P.
  __device__ __forceinline__ float raise(int half, float highest, float scale_log2, bool& changed) {
    const float shift = highest == -INFINITY ? 0.0f : __fmul_rn(highest, scale_log2);
    // The product is rounded separately, so that the factor is exactly 1 for a row with unchanged max.
    rescale[half] = ptx::ex2_approx(__fmul_rn(row_max[half], scale_log2) - shift);
    changed |= highest != row_max[half];
    row_max[half] = highest;
    sum[half] *= rescale[half];
    return shift;
  }
};

// Output of a work tile of MLA on sm_90a: results or, if it spans several CTA ranges, a partial result.

// Used by a math warpgroup, which has half of the columns.
template <class T, bool kPlain>
class MlaResults {
  static constexpr int kBlocks = MlaTile::kColumns / kMlaPartialColumns;
  static constexpr int kRowsPerWarp = 16;
  static_assert(kRowsPerWarp == 2 * kMlaPartialRows, "one row group per half");

 public:
  // `thread`: index in the warpgroup.
  __device__ MlaResults(const AttentionParams& params, const MlaWorkTile& work_tile, int warpgroup,
                        int thread)
      : params_(params),
        rows_(params, work_tile.tile, work_tile.head, params.plan.tile_rows),
        partial_idx_(work_tile.partial_idx),
        warpgroup_(warpgroup),
        first_row_(thread / 32 * kRowsPerWarp) {}

  // `sum`: over both warpgroups and all columns. Called by all threads of a warp.
  __device__ __forceinline__ void write(const MlaRowState<T>& rows, const float (&sum)[2],
                                        float scale_log2) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      // A partial result has space for the rows of a tile: 8, 16, 32 or 64.
      if (first_row_ + 8 * half >= rows_.num_rows) return;
      const int tile_row = first_row_ + 8 * half + lane_ / 4;
      const bool valid = tile_row < rows_.num_rows;
      const bool writes_state = valid && lane_ % 4 == 0 && warpgroup_ == 0;
      if (partial_idx_ >= 0) {
        if (writes_state)
          params_.plan.partial_state[int64_t{partial_idx_} * params_.plan.partial_rows + tile_row] =
              make_float2(rows.row_max[half], sum[half]);
        write_partial(rows, half);
        continue;
      }
      const TileRow row = rows_.at(params_, valid ? tile_row : 0);
      const int64_t token = rows_.span.first_token + row.query;
      const RowResult result = finish_row(params_, rows.row_max[half], sum[half], scale_log2, row.head);
      if (writes_state && params_.lse != nullptr)
        params_.lse[token * params_.lse_token_stride + row.head * params_.lse_head_stride] = result.lse;
      const int64_t to = token * params_.out.token_stride + row.head * params_.out.head_stride;
      if (kPlain || params_.out_element != Element::kF32)
        write_narrow(rows, half, result.out_scale, valid, static_cast<T*>(params_.out.data) + to);
      else if (valid)
        write_wide(rows, half, result.out_scale, static_cast<float*>(params_.out.data) + to);
    }
  }

 private:
  __device__ __forceinline__ int first_column() const { return warpgroup_ * MlaTile::kColumns; }

  // Four lanes write 32 bytes.
  __device__ __forceinline__ void write_wide(const MlaRowState<T>& rows, int half, float out_scale,
                                             float* to) const {
#pragma unroll
    for (int n = 0; n < MlaTile::kColumns / 8; ++n) {
      const int column = first_column() + 8 * n + lane_ % 4 * 2;
      if (column < params_.head_dim_v)
        *reinterpret_cast<float2*>(to + column) =
            make_float2(rows.out[4 * n + 2 * half] * out_scale, rows.out[4 * n + 2 * half + 1] * out_scale);
    }
  }

  // Each lane of a quad gets one of four groups of eight columns: four lanes write 64 bytes.
  __device__ __forceinline__ void write_narrow(const MlaRowState<T>& rows, int half, float out_scale,
                                               bool valid, T* to) const {
    const bool odd = lane_ % 2 != 0, upper = lane_ / 2 % 2 != 0;
    const int column = first_column() + lane_ % 4 * 8;
#pragma unroll
    for (int n = 0; n < MlaTile::kColumns / 8; n += 4) {
      uint32_t mine[4];
#pragma unroll
      for (int i = 0; i < 4; ++i)
        mine[i] = pack(rows.out[4 * (n + i) + 2 * half] * out_scale,
                       rows.out[4 * (n + i) + 2 * half + 1] * out_scale, T());
      // Neighboring lanes: one group of each two, from both lanes.
      const uint32_t low = __shfl_xor_sync(0xffffffffu, odd ? mine[0] : mine[1], 1);
      const uint32_t high = __shfl_xor_sync(0xffffffffu, odd ? mine[2] : mine[3], 1);
      const uint2 lows = odd ? make_uint2(low, mine[1]) : make_uint2(mine[0], low);
      const uint2 highs = odd ? make_uint2(high, mine[3]) : make_uint2(mine[2], high);
      // Pairs of lanes: one group, from all four lanes.
      uint2 got;
      got.x = __shfl_xor_sync(0xffffffffu, upper ? lows.x : highs.x, 2);
      got.y = __shfl_xor_sync(0xffffffffu, upper ? lows.y : highs.y, 2);
      if (valid && column + 8 * n < params_.head_dim_v)
        *reinterpret_cast<uint4*>(to + column + 8 * n) =
            upper ? make_uint4(got.x, got.y, highs.x, highs.y) : make_uint4(lows.x, lows.y, got.x, got.y);
    }
  }

  // Data of rows past the end is not read.
  __device__ __forceinline__ void write_partial(const MlaRowState<T>& rows, int half) const {
    const int row_group = first_row_ / kMlaPartialRows + half;
    float* const to =
        params_.plan.partial_out + warpgroup_ * kBlocks * kMlaPartialBlock + lane_ * 4 +
        mla_partial_begin(partial_idx_, params_.plan.partial_rows, row_group, params_.head_dim_v);
    const int num_blocks = mla_partial_blocks(params_.head_dim_v) - warpgroup_ * kBlocks;
#pragma unroll
    for (int n = 0; n < kBlocks; ++n) {
      const float* const from = rows.out + 8 * n + 2 * half;
      if (n < num_blocks) ptx::st_global_16(to + n * kMlaPartialBlock, from[0], from[1], from[4], from[5]);
    }
  }

  const AttentionParams& params_;
  const WorkTileRows rows_;
  const int partial_idx_, warpgroup_;
  const int first_row_;  // of the warp
  const int lane_ = static_cast<int>(threadIdx.x) % 32;
};

}  // namespace attend::kernels::cuda::sm90
