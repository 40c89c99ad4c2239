// The end of a work tile of prefill_e4m3.cuh: outputs or partial results, and LSE.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "attend/kernels/attention/cuda/common/head_scales.cuh"
#include "attend/kernels/attention/cuda/common/row_state.cuh"
#include "attend/kernels/attention/cuda/sm90/prefill/prefill_results.cuh"
#include "attend/kernels/attention/cuda/sm90/prefill_e4m3/prefill_e4m3_layout.h"
#include "attend/kernels/attention/cuda/sm90/prefill_e4m3/prefill_e4m3_rows.cuh"

namespace attend::kernels::cuda::sm90 {

template <class Tile>
class PrefillE4m3Epilogue : PrefillResults {
  using Rows = PrefillE4m3Rows<Tile>;
  static constexpr int kSixteens = Tile::kHeadDimV / 16;

 public:
  __device__ PrefillE4m3Epilogue(const AttentionParams& params, const WorkTileRows& rows, int warpgroup)
      : PrefillResults(params, rows, prefill_row<Tile>(warpgroup)) {}

  // After finish_sums(). By all threads of a warp. `partial_idx`: of the plan; -1: the output.
  __device__ __forceinline__ void write(const Rows& rows, float softmax_scale_log2,
                                        const HeadDescales& descales, int partial_idx) const {
    if (partial_idx >= 0) return write_partial(rows, descales, partial_idx);
    write_lse(rows, softmax_scale_log2);
    float out_scale[2];
#pragma unroll
    for (int half = 0; half < 2; ++half)
      out_scale[half] = scale_of(rows, half, softmax_scale_log2) * (Rows::kUnscale * descales.out);
    if (params_.out_element == Element::kF32)
      write_wide(rows, out_scale);
    else if (params_.out_element == Element::kBF16)
      write_narrow<__nv_bfloat16>(rows, out_scale);
    else
      write_narrow<__half>(rows, out_scale);
  }

 private:
  __device__ __forceinline__ void write_wide(const Rows& rows, const float (&out_scale)[2]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int tile_row = first_row_ + 8 * half;
      if (tile_row >= rows_.num_rows) continue;
      write_floats(rows, half, out_scale[half], reinterpret_cast<float*>(out_row(tile_row, sizeof(float))));
    }
  }

  // Relative to the row max in units that all work tiles share: kernels that merge know no descales of heads.
  __device__ __forceinline__ void write_partial(const Rows& rows, const HeadDescales& descales,
                                                int partial_idx) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int tile_row = first_row_ + 8 * half;
      if (tile_row >= rows_.num_rows) continue;
      const int64_t partial_row = int64_t{partial_idx} * params_.plan.partial_rows + tile_row;
      const float to_shared_units = params_.logit_cap > 0.0f ? 1.0f : descales.scores;
      if (lane_ % 4 == 0)
        params_.plan.partial_state[partial_row] =
            make_float2(rows.row_max[half] * to_shared_units, rows.row_sum[half]);
      write_floats(rows, half, Rows::kUnscale * descales.out,
                   params_.plan.partial_out + partial_row * params_.head_dim_v);
    }
  }

  // A lane has four columns of each sixteen.
  __device__ __forceinline__ void write_floats(const Rows& rows, int half, float scale, float* to) const {
#pragma unroll
    for (int sixteen = 0; sixteen < kSixteens; ++sixteen) {
      const int column = 16 * sixteen + e4m3::first_column_of_lane(lane_);
      if (column < params_.head_dim_v)
        *reinterpret_cast<float4*>(to + column) =
            make_float4(element(rows, sixteen, half, 0) * scale, element(rows, sixteen, half, 1) * scale,
                        element(rows, sixteen, half, 2) * scale, element(rows, sixteen, half, 3) * scale);
    }
  }

  // Four lanes of a row transpose what they have of four sixteens, so that each writes a whole one: four
  // lanes 128 bytes.
  template <class T>
  __device__ __forceinline__ void write_narrow(const Rows& rows, const float (&out_scale)[2]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int tile_row = first_row_ + 8 * half;
      const bool valid = tile_row < rows_.num_rows;
      auto* const to = reinterpret_cast<uint4*>(out_row(valid ? tile_row : 0, 2));
#pragma unroll
      for (int first = 0; first < kSixteens; first += 4) {
        uint32_t low[4], high[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          low[i] = pack(element(rows, first + i, half, 0) * out_scale[half],
                              element(rows, first + i, half, 1) * out_scale[half], T());
          high[i] = pack(element(rows, first + i, half, 2) * out_scale[half],
                               element(rows, first + i, half, 3) * out_scale[half], T());
        }
        quad_transpose(low, lane_);
        quad_transpose(high, lane_);
        const int sixteen = first + lane_ % 4;
        if (valid && sixteen * 16 < params_.head_dim_v) {
          to[2 * sixteen] = make_uint4(low[0], high[0], low[1], high[1]);
          to[2 * sixteen + 1] = make_uint4(low[2], high[2], low[3], high[3]);
        }
      }
    }
  }

  __device__ __forceinline__ static float element(const Rows& rows, int sixteen, int half, int column) {
    return rows.out[e4m3::element_of_column(sixteen, half, column)];
  }
};

}  // namespace attend::kernels::cuda::sm90
