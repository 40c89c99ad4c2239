// Decode of a single request with one cluster per KV head. Bit-identical to AttentionCta, in a sixth of its
// machine code. A decode step of one request runs it once per layer, and its code is fetched from memory each
// time, since other kernels read megabytes in between: instructions that run once take longer to fetch than
// to execute.
//
//   tile        8 rows x 64 keys of 16 bits, head dims 64/64 and 128/128, with KeyMajorTile
//   grid        one cluster of 8 CTAs per KV head; 4 warps per CTA, each with a quarter of each tile's keys
//   order       keys of the prefix are loaded before the previous kernel has finished; only queries and the
//               new key are loaded after the wait
//   registers   up to 128 per thread
//   shared      56 KB at head dim 64, 109 KB at 128: queries, 3 stages of keys and values (the staging of
//               results overlays the last one), and data that CTAs send. Two CTAs fit on an SM
//   bound       cold instruction fetches and loads, then reading K/V
#pragma once

#include "attend/kernels/attention/cuda/common/attention_mask.cuh"
#include "attend/kernels/attention/cuda/common/attention_params.h"
#include "attend/kernels/attention/cuda/common/key_major_tile.cuh"
#include "attend/kernels/attention/cuda/common/row_state.cuh"
#include "attend/kernels/attention/cuda/common/shared_carveout.cuh"
#include "attend/kernels/attention/cuda/common/tile_config.h"
#include "attend/kernels/attention/cuda/common/warp_rows.cuh"
#include "attend/kernels/common/cuda/ptx/cluster.cuh"
#include "attend/kernels/common/cuda/ptx/cluster_exchange.cuh"
#include "attend/kernels/common/cuda/ptx/copy.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/common/cuda/ptx/mbarrier.cuh"
#include "attend/kernels/common/cuda/ptx/thread.cuh"

namespace attend::kernels::cuda::sm90 {

// Merge of the CTAs of a cluster. Sums are in AttentionEpilogue's order. Messages signal their own arrival;
// cluster barriers would wait until all of an SM's writes are visible.

// Position in the grid: clusters in the order of KV heads. "%clusterid" would need a division.
__device__ inline int decode_head() { return static_cast<int>(blockIdx.x) / kClusterSize; }
__device__ inline int decode_rank() { return static_cast<int>(blockIdx.x) % kClusterSize; }

// One exchange of a CTA. Rows are the query heads of the cluster's KV head.
template <class T, class Config, int kHeadDim>
class ClusterMerge {
  static constexpr int kRows = Config::kRows, kThreads = Config::kThreads, kWarps = Config::kWarpsN;
  static constexpr int kPitch = kHeadDim + 4;
  static constexpr int kColumns = kHeadDim / kClusterSize;  // per CTA
  static constexpr int kValueBytes = kColumns * 4, kStateBytes = 16;
  static constexpr int kStatesAt = kClusterSize * kRows * kValueBytes;

 public:
  // Received data: [kClusterSize, kRows, kColumns] floats, and the rows' states.
  static constexpr int kReceivedBytes = kStatesAt + kClusterSize * kRows * kStateBytes;
  // [kWarps, kRows, kPitch], row maxima and row sums [kWarps, kRows].
  static constexpr int kStagedBytes = kWarps * kRows * (kPitch + 2) * 4;

  // `barrier`: an mbarrier for which one thread has called expect(). It serves one exchange.
  __device__ ClusterMerge(const AttentionParams& params, char* staged, char* received, uint32_t barrier)
      : params_(params), staged_(reinterpret_cast<float*>(staged)), received_(received), barrier_(barrier) {}

  __device__ static void expect(uint32_t barrier, int num_rows) {
    ptx::mbarrier_init(barrier, 1);
    ptx::mbarrier_arrive_expect_tx(barrier, kClusterSize * num_rows * (kValueBytes + kStateBytes));
  }

  // Called by all threads of all CTAs after their barriers are initialized.
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
      const uint32_t row = static_cast<uint32_t>(decode_rank() * kRows + tile_row);
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
    // Two columns per thread.
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
    const int head = decode_head() * params_.group + row;
    const int64_t at = ptx::mad_wide(head, static_cast<int32_t>(params_.out.head_stride),
                                     decode_rank() * kColumns + pair * 2);
    *reinterpret_cast<uint32_t*>(static_cast<char*>(params_.out.data) + at * 2) =
        pack(out.x * scale, out.y * scale, T());
  }

 private:
  // Sends 16 bytes to another CTA, or to this one.
  __device__ void send(uint32_t to, int rank, const float4& four) const {
    ptx::st_async_16(ptx::mapa(to, rank), four.x, four.y, four.z, four.w, ptx::mapa(barrier_, rank));
  }

  const AttentionParams& params_;
  float* staged_;
  char* received_;
  uint32_t barrier_;
};

// `T`: dtype of q, keys, values and the output.
template <class T, int kHeadDim>
class SingleRequestDecodeCta {
  using Config = TileConfig<kHeadDim, kHeadDim, false, kKeyMajorRows, true>;
  static constexpr int kRows = Config::kRows, kThreads = Config::kThreads, kKeys = Config::kKeys;
  static constexpr int kStages = Config::kStages, kKeysPerWarp = kKeys / Config::kWarpsN;
  using Warp = KeyMajorTile<T, kHeadDim, kHeadDim, kKeysPerWarp>;
  using Merge = ClusterMerge<T, Config, kHeadDim>;
  using Row = SwizzledRows<kHeadDim * 2>;
  static constexpr int kPieces = Row::kPieces;

  // Global addresses of the K and V rows of a position.
  struct alignas(16) RowAddress {
    uint64_t k, v;
  };
  static constexpr int kRowBytes = kHeadDim * 2, kQueryBytes = kRows * kRowBytes;
  static constexpr int kTileBytes = kKeys * kRowBytes, kStageBytes = 2 * kTileBytes;
  static constexpr int kAddressesAt = kQueryBytes + kStages * kStageBytes;
  static constexpr int kReceivedAt = kAddressesAt + kStages * kKeys * static_cast<int>(sizeof(RowAddress));
  static constexpr int kBarrierAt = kReceivedAt + Merge::kReceivedBytes, kBarrierBytes = 8;
  // The last stage is not read any more when results are staged in it.
  static constexpr int kStagedAt = kQueryBytes + (kStages - 1) * kStageBytes;
  static_assert(Merge::kStagedBytes <= kStageBytes);
  static_assert(kRows * kPieces <= kThreads && 2 * kPieces <= kThreads && kKeys <= kThreads);

 public:
  static constexpr int kSharedBytes = kBarrierAt + kBarrierBytes;

  __device__ SingleRequestDecodeCta(const AttentionParams& params, char* shared)
      : params_(params), shared_(shared), at_(ptx::shared_address(shared)) {}

  __device__ void run() {
    if (threadIdx.x == 0) {
      Merge::expect(barrier(), params_.group);
      ptx::fence_mbarrier_init();
    }
    __syncwarp();
    ptx::cluster_arrive_relaxed();
    if (!params_.prefix_ready) ptx::griddepcontrol_wait();
    const RequestSpan span = request_span(params_.batch, 0);
    // Without a query, the token is padding, with the output of a token without keys.
    const int seqlen_kv = span.seqlen_q > 0 ? span.seqlen_kv : 0;
    const int share = (seqlen_kv + kClusterSize * kKeys - 1) / (kClusterSize * kKeys) * kKeys;
    first_ = decode_rank() * share;
    end_ = min(seqlen_kv, first_ + share);
    known_ = params_.prefix_ready ? seqlen_kv - 1 : seqlen_kv;
    const int num_tiles = max(0, end_ - first_ + kKeys - 1) / kKeys;

#pragma unroll 1
    for (int i = 0; i < min(num_tiles, kStages); ++i) fetch(i);
    if (params_.prefix_ready) ptx::griddepcontrol_wait();
    if (num_tiles > 0) copy_queries();
    if (first_ <= known_ && known_ < end_ && num_tiles <= kStages) copy_new_key();
    ptx::cp_async_commit_group();
    known_ = seqlen_kv;
    // Copies of the next kernel are issued after these.
    ptx::launch_dependents();

    Warp warp;
    warp.clear();
    const uint32_t q = at_ + Warp::query_lane();
    const uint32_t in_k = static_cast<uint32_t>(warp_key() * kRowBytes) + Warp::key_lane();
    const uint32_t in_v = static_cast<uint32_t>(kTileBytes + warp_key() * kRowBytes) + Warp::value_lane();
    const float softmax_scale_log2 = get_softmax_scale_log2(params_);
#pragma unroll 1
    for (int i = 0; i < num_tiles; ++i) {
      wait(i);
      __syncthreads();
      if (i == 0) warp.load_queries_to_registers(q);
      const uint32_t tile = stage_address(i % kStages);
      warp.multiply_qk(q, tile + in_k);
      warp.end_at(end_ - first_ - i * kKeys - warp_key());
      warp.softmax(softmax_scale_log2);
      warp.multiply_pv(tile + in_v);
      if (__builtin_expect(i + kStages < num_tiles, false)) {
        __syncthreads();
        fetch(i + kStages);
      } else {
        ptx::cp_async_commit_group();
      }
    }
    warp.finish_sums();
    ptx::cluster_wait();
    Merge(params_, shared_ + kStagedAt, shared_ + kReceivedAt, barrier()).run(warp, softmax_scale_log2);
  }

 private:
  __device__ static int warp_key() { return static_cast<int>(threadIdx.x) / 32 * kKeysPerWarp; }
  __device__ uint32_t barrier() const { return at_ + static_cast<uint32_t>(kBarrierAt); }
  __device__ uint32_t stage_address(int stage) const {
    return at_ + static_cast<uint32_t>(kQueryBytes + stage * kStageBytes);
  }
  __device__ RowAddress* addresses(int stage) const {
    return reinterpret_cast<RowAddress*>(shared_ + kAddressesAt) + stage * kKeys;
  }

  // Waits for this thread's copies of tile i. For the first tile, waits for the queries and the first kStages
  // tiles; otherwise for all copies except those of the following two tiles.
  __device__ static void wait(int i) {
    if (i == 0)
      ptx::cp_async_wait_group<0>();
    else
      ptx::cp_async_wait_group<kStages - 1>();
  }

  // Starts the copies of tile i. Rows past the end are zero. A row that is not available yet is copied only
  // by copy_new_key(): copies of two threads are not ordered.
  __device__ void fetch(int i) {
    const int thread = static_cast<int>(threadIdx.x), first = first_ + i * kKeys, stage = i % kStages;
    if (thread < kKeys) addresses(stage)[thread] = row_address(first + thread);
    __syncthreads();
    constexpr int kLanes = 8, kRowsPerRound = kThreads / kLanes;
#pragma unroll 1
    for (int row = thread / kLanes; row < kKeys; row += kRowsPerRound) {
      const RowAddress from = addresses(stage)[row];
      const int position = first + row;
      if (known_ <= position && position < end_) continue;
#pragma unroll
      for (int p = 0; p < kPieces; p += kLanes) {
        const int piece = thread % kLanes + p;
        const uint32_t to = stage_address(stage) + Row::offset(row, piece);
        copy_piece(to, from.k, piece, position < end_);
        copy_piece(to + kTileBytes, from.v, piece, position < end_);
      }
    }
    ptx::cp_async_commit_group();
  }

  // Returns a valid address past the end too; nothing is read from it.
  __device__ RowAddress row_address(int position) const {
    const auto address = [&](const PagedRows& rows, int64_t element) {
      return reinterpret_cast<uint64_t>(rows.data) + static_cast<uint64_t>(element * 2);
    };
    if (position >= end_) return {address(params_.k, 0), address(params_.v, 0)};
    const int page = find_page(params_.index, 0, position);
    const auto row = [&](const PagedRows& rows) {
      // Tiled kernels support only 32-bit strides.
      int64_t element = ptx::mad_wide(page, static_cast<int32_t>(rows.page_stride), 0);
      element = ptx::mad_wide(position & (params_.index.page_size - 1),
                              static_cast<int32_t>(rows.token_stride), element);
      return address(rows, ptx::mad_wide(decode_head(), static_cast<int32_t>(rows.head_stride), element));
    };
    return {row(params_.k), row(params_.v)};
  }

  __device__ static void copy_piece(uint32_t to, uint64_t row, int piece, bool valid) {
    ptx::cp_async_16(to, reinterpret_cast<const char*>(row) + piece * 16, valid);
  }

  // Copies one piece per thread; rows without a query head are zero.
  __device__ void copy_queries() const {
    const int thread = static_cast<int>(threadIdx.x), row = thread / kPieces, piece = thread % kPieces;
    if (row >= kRows) return;
    const bool valid = row < params_.group;
    const int head = decode_head() * params_.group + (valid ? row : 0);
    const int64_t element = ptx::mad_wide(head, static_cast<int32_t>(params_.q.head_stride), 0);
    copy_piece(at_ + Row::offset(row, piece),
               reinterpret_cast<uint64_t>(params_.q.data) + static_cast<uint64_t>(element * 2), piece, valid);
  }

  // Copies the row that fetch() skipped because it was not available.
  __device__ void copy_new_key() const {
    const int thread = static_cast<int>(threadIdx.x), piece = thread % kPieces;
    if (thread >= 2 * kPieces) return;
    const int stage = (known_ - first_) / kKeys, row = (known_ - first_) % kKeys;
    const bool copies_values = thread >= kPieces;
    const RowAddress& from = addresses(stage)[row];
    copy_piece(stage_address(stage) + static_cast<uint32_t>(copies_values ? kTileBytes : 0) +
                   Row::offset(row, piece),
               copies_values ? from.v : from.k, piece, true);
  }

  const AttentionParams& params_;
  char* shared_;
  uint32_t at_;      // shared-memory address of shared_
  int first_, end_;  // positions of this CTA
  int known_;        // positions before it may be read early
};

template <class T, int kHeadDim>
__global__ void __launch_bounds__(TileConfig<kHeadDim, kHeadDim, false, kKeyMajorRows, true>::kThreads, 2)
    single_request_decode_kernel(const __grid_constant__ AttentionParams params) {
#if __CUDA_ARCH__ >= 900  // plans have clusters
  extern __shared__ __align__(128) char shared[];
  SingleRequestDecodeCta<T, kHeadDim>(params, shared).run();
#endif
}

template <class T, int kHeadDim>
void launch_single_request_decode(const AttentionParams& params, void* stream) {
  constexpr auto kKernel = single_request_decode_kernel<T, kHeadDim>;
  constexpr int kSharedBytes = SingleRequestDecodeCta<T, kHeadDim>::kSharedBytes;
  constexpr int kThreads = TileConfig<kHeadDim, kHeadDim, false, kKeyMajorRows, true>::kThreads;
  allow_shared_memory<kKernel>(kSharedBytes, "attention: shared memory");
  launch_dependent<AttentionParams>(kKernel, dim3(static_cast<unsigned>(params.num_kv_heads * kClusterSize)),
                                    kThreads, kSharedBytes, stream, params, "attention", kClusterSize,
                                    shared_carveout(params.plan, kSharedBytes));
}

}  // namespace attend::kernels::cuda::sm90
