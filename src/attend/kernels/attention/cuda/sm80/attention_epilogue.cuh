// Epilogue of attention on mma.sync: writes a work tile's rows to the output, or to a partial result of the
// plan.
#pragma once

#include "attend/kernels/attention/cuda/common/row_state.cuh"
#include "attend/kernels/attention/cuda/common/tile_config.h"
#include "attend/kernels/attention/cuda/common/warp_rows.cuh"
#include "attend/kernels/attention/cuda/common/work_tile_rows.cuh"
#include "attend/kernels/common/cuda/ptx/cluster.cuh"
#include "attend/kernels/common/cuda/ptx/copy.cuh"
#include "attend/kernels/common/cuda/ptx/thread.cuh"

namespace attend::kernels::cuda::sm80 {

// Writes a work tile's rows to the output, or to a partial result of the plan. `T`: 16-bit type of the MMAs.
// `kClusters`: the CTAs of a cluster have the same rows over different keys, rank 0 the lowest.
template <class T, class Config, int kHeadDimV, class Warp, bool kClusters>
class AttentionEpilogue {
  static constexpr int kRows = Config::kRows, kThreads = Config::kThreads, kWarpsN = Config::kWarpsN;
  static_assert(!kClusters || kWarpsN > 1);
  // Warps that share rows merge in shared memory: [kWarpsN, kRows, kMergePitch], row maxima and row sums
  // [kWarpsN, kRows]. They are followed by data that the CTAs of a cluster send, by their rank:
  // [kClusterSize, kRows] of this CTA's columns, and their rows' states.
  static constexpr int kMergePitch = kHeadDimV + 4;
  static constexpr int kMergeBytes = kWarpsN * kRows * (kMergePitch + 2) * static_cast<int>(sizeof(float));
  static constexpr int kReceivedBytes = kRows * kHeadDimV * static_cast<int>(sizeof(float));
  static constexpr int kStatesBytes = kClusterSize * kRows * static_cast<int>(sizeof(float2));

 public:
  // Shared memory of write(), which reuses that of keys and values.
  static constexpr int kSharedBytes =
      (kWarpsN > 1 ? kMergeBytes : kRows * kHeadDimV * 2) + (kClusters ? kReceivedBytes + kStatesBytes : 0);

  // `value_scale`: factor of the values in addition to params.v_scale.
  __device__ AttentionEpilogue(const AttentionParams& params, const WorkTileRows& rows, float value_scale,
                               char* shared)
      : params_(params), rows_(rows), value_scale_(value_scale), staging_(shared) {}

  // `partial_idx`: partial result of the plan; -1: the output. Called by all threads.
  __device__ void write(const Warp& warp, float softmax_scale_log2, int partial_idx) const {
    if constexpr (Config::kWarpsN > 1)
      merge_warps(warp, softmax_scale_log2, partial_idx);
    else if (partial_idx >= 0 || params_.out_element == Element::kF32)
      write_wide_rows(warp, softmax_scale_log2, partial_idx);
    else
      write_narrow_rows(warp, softmax_scale_log2);
  }

 private:
  // Address of a row in the output or in partial result `partial_idx`, and its scale.
  struct RowTarget {
    char* out;
    float scale;
  };
  __device__ char* out_row(const TileRow& row) const {
    return static_cast<char*>(params_.out.data) +
           rows_.offset_in(params_.out, row) * (params_.out_element == Element::kF32 ? 4 : 2);
  }
  // One of the threads of a row `leads`: it writes the row's softmax state or LSE.
  __device__ RowTarget finish(int tile_row, float row_max, float row_sum, float softmax_scale_log2,
                              int partial_idx, bool leads) const {
    if (partial_idx >= 0) {
      const int64_t partial_row = int64_t{partial_idx} * params_.plan.partial_rows + tile_row;
      if (leads) params_.plan.partial_state[partial_row] = make_float2(row_max, row_sum);
      return {reinterpret_cast<char*>(params_.plan.partial_out + partial_row * params_.head_dim_v),
              value_scale_};
    }
    const TileRow row = rows_.at(params_, tile_row);
    const RowResult result = finish_row(params_, row_max, row_sum, softmax_scale_log2, row.head);
    if (leads && params_.lse != nullptr)
      params_.lse[(rows_.span.first_token + row.query) * params_.lse_token_stride +
                  row.head * params_.lse_head_stride] = result.lse;
    return {out_row(row), result.out_scale * value_scale_};
  }

  // Writes float32: the output or a partial result.
  __device__ void write_wide_rows(const Warp& warp, float softmax_scale_log2, int partial_idx) const {
    const int thread = ptx::tid_x(), lane = thread % 32;
#pragma unroll
    for (int b = 0; b < Config::kRowBlocks; ++b) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int tile_row = warp_row<Config>(thread) + b * 16 + half * 8 + lane / 4;
        if (tile_row >= rows_.num_rows) continue;
        const RowTarget target = finish(tile_row, warp.row_max[b][half], warp.row_sum[b][half],
                                        softmax_scale_log2, partial_idx, lane % 4 == 0);
#pragma unroll
        for (int n = 0; n < kHeadDimV / 8; ++n) {
          const int column = Warp::pair_column(lane, n);
          const float2 pair = warp.pair(b, half, n);
          if (column < params_.head_dim_v)
            reinterpret_cast<float2*>(target.out)[column / 2] =
                make_float2(pair.x * target.scale, pair.y * target.scale);
        }
      }
    }
  }

  // With fp8 K and V, the output may have either 16-bit type.
  __device__ uint32_t pack_out(float a, float b) const {
    if constexpr (Config::kConvertsFp8)
      if (params_.out_element == Element::kBF16) return pack(a, b, __nv_bfloat16());
    return pack(a, b, T());
  }

  // Writes through shared memory, so that a warp writes whole rows.
  __device__ void write_narrow_rows(const Warp& warp, float softmax_scale_log2) const {
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
        const float out_scale = finish(tile_row, warp.row_max[b][half], warp.row_sum[b][half],
                                       softmax_scale_log2, -1, lane % 4 == 0 && tile_row < rows_.num_rows)
                                    .scale;
#pragma unroll
        for (int n = 0; n < kHeadDimV / 8; ++n) {
          const int column = Warp::pair_column(lane, n);
          const float2 pair = warp.pair(b, half, n);
          *reinterpret_cast<uint32_t*>(staged + Rows::offset(warp_tile_row, column / 8) + column % 8 * 2) =
              pack_out(pair.x * out_scale, pair.y * out_scale);
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

  // Stores a warp's rows and their states to shared memory for merge_warps().
  __device__ static void put_rows(const Warp& warp, float* outs, float* row_maxes, float* row_sums) {
    if constexpr (Warp::kKeyMajor) {
      warp.put_states(row_maxes, row_sums);
      warp.put_rows(outs, kMergePitch);
    } else {
      const int lane = threadIdx.x % 32;
#pragma unroll
      for (int b = 0; b < Config::kRowBlocks; ++b) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int row = b * 16 + half * 8 + lane / 4;
          if (lane % 4 == 0) {
            row_maxes[row] = warp.row_max[b][half];
            row_sums[row] = warp.row_sum[b][half];
          }
#pragma unroll
          for (int n = 0; n < kHeadDimV / 8; ++n)
            *reinterpret_cast<float2*>(outs + row * kMergePitch + Warp::pair_column(lane, n)) =
                warp.pair(b, half, n);
        }
      }
    }
  }

  // Merges warps that hold the same rows over different keys. Warp 0 is first, so that the order is fixed.
  __device__ void merge_warps(const Warp& warp, float softmax_scale_log2, int partial_idx) const {
    float* outs = reinterpret_cast<float*>(staging_);
    float* row_maxes = outs + kWarpsN * kRows * kMergePitch;
    float* row_sums = row_maxes + kWarpsN * kRows;
    // This CTA's keys and values are no longer needed: other CTAs may overwrite them.
    if constexpr (kClusters) ptx::cluster_arrive();
    __syncthreads();
    const int w = threadIdx.x / 32;
    put_rows(warp, outs + w * kRows * kMergePitch, row_maxes + w * kRows, row_sums + w * kRows);
    __syncthreads();
    // Several neighboring threads share a row.
    constexpr int kLanes = kThreads / kRows;
    const int tile_row = threadIdx.x / kLanes, lane_in_row = threadIdx.x % kLanes;
    const bool valid = tile_row < rows_.num_rows;
    if constexpr (!kClusters)
      if (!valid) return;
    const auto state = merged_state<kWarpsN>(softmax_scale_log2, [&](int i) {
      return make_float2(row_maxes[i * kRows + tile_row], row_sums[i * kRows + tile_row]);
    });
    const auto columns_at = [&](int column) {
      float4 sum{};
#pragma unroll
      for (int i = 0; i < kWarpsN; ++i)
        add_scaled(sum, state.rescale[i],
                   *reinterpret_cast<const float4*>(outs + (i * kRows + tile_row) * kMergePitch + column));
      return sum;
    };
    if constexpr (kClusters) {
      ptx::cluster_wait();
      if (valid) send(tile_row, lane_in_row, make_float2(state.row_max, state.row_sum), columns_at);
      __syncwarp();
      ptx::cluster_arrive();
      ptx::cluster_wait();
      merge_received(softmax_scale_log2, partial_idx);
    } else {
      const RowTarget target =
          finish(tile_row, state.row_max, state.row_sum, softmax_scale_log2, partial_idx, lane_in_row == 0);
#pragma unroll
      for (int column = lane_in_row * 4; column < kHeadDimV; column += 4 * kLanes)
        write_columns(target, partial_idx, column, columns_at(column));
    }
  }

  // Writes four columns of a row.
  __device__ void write_columns(const RowTarget& target, int partial_idx, int column,
                                const float4& out) const {
    if (column >= params_.head_dim_v) return;
    const float f = target.scale;
    if (partial_idx >= 0 || params_.out_element == Element::kF32)
      *reinterpret_cast<float4*>(target.out + column * 4) =
          make_float4(out.x * f, out.y * f, out.z * f, out.w * f);
    else
      *reinterpret_cast<uint2*>(target.out + column * 2) =
          make_uint2(pack_out(out.x * f, out.y * f), pack_out(out.z * f, out.w * f));
  }

  // Columns per CTA of a cluster.
  static constexpr int kColumnsPerCta = kHeadDimV / kClusterSize;
  static_assert(kColumnsPerCta % 4 == 0);
  __device__ char* received() const { return staging_ + kMergeBytes; }

  // Sends to every CTA of the cluster its columns of this row, and the row's state.
  template <class ColumnsAt>
  __device__ void send(int tile_row, int lane_in_row, const float2& state,
                       const ColumnsAt& columns_at) const {
    constexpr int kLanes = kThreads / kRows;
    const int row = ptx::cluster_rank() * kRows + tile_row;
    const uint32_t values = ptx::shared_address(received()), states = values + kReceivedBytes;
#pragma unroll
    for (int column = lane_in_row * 4; column < kHeadDimV; column += 4 * kLanes) {
      const int at = row * kColumnsPerCta + column % kColumnsPerCta;
      ptx::st_shared_cluster(ptx::mapa(values + 4 * static_cast<uint32_t>(at), column / kColumnsPerCta),
                             columns_at(column));
    }
#pragma unroll
    for (int to = lane_in_row; to < kClusterSize; to += kLanes)
      ptx::st_shared_cluster(ptx::mapa(states + 8 * static_cast<uint32_t>(row), to), state);
  }

  // Merges this CTA's columns of all rows.
  __device__ void merge_received(float softmax_scale_log2, int partial_idx) const {
    constexpr int kPieces = kColumnsPerCta / 4;
    const int rank = ptx::cluster_rank();
    const auto* values = reinterpret_cast<const float4*>(received());
    const auto* states = reinterpret_cast<const float2*>(received() + kReceivedBytes);
    for (int i = static_cast<int>(threadIdx.x); i < rows_.num_rows * kPieces; i += kThreads) {
      const int tile_row = i / kPieces, piece = i % kPieces;
      const auto state = merged_state<kClusterSize>(
          softmax_scale_log2, [&](int from) { return states[from * kRows + tile_row]; });
      float4 out{};
#pragma unroll
      for (int from = 0; from < kClusterSize; ++from)
        add_scaled(out, state.rescale[from], values[(from * kRows + tile_row) * kPieces + piece]);
      const RowTarget target = finish(tile_row, state.row_max, state.row_sum, softmax_scale_log2, partial_idx,
                                      rank == 0 && piece == 0);
      write_columns(target, partial_idx, rank * kColumnsPerCta + piece * 4, out);
    }
  }

  const AttentionParams& params_;
  const WorkTileRows& rows_;
  const float value_scale_;
  char* staging_;
};

}  // namespace attend::kernels::cuda::sm80
