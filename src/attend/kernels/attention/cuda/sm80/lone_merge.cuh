// How the CTAs of lone_decode.cuh merge: AttentionEpilogue's order of sums, but what CTAs send one another
// says itself that it has come, where barriers of the cluster wait until all of an SM's writes are seen.
#pragma once

#include "attend/kernels/attention/cuda/common/attention_params.h"
#include "attend/kernels/attention/cuda/common/tile_config.h"
#include "attend/kernels/attention/cuda/common/warp_rows.cuh"
#include "attend/kernels/attention/cuda/sm80/merged_state.cuh"
#include "attend/kernels/common/cuda/ptx/cluster.cuh"
#include "attend/kernels/common/cuda/ptx/cluster_exchange.cuh"
#include "attend/kernels/common/cuda/ptx/copy.cuh"
#include "attend/kernels/common/cuda/ptx/integer.cuh"
#include "attend/kernels/common/cuda/ptx/mbarrier.cuh"

namespace attend::kernels::cuda::sm80 {

// Of the grid: clusters in the order of K/V heads. "%clusterid" is a division.
__device__ inline int lone_head() { return static_cast<int>(blockIdx.x) / kClusterSize; }
__device__ inline int lone_rank() { return static_cast<int>(blockIdx.x) % kClusterSize; }

// A CTA's end of one exchange. Rows are the query heads of the cluster's K/V head.
template <class T, class Config, int kHeadDim>
class LoneMerge {
  static constexpr int kRows = Config::kRows, kThreads = Config::kThreads, kWarps = Config::kWarpsN;
  static constexpr int kPitch = kHeadDim + 4;
  static constexpr int kColumns = kHeadDim / kClusterSize;  // of a CTA
  static constexpr int kValueBytes = kColumns * 4, kStateBytes = 16;
  static constexpr int kStatesAt = kClusterSize * kRows * kValueBytes;

 public:
  // What is received: [kClusterSize, kRows, kColumns] floats, and the rows' states.
  static constexpr int kReceivedBytes = kStatesAt + kClusterSize * kRows * kStateBytes;
  // [kWarps, kRows, kPitch], row maxes and row sums [kWarps, kRows].
  static constexpr int kStagedBytes = kWarps * kRows * (kPitch + 2) * 4;

  // `barrier`: an mbarrier, on behalf of which one thread has called expect(). It serves one exchange.
  __device__ LoneMerge(const AttentionParams& params, char* staged, char* received, uint32_t barrier)
      : params_(params), staged_(reinterpret_cast<float*>(staged)), received_(received), barrier_(barrier) {}

  __device__ static void expect(uint32_t barrier, int num_rows) {
    ptx::mbarrier_init(barrier, 1);
    ptx::mbarrier_arrive_expect_tx(barrier, kClusterSize * num_rows * (kValueBytes + kStateBytes));
  }

  // All threads of all CTAs call it, once these know of one another's barriers.
  template <class Warp>
  __device__ void run(const Warp& warp, float softmax_scale_log2) const {
    const int thread = static_cast<int>(threadIdx.x), w = thread / 32;
    float* const row_maxes = staged_ + kWarps * kRows * kPitch;
    float* const row_sums = row_maxes + kWarps * kRows;
    __syncthreads();
    warp.put_states(row_maxes + w * kRows, row_sums + w * kRows);
    warp.put_rows(staged_ + w * kRows * kPitch, kPitch);
    __syncthreads();
    constexpr int kLanes = kThreads / kRows;
    const int tile_row = thread / kLanes, lane = thread % kLanes;
    if (tile_row < params_.group) {
      const auto state = merged_state<kWarps>(softmax_scale_log2, [&](int i) {
        return make_float2(row_maxes[i * kRows + tile_row], row_sums[i * kRows + tile_row]);
      });
      const uint32_t row = static_cast<uint32_t>(lone_rank() * kRows + tile_row);
      const uint32_t received = ptx::shared_address(received_);
#pragma unroll
      for (int column = lane * 4; column < kHeadDim; column += 4 * kLanes) {
        float4 sum{};
#pragma unroll
        for (int i = 0; i < kWarps; ++i)
          add_scaled(sum, state.rescale[i],
                     *reinterpret_cast<const float4*>(staged_ + (i * kRows + tile_row) * kPitch + column));
        send(received + row * kValueBytes + static_cast<uint32_t>(column % kColumns * 4), column / kColumns,
             sum);
      }
      if (lane < kClusterSize)
        send(received + kStatesAt + row * kStateBytes, lane, {state.row_max, state.row_sum, 0.0f, 0.0f});
    }
    ptx::mbarrier_wait_cluster(barrier_, 0);
    // Two columns a thread.
    constexpr int kPairs = kColumns / 2;
    static_assert(kRows * kPairs <= kThreads);
    const int row = thread / kPairs, pair = thread % kPairs;
    if (row >= params_.group) return;
    const auto state = merged_state<kClusterSize>(softmax_scale_log2, [&](int from) {
      return *reinterpret_cast<const float2*>(received_ + kStatesAt + (from * kRows + row) * kStateBytes);
    });
    float2 out{};
#pragma unroll
    for (int from = 0; from < kClusterSize; ++from)
      add_scaled(out, state.rescale[from],
                 *reinterpret_cast<const float2*>(received_ + (from * kRows + row) * kValueBytes + pair * 8));
    const float scale = state.row_sum == 0.0f ? 0.0f : params_.v_scale * __frcp_rn(state.row_sum);
    const int head = lone_head() * params_.group + row;
    const int64_t at =
        ptx::mad_wide(head, static_cast<int32_t>(params_.out.head_stride), lone_rank() * kColumns + pair * 2);
    *reinterpret_cast<uint32_t*>(static_cast<char*>(params_.out.data) + at * 2) =
        pack(out.x * scale, out.y * scale, T());
  }

 private:
  // 16 bytes to another CTA, or this one.
  __device__ void send(uint32_t to, int rank, const float4& four) const {
    ptx::st_async_16(ptx::mapa(to, rank), four.x, four.y, four.z, four.w, ptx::mapa(barrier_, rank));
  }

  const AttentionParams& params_;
  float* staged_;
  char* received_;
  uint32_t barrier_;
};

}  // namespace attend::kernels::cuda::sm80
