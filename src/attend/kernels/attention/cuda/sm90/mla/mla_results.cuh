// What MLA on sm_90a leaves of a work tile: results or, where it lies in several CTA ranges, a partial
// result.
#pragma once

#include "attend/kernels/attention/cuda/common/row_state.cuh"
#include "attend/kernels/attention/cuda/common/warp_rows.cuh"
#include "attend/kernels/attention/cuda/common/work_tile_rows.cuh"
#include "attend/kernels/attention/cuda/sm90/mla/mla_partial.cuh"
#include "attend/kernels/attention/cuda/sm90/mla/mla_row_state.cuh"
#include "attend/kernels/attention/cuda/sm90/mla/mla_shared.cuh"
#include "attend/kernels/common/cuda/ptx/global.cuh"

namespace attend::kernels::cuda::sm90 {

// By a math warpgroup, which has half of the columns.
template <class T, bool kPlain>
class MlaResults {
  static constexpr int kBlocks = MlaTile::kColumns / kMlaPartialColumns;
  static constexpr int kRowsOfWarp = 16;
  static_assert(kRowsOfWarp == 2 * kMlaPartialRows, "a row group for each half");

 public:
  // `thread`: of the warpgroup.
  __device__ MlaResults(const AttentionParams& params, const MlaWorkTile& work_tile, int warpgroup,
                        int thread)
      : params_(params),
        rows_(params, work_tile.tile, work_tile.head, params.plan.tile_rows),
        partial_idx_(work_tile.partial_idx),
        warpgroup_(warpgroup),
        first_row_(thread / 32 * kRowsOfWarp) {}

  // `sum`: of both warpgroups and all columns. By all threads of a warp.
  __device__ __forceinline__ void write(const MlaRowState<T>& rows, const float (&sum)[2],
                                        float scale_log2) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      // A partial result has room for the rows of a tile: 8, 16, 32 or 64.
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
      const RowResult result =
          finish_row(params_, rows.row_max[half], sum[half], scale_log2, row.head);
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

  // Of four groups of eight columns, each lane of a quad gets one: four lanes write 64 bytes.
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
      // Lanes beside one another: of each two groups, one of both.
      const uint32_t low = __shfl_xor_sync(0xffffffffu, odd ? mine[0] : mine[1], 1);
      const uint32_t high = __shfl_xor_sync(0xffffffffu, odd ? mine[2] : mine[3], 1);
      const uint2 lows = odd ? make_uint2(low, mine[1]) : make_uint2(mine[0], low);
      const uint2 highs = odd ? make_uint2(high, mine[3]) : make_uint2(mine[2], high);
      // Pairs of lanes: one group of all four.
      uint2 got;
      got.x = __shfl_xor_sync(0xffffffffu, upper ? lows.x : highs.x, 2);
      got.y = __shfl_xor_sync(0xffffffffu, upper ? lows.y : highs.y, 2);
      if (valid && column + 8 * n < params_.head_dim_v)
        *reinterpret_cast<uint4*>(to + column + 8 * n) =
            upper ? make_uint4(got.x, got.y, highs.x, highs.y) : make_uint4(lows.x, lows.y, got.x, got.y);
    }
  }

  // What rows that are not there leave is not read.
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
