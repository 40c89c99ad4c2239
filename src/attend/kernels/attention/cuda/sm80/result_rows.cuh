// Results of a job on their way out of registers: to the output, or to a slot of the plan.
#pragma once

#include "attend/kernels/attention/cuda/common/job_rows.cuh"
#include "attend/kernels/attention/cuda/common/row_state.cuh"
#include "attend/kernels/attention/cuda/common/tile_config.h"
#include "attend/kernels/attention/cuda/common/warp_rows.cuh"
#include "attend/kernels/common/cuda/ptx/thread.cuh"

namespace attend::kernels::cuda::sm80 {

// `T`: the 16-bit type of the products. `Config`: the tile's.
template <class T, class Config, int kHeadDimV, class Warp>
class ResultRows {
  static constexpr int kRows = Config::kRows, kThreads = Config::kThreads;
  // Warps that share rows meet in shared memory.
  static constexpr int kMergePitch = kHeadDimV + 4;

 public:
  // Shared memory that write() takes, past the last use of keys and values.
  static constexpr int kSharedBytes = Config::kWarpsN > 1 ? Config::kWarpsN* kRows*(kMergePitch + 2) *
                                                                static_cast<int>(sizeof(float))
                                                          : kRows* kHeadDimV * 2;

  __device__ ResultRows(const AttentionParams& params, const JobRows& rows, char* shared)
      : params_(params), rows_(rows), staging_(shared) {}

  // `slot`: of the plan; -1: the output. All threads call it.
  __device__ void write(const Warp& warp, float factor, int slot) const {
    if constexpr (Config::kWarpsN > 1)
      merge_warps(warp, factor, slot);
    else if (slot >= 0 || params_.out_element == Element::kF32)
      write_wide_rows(warp, factor, slot);
    else
      write_narrow_rows(warp, factor);
  }

 private:
  // Where a row's result goes, in the output or in slot `slot` of the plan, and what it is multiplied with.
  struct RowTarget {
    char* out;
    float factor;
  };
  __device__ char* out_row(const TileRow& row) const {
    return static_cast<char*>(params_.out.data) +
           rows_.offset_in(params_.out, row) * (params_.out_element == Element::kF32 ? 4 : 2);
  }
  // One of the threads of a row `leads`: it writes what the row has one of.
  __device__ RowTarget finish(int tile_row, float largest, float sum, float factor, int slot,
                              bool leads) const {
    if (slot >= 0) {
      const int64_t slot_row = int64_t{slot} * params_.plan.partial_rows + tile_row;
      if (leads) params_.plan.partial_state[slot_row] = make_float2(largest, sum);
      return {reinterpret_cast<char*>(params_.plan.partial_out + slot_row * params_.head_dim_v), 1.0f};
    }
    const TileRow row = rows_.at(params_, tile_row);
    const RowResult result = finish_row(params_, largest, sum, factor, row.head);
    if (leads && params_.lse != nullptr)
      params_.lse[(rows_.span.first_token + row.query) * params_.lse_token_stride +
                  row.head * params_.lse_head_stride] = result.lse;
    return {out_row(row), result.out_factor};
  }

  // Float32: the output or a partial result.
  __device__ void write_wide_rows(const Warp& warp, float factor, int slot) const {
    const int thread = ptx::tid_x(), lane = thread % 32;
#pragma unroll
    for (int b = 0; b < Config::kRowBlocks; ++b) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int tile_row = warp_row<Config>(thread) + b * 16 + half * 8 + lane / 4;
        if (tile_row >= rows_.num_rows) continue;
        const RowTarget target =
            finish(tile_row, warp.largest[b][half], warp.sum[b][half], factor, slot, lane % 4 == 0);
#pragma unroll
        for (int n = 0; n < kHeadDimV / 8; ++n) {
          const int column = Warp::pair_column(lane, n);
          const float2 pair = warp.pair(b, half, n);
          if (column < params_.head_dim_v)
            reinterpret_cast<float2*>(target.out)[column / 2] =
                make_float2(pair.x * target.factor, pair.y * target.factor);
        }
      }
    }
  }

  // K and V of fp8 leave open which of the two 16-bit types the result has.
  __device__ uint32_t pack_out(float a, float b) const {
    if constexpr (Config::kConvertsFp8)
      if (params_.out_element == Element::kBF16) return pack(a, b, __nv_bfloat16());
    return pack(a, b, T());
  }

  // By way of shared memory, so that a warp writes whole rows_.
  __device__ void write_narrow_rows(const Warp& warp, float factor) const {
    using Rows = SwizzledRows<kHeadDimV * 2>;
    constexpr int kWarpRows = Config::kRowBlocks * 16;
    const int thread = ptx::tid_x(), lane = thread % 32, first_row = warp_row<Config>(thread);
    char* staged = staging_ + first_row * kHeadDimV * 2;
    __syncthreads();
#pragma unroll
    for (int b = 0; b < Config::kRowBlocks; ++b) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int warp_tile_row = b * 16 + half * 8 + lane / 4, tile_row = first_row + warp_tile_row;
        const float out_factor = finish(tile_row, warp.largest[b][half], warp.sum[b][half], factor, -1,
                                        lane % 4 == 0 && tile_row < rows_.num_rows)
                                     .factor;
#pragma unroll
        for (int n = 0; n < kHeadDimV / 8; ++n) {
          const int column = Warp::pair_column(lane, n);
          const float2 pair = warp.pair(b, half, n);
          *reinterpret_cast<uint32_t*>(staged + Rows::offset(warp_tile_row, column / 8) + column % 8 * 2) =
              pack_out(pair.x * out_factor, pair.y * out_factor);
        }
      }
    }
    __syncwarp();
    constexpr int kPieces = kHeadDimV / 8;
#pragma unroll 4
    for (int i = lane; i < kWarpRows * kPieces; i += 32) {
      const int row = i / kPieces, piece = i % kPieces, tile_row = first_row + row;
      if (tile_row >= rows_.num_rows || piece * 8 >= params_.head_dim_v) continue;
      *reinterpret_cast<uint4*>(out_row(rows_.at(params_, tile_row)) + piece * 16) =
          *reinterpret_cast<const uint4*>(staged + Rows::offset(row, piece));
    }
  }

  // The warps hold results of the same rows over different keys. Warp 0 comes first, so that the order is
  // fixed.
  __device__ void merge_warps(const Warp& warp, float factor, int slot) const {
    constexpr int kWarps = Config::kWarpsN;
    float* outs = reinterpret_cast<float*>(staging_);       // [kWarps, kRows, kMergePitch]
    float* largests = outs + kWarps * kRows * kMergePitch;  // [kWarps, kRows]
    float* sums = largests + kWarps * kRows;
    const int lane = threadIdx.x % 32, w = threadIdx.x / 32;
    __syncthreads();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int at = w * kRows + half * 8 + lane / 4;
      if (lane % 4 == 0) {
        largests[at] = warp.largest[0][half];
        sums[at] = warp.sum[0][half];
      }
#pragma unroll
      for (int n = 0; n < kHeadDimV / 8; ++n)
        *reinterpret_cast<float2*>(outs + at * kMergePitch + Warp::pair_column(lane, n)) =
            warp.pair(0, half, n);
    }
    __syncthreads();
    // A few neighbouring threads share a row.
    constexpr int kLanes = kThreads / kRows;
    const int tile_row = threadIdx.x / kLanes;
    if (tile_row >= rows_.num_rows) return;
    float largest = -INFINITY;
#pragma unroll
    for (int other = 0; other < kWarps; ++other) largest = fmaxf(largest, largests[other * kRows + tile_row]);
    const float shift = largest == -INFINITY ? 0.0f : largest * factor;
    float weights[kWarps], sum = 0.0f;
#pragma unroll
    for (int other = 0; other < kWarps; ++other) {
      weights[other] = ptx::ex2_approx(largests[other * kRows + tile_row] * factor - shift);
      sum += weights[other] * sums[other * kRows + tile_row];
    }
    const RowTarget target = finish(tile_row, largest, sum, factor, slot, threadIdx.x % kLanes == 0);
    const bool wide = slot >= 0 || params_.out_element == Element::kF32;
#pragma unroll
    for (int first = 0; first < kHeadDimV; first += 4 * kLanes) {
      const int column = first + threadIdx.x % kLanes * 4;
      if (column >= params_.head_dim_v) break;
      float4 out{};
#pragma unroll
      for (int other = 0; other < kWarps; ++other) {
        const float4 part =
            *reinterpret_cast<const float4*>(outs + (other * kRows + tile_row) * kMergePitch + column);
        out.x += weights[other] * part.x;
        out.y += weights[other] * part.y;
        out.z += weights[other] * part.z;
        out.w += weights[other] * part.w;
      }
      const float f = target.factor;
      if (wide)
        *reinterpret_cast<float4*>(target.out + column * 4) =
            make_float4(out.x * f, out.y * f, out.z * f, out.w * f);
      else
        *reinterpret_cast<uint2*>(target.out + column * 2) =
            make_uint2(pack_out(out.x * f, out.y * f), pack_out(out.z * f, out.w * f));
    }
  }

  const AttentionParams& params_;
  const JobRows& rows_;
  char* staging_;
};

}  // namespace attend::kernels::cuda::sm80
