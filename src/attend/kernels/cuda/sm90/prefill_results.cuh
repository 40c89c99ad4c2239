// Results of a job of prefill on their way out of registers.
#pragma once

#include "attend/kernels/cuda/sm80/job_rows.cuh"
#include "attend/kernels/cuda/sm80/row_state.cuh"
#include "attend/kernels/cuda/sm90/prefill_rows.cuh"
#include "attend/kernels/cuda/sm90/prefill_shared.cuh"

namespace attend::kernels::cuda::sm90 {

// The job's row that the present thread begins with, of the consumers' `warpgroup`.
__device__ __forceinline__ int prefill_row(int warpgroup) {
  const int thread = static_cast<int>(threadIdx.x);
  return warpgroup * 64 + thread / 32 % 4 * 16 + thread % 32 / 4;
}

template <class T, class Tile>
class PrefillResults {
  using Rows = PrefillRows<T, Tile>;
  static constexpr int kGroups = Rows::kColumns / 8;  // of eight columns
  static constexpr int kWarpRows = 16;

 public:
  // `staging`: where the job's queries were.
  __device__ PrefillResults(const AttentionParams& params, const sm80::JobRows& rows, int warpgroup,
                            char* staging)
      : params_(params), rows_(rows), first_row_(prefill_row(warpgroup)), staging_(staging) {}

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

  // By way of shared memory, so that a warp writes whole rows.
  __device__ __forceinline__ void write_narrow(const Rows& rows, const float (&out_factor)[2]) const {
    const int first_warp_row = first_row_ - lane_ / 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int tile_row = first_row_ + 8 * half;
#pragma unroll
      for (int n = 0; n < kGroups; ++n)
        *reinterpret_cast<uint32_t*>(staged(tile_row, n) + lane_ % 4 * 4) =
            sm80::pack(rows.out[4 * n + 2 * half] * out_factor[half],
                       rows.out[4 * n + 2 * half + 1] * out_factor[half], T());
    }
    __syncwarp();
#pragma unroll 4
    for (int i = lane_; i < kWarpRows * kGroups; i += 32) {
      const int tile_row = first_warp_row + i / kGroups, group = i % kGroups;
      if (tile_row >= rows_.num_rows || group * 8 >= params_.head_dim_v) continue;
      *reinterpret_cast<uint4*>(out_row(tile_row, 2) + group * 16) =
          *reinterpret_cast<const uint4*>(staged(tile_row, group));
    }
  }

  // Where eight columns of a row wait.
  __device__ char* staged(int tile_row, int group) const {
    return staging_ + group / 8 * Tile::kQueryChunkBytes + swizzled(tile_row, group % 8);
  }

  const AttentionParams& params_;
  const sm80::JobRows& rows_;
  const int first_row_;
  const int lane_ = static_cast<int>(threadIdx.x) % 32;
  char* const staging_;
};

}  // namespace attend::kernels::cuda::sm90
