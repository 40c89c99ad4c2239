// Results of a job of prefill on their way out of registers.
#pragma once

#include "attend/kernels/attention/cuda/common/job_rows.cuh"
#include "attend/kernels/attention/cuda/common/row_state.cuh"
#include "attend/kernels/attention/cuda/sm90/prefill_rows.cuh"

namespace attend::kernels::cuda::sm90 {

// The job's row that the present thread begins with, of the consumers' `warpgroup`.
template <class Tile>
__device__ __forceinline__ int prefill_row(int warpgroup) {
  const int thread = static_cast<int>(threadIdx.x);
  return warpgroup * Tile::kConsumerRows + thread / 32 % 4 * 16 + thread % 32 / 4;
}

template <class T, class Tile>
class PrefillResults {
  using Rows = PrefillRows<T, Tile>;
  static constexpr int kGroups = Rows::kColumns / 8;  // of eight columns

 public:
  __device__ PrefillResults(const AttentionParams& params, const sm80::JobRows& rows, int warpgroup)
      : params_(params), rows_(rows), first_row_(prefill_row<Tile>(warpgroup)) {}

  // After finish_sums(). By all threads of a warp.
  __device__ __forceinline__ void write(const Rows& rows, float factor) const {
    float out_factor[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) out_factor[half] = finish(rows, half, factor);
    if (params_.out_element == Element::kF32)
      write_wide(rows, out_factor);
    else
      write_narrow(rows, out_factor);
  }

 private:
  // The row's LSE; what its results are multiplied with.
  __device__ float finish(const Rows& rows, int half, float factor) const {
    const int tile_row = first_row_ + 8 * half;
    const sm80::TileRow row = rows_.at(params_, min(tile_row, rows_.num_rows - 1));
    const sm80::RowResult result =
        sm80::finish_row(params_, rows.largest[half], rows.sum[half], factor, row.head);
    if (params_.lse != nullptr && lane_ % 4 == 0 && tile_row < rows_.num_rows)
      params_.lse[(rows_.span.first_token + row.query) * params_.lse_token_stride +
                  row.head * params_.lse_head_stride] = result.lse;
    return result.out_factor;
  }

  __device__ char* out_row(int tile_row, int element_bytes) const {
    return static_cast<char*>(params_.out.data) +
           rows_.offset_in(params_.out, rows_.at(params_, tile_row)) * element_bytes;
  }

  __device__ __forceinline__ void write_wide(const Rows& rows, const float (&out_factor)[2]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int tile_row = first_row_ + 8 * half;
      if (tile_row >= rows_.num_rows) continue;
      auto* const to = reinterpret_cast<float2*>(out_row(tile_row, sizeof(float)));
#pragma unroll
      for (int n = 0; n < kGroups; ++n) {
        const int column = 8 * n + lane_ % 4 * 2;
        if (column < params_.head_dim_v)
          to[column / 2] = make_float2(rows.out[4 * n + 2 * half] * out_factor[half],
                                       rows.out[4 * n + 2 * half + 1] * out_factor[half]);
      }
    }
  }

  // Four lanes that share a row give one another what they have of four groups, so that each writes whole
  // groups: four lanes 64 bytes.
  __device__ __forceinline__ void write_narrow(const Rows& rows, const float (&out_factor)[2]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int tile_row = first_row_ + 8 * half;
      const bool valid = tile_row < rows_.num_rows;
      auto* const to = reinterpret_cast<uint4*>(out_row(valid ? tile_row : 0, 2));
#pragma unroll
      for (int first = 0; first < kGroups; first += 4) {
        uint32_t parts[4];
#pragma unroll
        for (int i = 0; i < 4; ++i)
          parts[i] = sm80::pack(rows.out[4 * (first + i) + 2 * half] * out_factor[half],
                                rows.out[4 * (first + i) + 2 * half + 1] * out_factor[half], T());
        transpose(parts);
        const int group = first + lane_ % 4;
        if (valid && group * 8 < params_.head_dim_v)
          to[group] = make_uint4(parts[0], parts[1], parts[2], parts[3]);
      }
    }
  }

  // Lane l of four gets part l of all four.
  __device__ __forceinline__ void transpose(uint32_t (&parts)[4]) const {
#pragma unroll
    for (int step = 1; step <= 2; step *= 2) {
      const bool upper = (lane_ & step) != 0;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if ((i & step) != 0) continue;
        const uint32_t got = __shfl_xor_sync(0xffffffffu, upper ? parts[i] : parts[i | step], step);
        (upper ? parts[i] : parts[i | step]) = got;
      }
    }
  }

  const AttentionParams& params_;
  const sm80::JobRows rows_;
  const int first_row_;
  const int lane_ = static_cast<int>(threadIdx.x) % 32;
};

}  // namespace attend::kernels::cuda::sm90
