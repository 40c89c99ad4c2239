// K/V pipeline of the mma.sync kernels: stages of KV tiles in shared memory, filled with cp.async row by row
// through the page index while others are read.
#pragma once

#include "attend/kernels/attention/cuda/common/attention_params.h"
#include "attend/kernels/attention/cuda/common/warp_rows.cuh"
#include "attend/kernels/common/cuda/ptx/copy.cuh"
#include "attend/kernels/common/cuda/ptx/thread.cuh"

namespace attend::kernels::cuda::sm80 {

// `kBytes`: bytes per stored element. `kFillsAllStages`: the prologue fills all stages instead of all but
// one, so that a work tile of few KV tiles waits once less. Rows are swizzled for ldmatrix. Rows of positions
// outside [kv_begin, kv_end) become zero, independent of the pool's content. `kReadsOnce`: no other CTA of a
// request reads the same rows of a head, so they need not stay in L2; requests that share pages do read them
// again.
template <int kHeadDimQk, int kHeadDimV, int kBytes, int kKeys, int kThreads, int kStages,
          bool kFillsAllStages, bool kReadsOnce>
class KvPipeline {
  // Global addresses of the K and V rows of a position; 0: no row.
  struct alignas(16) RowAddress {
    uint64_t k, v;
  };

 public:
  static constexpr int kTileBytesK = kKeys * kHeadDimQk * kBytes;
  static constexpr int kTileBytesV = kKeys * kHeadDimV * kBytes;
  static constexpr int kStageBytes = kTileBytesK + kTileBytesV;
  // With one stage, the values of a tile are loaded during QK^T, and the keys of the next tile during PV.
  static constexpr bool kOneStage = kStages == 1;
  // Tiles in flight while one is computed.
  static constexpr int kAhead = kOneStage ? 1 : kStages - 1;
  static constexpr int kAddressStages = kAhead + 1;
  // Tiles with concurrent row lookups: a thread has one lookup in flight.
  static constexpr int kLookUps = kThreads / kKeys < kAddressStages ? kThreads / kKeys : kAddressStages;
  // Tiles loaded in the prologue.
  static constexpr int kFirst = kFillsAllStages ? kStages : kAhead;
  static_assert(kLookUps >= kFirst);
  static constexpr int kSharedBytes =
      kStages * kStageBytes + kAddressStages * kKeys * static_cast<int>(sizeof(RowAddress));

  __device__ KvPipeline(const AttentionParams& params, char* shared)
      : params_(params),
        tiles_(ptx::shared_address(shared)),
        addresses_(reinterpret_cast<RowAddress*>(shared + kStages * kStageBytes)) {}

  // Sets `count` tiles of positions [first_position, end) for one KV head and starts the lookups of the first
  // ones.
  __device__ void set_tiles(const RowTile& tile, int head, int first_position, int end, int count) {
    request_ = tile.request;
    kv_begin_ = tile.kv_begin;
    kv_end_ = end;
    first_position_ = first_position;
    head_ = head;
    count_ = count;
#pragma unroll
    for (int i = 0; i < kLookUps; ++i) look_up(i);
  }

  // Publishes the addresses of the first tiles' rows, after set_tiles().
  __device__ void locate() {
#pragma unroll
    for (int i = 0; i < kLookUps; ++i) publish(i);
    __syncthreads();
    if constexpr (kLookUps == kAhead) look_up(kAhead);
  }

  // Prologue before the previous kernel has finished, after locate(): starts the copies of those of the first
  // tiles that have no key from position `end` on. Returns their number.
  __device__ int fill_before(int end) {
    const int num_whole = max(0, end - first_position_) / kKeys;
    const int num_tiles = min(kFirst, end >= kv_end_ ? count_ : num_whole);
#pragma unroll
    for (int i = 0; i < kFirst; ++i)
      if (i < num_tiles) copy_first(i);
    return num_tiles;
  }

  // Prologue after locate(): starts the copies of the first tiles except the `num_filled` of fill_before().
  // The first cp.async group includes all earlier copies.
  __device__ void fill(int num_filled) {
#pragma unroll
    for (int i = 0; i < kFirst; ++i) {
      if (i >= num_filled) copy_first(i);
      ptx::cp_async_commit_group();
    }
    if constexpr (kLookUps == kAhead) publish(kAhead);
  }

  // Waits for the keys of tile i, and for its values unless kOneStage. All threads have then finished tile i
  // - 1.
  __device__ void wait(int i) {
    if (kFillsAllStages && i == 0)
      ptx::cp_async_wait_group<kFirst - 1>();
    else
      ptx::cp_async_wait_group<kAhead - 1>();
    __syncthreads();
  }

  // Starts the copies into the stage that wait(i) has freed, and the page lookup of a later tile.
  __device__ void refill(int i) {
    start_copies(i);
    look_up_next(i);
  }
  __device__ void look_up_next(int i) { look_up(i + kAhead + 1); }
  __device__ void start_copies(int i) {
    if constexpr (kOneStage) {
      copy_values(i);
      ptx::cp_async_commit_group();
    } else if (i + kAhead >= kFirst) {
      copy_keys(i + kAhead);
      copy_values(i + kAhead);
      ptx::cp_async_commit_group();
    }
  }

  // kOneStage: waits for the values of tile i and starts the copy of the next keys. Called after the last use
  // of the tile's keys.
  __device__ void wait_for_values(int i) {
    if constexpr (!kOneStage) return;
    ptx::cp_async_wait_group<0>();
    __syncthreads();
    copy_keys(i + 1);
    ptx::cp_async_commit_group();
  }

  // Publishes the row addresses that refill(i) has looked up. Called after wait_for_values(i), so that the
  // load overlaps with QK^T and does not delay a barrier.
  __device__ void publish_next(int i) { publish(i + kAhead + 1); }

  __device__ int count() const { return count_; }
  // Returns the end of the positions.
  __device__ int end() const { return kv_end_; }
  __device__ int first_position(int i) const { return first_position_ + i * kKeys; }

  __device__ uint32_t k(int i) const { return tiles_ + static_cast<uint32_t>(i % kStages * kStageBytes); }
  __device__ uint32_t v(int i) const { return k(i) + kTileBytesK; }

 private:
  // Returns true if this thread looks up a row of key tile i. Groups of kKeys threads alternate, so that all
  // warps have the same work.
  __device__ bool is_lookup_thread(int i) const {
    return i < count_ && static_cast<int>(threadIdx.x) / kKeys == i % (kThreads / kKeys);
  }
  // Returns this thread's position in key tile i.
  __device__ int position(int i) const {
    return first_position_ + i * kKeys + static_cast<int>(threadIdx.x) % kKeys;
  }

  // Looks up the page of this thread's position, to be published later: the load returns while the previous
  // tile is computed.
  __device__ void look_up(int i) {
    if (!is_lookup_thread(i)) return;
    const int p = position(i);
    page_ = p >= kv_begin_ && p < kv_end_ ? find_page(params_.index, request_, p) : -1;
  }

  // Publishes the addresses of the rows of key tile i.
  __device__ void publish(int i) {
    if (!is_lookup_thread(i)) return;
    const int in_page = position(i) & (params_.index.page_size - 1);
    const auto address = [&](const PagedRows& rows) -> uint64_t {
      // Tiled kernels support only 32-bit strides.
      int64_t offset = ptx::mad_wide(page_, static_cast<int32_t>(rows.page_stride), 0);
      offset = ptx::mad_wide(in_page, static_cast<int32_t>(rows.token_stride), offset);
      offset = ptx::mad_wide(head_, static_cast<int32_t>(rows.head_stride), offset);
      return page_ < 0 ? 0 : reinterpret_cast<uint64_t>(rows.data) + static_cast<uint64_t>(offset * kBytes);
    };
    addresses_[i % kAddressStages * kKeys + static_cast<int>(threadIdx.x) % kKeys] = {address(params_.k),
                                                                                      address(params_.v)};
  }

  __device__ void copy_first(int i) {
    copy_keys(i);
    if constexpr (!kOneStage) copy_values(i);
  }
  __device__ void copy_keys(int i) {
    copy_half<kHeadDimQk>(i, params_.k, params_.head_dim_qk, &RowAddress::k, k(i));
  }
  __device__ void copy_values(int i) {
    copy_half<kHeadDimV>(i, params_.v, params_.head_dim_v, &RowAddress::v, v(i));
  }
  // Does nothing if there is no tile i.
  template <int kHeadDim>
  __device__ void copy_half(int i, const PagedRows& rows, int head_dim, uint64_t RowAddress::*half,
                            uint32_t to) {
    if (i >= count_) return;
    const RowAddress* addresses = addresses_ + i % kAddressStages * kKeys;
    const int first = first_position(i);
    const bool whole = first >= kv_begin_ && first + kKeys <= kv_end_;
    copy_rows<kHeadDim>([&](int row) { return addresses[row].*half; }, head_dim, whole, rows.data, to);
  }

  // Several neighboring threads share a row, so that a warp reads whole sectors of few rows at a time and a
  // thread needs few addresses. `whole`: all rows exist. `somewhere`: a valid address for copies that read
  // nothing.
  template <int kHeadDim, class AddressOf>
  __device__ void copy_rows(const AddressOf& row_address, int head_dim, bool whole, const void* somewhere,
                            uint32_t to) {
    using Rows = SwizzledRows<kHeadDim * kBytes>;
    constexpr int kPieces = Rows::kPieces;
    constexpr int kLanes = kPieces % 8 == 0 ? 8 : 4;
    constexpr int kRowsPerRound = kThreads / kLanes, kRounds = kKeys / kRowsPerRound;
    static_assert(kPieces % kLanes == 0 && kKeys % kRowsPerRound == 0);
    const int first_row = static_cast<int>(threadIdx.x) / kLanes;
    const int first_piece = static_cast<int>(threadIdx.x) % kLanes;
    uint64_t addresses[kRounds];
#pragma unroll
    for (int round = 0; round < kRounds; ++round)
      addresses[round] = row_address(first_row + round * kRowsPerRound);
    if (whole && head_dim == kHeadDim) {
#pragma unroll
      for (int round = 0; round < kRounds; ++round)
#pragma unroll
        for (int piece = 0; piece < kPieces; piece += kLanes) {
          const uint32_t place = to + Rows::offset(first_row + round * kRowsPerRound, first_piece + piece);
          const char* from = reinterpret_cast<const char*>(addresses[round]) + first_piece * 16 + piece * 16;
          if constexpr (kReadsOnce)
            ptx::cp_async_16_evict_first(place, from);
          else
            ptx::cp_async_16(place, from);
        }
      return;
    }
#pragma unroll
    for (int round = 0; round < kRounds; ++round) {
#pragma unroll 1
      for (int piece = 0; piece < kPieces; piece += kLanes) {
        const bool valid = addresses[round] != 0 && (first_piece + piece) * 16 < head_dim * kBytes;
        ptx::cp_async_16(
            to + Rows::offset(first_row + round * kRowsPerRound, first_piece + piece),
            valid ? reinterpret_cast<const char*>(addresses[round]) + (first_piece + piece) * 16 : somewhere,
            valid);
      }
    }
  }

  const AttentionParams& params_;
  uint32_t tiles_;
  RowAddress* addresses_;
  int request_, head_, count_;
  int kv_begin_, kv_end_, first_position_;
  int page_ = -1;
};

}  // namespace attend::kernels::cuda::sm80
