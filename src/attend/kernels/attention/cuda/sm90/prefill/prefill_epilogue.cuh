// Epilogue of prefill on sm_90a (prefill.cuh): results of a work tile to the output, or as partial results.
#pragma once

#include "attend/kernels/attention/cuda/common/row_state.cuh"
#include "attend/kernels/attention/cuda/common/warp_rows.cuh"
#include "attend/kernels/attention/cuda/sm90/prefill/prefill_results.cuh"
#include "attend/kernels/attention/cuda/sm90/prefill/prefill_rows.cuh"
#include "attend/kernels/common/cuda/ptx/lane.cuh"
#include "attend/kernels/common/cuda/ptx/stmatrix.cuh"

namespace attend::kernels::cuda::sm90 {

// `T`: of results in 16 bits.
template <class T, class Rows, class Tile>
class PrefillEpilogue : PrefillResults {
  static constexpr int kGroups = Rows::kColumns / 8;  // of eight columns

 public:
  // `scale`: what results are multiplied by besides that of all work tiles.
  __device__ PrefillEpilogue(const AttentionParams& params, const WorkTileRows& rows, int warpgroup,
                             float scale)
      : PrefillResults(params, rows, prefill_row<Tile>(warpgroup)), scale_(scale) {}

  using PrefillResults::write_lse;

  // After finish_sums(). By all threads of a warp, whose 16 rows all are. Results without LSE, as panels in
  // shared memory: `to` is the warpgroup's first row of the first.
  __device__ __forceinline__ void stage(const Rows& rows, float softmax_scale_log2, uint32_t to) const {
    float scales[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) scales[half] = scale_of(rows, half, softmax_scale_log2) * scale_;
    // Lane l gives the address of row l % 16 of a group of eight columns, or of the next one.
    const int row = ptx::warp_of_warpgroup() * 16 + lane_ % 16;
#pragma unroll
    for (int n = 0; n < kGroups; n += 2) {
      uint32_t words[4];
#pragma unroll
      for (int i = 0; i < 4; ++i)
        words[i] = pack(rows.out[4 * n + 2 * i] * scales[i % 2],
                              rows.out[4 * n + 2 * i + 1] * scales[i % 2], T());
      ptx::stmatrix_x4(to + n / 8 * Tile::kQueryPanelBytes + swizzled(row, n % 8 + lane_ / 16), words);
    }
  }

  // After finish_sums(). By all threads of a warp. `partial_idx`: of the plan; -1: the output.
  __device__ __forceinline__ void write(const Rows& rows, float softmax_scale_log2, int partial_idx) const {
    if (partial_idx >= 0) return write_partial(rows, partial_idx);
    float scales[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) scales[half] = scale_of(rows, half, softmax_scale_log2) * scale_;
    write_lse(rows, softmax_scale_log2);
    if (params_.out_element == Element::kF32)
      write_wide(rows, scales);
    else
      write_narrow(rows, scales);
  }

 private:
  __device__ __forceinline__ void write_wide(const Rows& rows, const float (&scales)[2]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int tile_row = first_row_ + 8 * half;
      if (tile_row >= rows_.num_rows) continue;
      write_floats(rows, half, scales[half], reinterpret_cast<float2*>(out_row(tile_row, sizeof(float))));
    }
  }

  __device__ __forceinline__ void write_partial(const Rows& rows, int partial_idx) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int tile_row = first_row_ + 8 * half;
      if (tile_row >= rows_.num_rows) continue;
      const int64_t partial_row = int64_t{partial_idx} * params_.plan.partial_rows + tile_row;
      if (lane_ % 4 == 0)
        params_.plan.partial_state[partial_row] = make_float2(rows.row_max[half], rows.row_sum[half]);
      write_floats(rows, half, scale_,
                   reinterpret_cast<float2*>(params_.plan.partial_out + partial_row * params_.head_dim_v));
    }
  }

  __device__ __forceinline__ void write_floats(const Rows& rows, int half, float scale, float2* to) const {
#pragma unroll
    for (int n = 0; n < kGroups; ++n) {
      const int column = 8 * n + lane_ % 4 * 2;
      if (column < params_.head_dim_v)
        to[column / 2] =
            make_float2(rows.out[4 * n + 2 * half] * scale, rows.out[4 * n + 2 * half + 1] * scale);
    }
  }

  // Four lanes of a row transpose their words of four groups, so that each writes whole groups: four lanes 64
  // bytes.
  __device__ __forceinline__ void write_narrow(const Rows& rows, const float (&scales)[2]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int tile_row = first_row_ + 8 * half;
      const bool valid = tile_row < rows_.num_rows;
      auto* const to = reinterpret_cast<uint4*>(out_row(valid ? tile_row : 0, 2));
#pragma unroll
      for (int first = 0; first < kGroups; first += 4) {
        uint32_t words[4];
#pragma unroll
        for (int i = 0; i < 4; ++i)
          words[i] = pack(rows.out[4 * (first + i) + 2 * half] * scales[half],
                                rows.out[4 * (first + i) + 2 * half + 1] * scales[half], T());
        quad_transpose(words, lane_);
        const int group = first + lane_ % 4;
        if (valid && group * 8 < params_.head_dim_v)
          to[group] = make_uint4(words[0], words[1], words[2], words[3]);
      }
    }
  }

  const float scale_;
};

}  // namespace attend::kernels::cuda::sm90
