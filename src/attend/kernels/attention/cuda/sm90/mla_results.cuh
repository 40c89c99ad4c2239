// Results of a job of MLA on their way out of registers: a warpgroup's half of the columns.
#pragma once

#include "attend/kernels/attention/cuda/common/job_rows.cuh"
#include "attend/kernels/attention/cuda/common/row_state.cuh"
#include "attend/kernels/attention/cuda/sm90/mla_rows.cuh"

namespace attend::kernels::cuda::sm90 {

template <class T>
class MlaResults {
  static constexpr int kGroups = MlaTile::kColumns / 8;  // of eight columns

 public:
  // `first_row`: of the tile, the thread's.
  __device__ MlaResults(const AttentionParams& params, const MlaJob& job, int warpgroup, int first_row)
      : params_(params),
        rows_(params, job.tile, job.head, params.plan.tile_rows),
        slot_(job.slot),
        first_column_(warpgroup * MlaTile::kColumns),
        first_row_(first_row) {}

  // `sum`: of both warpgroups and all columns. By all threads of a warp.
  __device__ __forceinline__ void write(const MlaRowState<T>& rows, const float (&sum)[2],
                                        float factor) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int tile_row = first_row_ + 8 * half;
      const bool valid = tile_row < rows_.num_rows;
      const sm80::TileRow row = rows_.at(params_, valid ? tile_row : 0);
      const bool tells = valid && lane_ % 4 == 0 && first_column_ == 0;
      if (slot_ >= 0) {
        const int64_t slot_row = int64_t{slot_} * params_.plan.partial_rows + tile_row;
        if (tells) params_.plan.partial_state[slot_row] = make_float2(rows.row_max[half], sum[half]);
        if (valid) write_wide(rows, half, 1.0f, params_.plan.partial_out + slot_row * params_.head_dim_v);
        continue;
      }
      const int64_t token = rows_.span.first_token + row.query;
      const sm80::RowResult result =
          sm80::finish_row(params_, rows.row_max[half], sum[half], factor, row.head);
      if (tells && params_.lse != nullptr)
        params_.lse[token * params_.lse_token_stride + row.head * params_.lse_head_stride] = result.lse;
      const int64_t to = token * params_.out.token_stride + row.head * params_.out.head_stride;
      if (params_.out_element != Element::kF32)
        write_narrow(rows, half, result.out_factor, valid, static_cast<T*>(params_.out.data) + to);
      else if (valid)
        write_wide(rows, half, result.out_factor, static_cast<float*>(params_.out.data) + to);
    }
  }

 private:
  // Four lanes write 32 bytes.
  __device__ __forceinline__ void write_wide(const MlaRowState<T>& rows, int half, float factor,
                                             float* to) const {
#pragma unroll
    for (int n = 0; n < kGroups; ++n) {
      const int column = first_column_ + 8 * n + lane_ % 4 * 2;
      if (column < params_.head_dim_v)
        *reinterpret_cast<float2*>(to + column) =
            make_float2(rows.out[4 * n + 2 * half] * factor, rows.out[4 * n + 2 * half + 1] * factor);
    }
  }

  // Four lanes that share a row give one another what they have of four groups, so that each writes whole
  // groups: four lanes 64 bytes.
  __device__ __forceinline__ void write_narrow(const MlaRowState<T>& rows, int half, float factor, bool valid,
                                               T* to) const {
#pragma unroll
    for (int first = 0; first < kGroups; first += 4) {
      uint32_t parts[4];
#pragma unroll
      for (int i = 0; i < 4; ++i)
        parts[i] = sm80::pack(rows.out[4 * (first + i) + 2 * half] * factor,
                              rows.out[4 * (first + i) + 2 * half + 1] * factor, T());
      transpose(parts);
      const int column = first_column_ + (first + lane_ % 4) * 8;
      if (valid && column < params_.head_dim_v)
        *reinterpret_cast<uint4*>(to + column) = make_uint4(parts[0], parts[1], parts[2], parts[3]);
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
  const int slot_, first_column_, first_row_;
  const int lane_ = static_cast<int>(threadIdx.x) % 32;
};

}  // namespace attend::kernels::cuda::sm90
