// Tiles of K and V on their way into shared memory: a ring of stages, filled by cp.async while others are
// read.
#pragma once

#include "attend/kernels/cuda/attention_params.h"
#include "attend/kernels/cuda/ptx/copy.cuh"
#include "attend/kernels/cuda/sm80/attention_tile.cuh"

namespace attend::kernels::cuda::sm80 {

// `kBytes`: of a stored element. 16-bit rows are swizzled as ldmatrix wants them; 8-bit rows lie one after
// another, to be converted. Positions outside [kv_begin, kv_end) become zero rows, whatever the pool holds.
template <int kHeadDimQk, int kHeadDimV, int kBytes, int kThreads, int kStages>
class KeyStages {
  // Where the K and V rows of a position begin in global memory; 0: no row.
  struct alignas(16) RowAddress {
    uint64_t k, v;
  };

 public:
  static constexpr int kTileBytesK = kKeyTile * kHeadDimQk * kBytes;
  static constexpr int kTileBytesV = kKeyTile * kHeadDimV * kBytes;
  static constexpr int kStageBytes = kTileBytesK + kTileBytesV;
  static constexpr int kSharedBytes =
      kStages * (kStageBytes + kKeyTile * static_cast<int>(sizeof(RowAddress)));

  __device__ KeyStages(const AttentionParams& params, char* shared)
      : params_(params),
        tiles_(ptx::shared_address(shared)),
        addresses_(reinterpret_cast<RowAddress*>(shared + kStages * kStageBytes)) {}

  // The key tiles [first, first + count) of `tile` for one KV head; fills all stages but one. Groups of
  // copies committed: kStages - 1, the first of them with whatever the caller copied before.
  __device__ void begin(const RowTile& tile, int head, int first, int count) {
    request_ = tile.request;
    kv_begin_ = tile.kv_begin;
    kv_end_ = tile.kv_end;
    first_position_ = (tile.first_key_tile + first) * kKeyTile;
    head_ = head;
    count_ = count;
#pragma unroll
    for (int i = 0; i < kStages - 1; ++i) {
      look_up(i);
      publish(i);
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kStages - 1; ++i) copy(i);
    look_up(kStages - 1);
  }

  // Waits for tile i. All threads are past tile i - 1 then.
  __device__ void wait(int i) {
    ptx::wait_copies<kStages - 2>();
    publish(i + kStages - 1);
    __syncthreads();
  }

  // Starts the copy of tile i + kStages - 1 and the page look-up of the one after it. After wait(i).
  __device__ void refill(int i) {
    copy(i + kStages - 1);
    look_up(i + kStages);
  }

  __device__ uint32_t k(int i) const { return tiles_ + static_cast<uint32_t>(i % kStages * kStageBytes); }
  __device__ uint32_t v(int i) const { return k(i) + kTileBytesK; }

 private:
  // Whether this thread looks up a row of key tile i: groups of kKeyTile threads take turns, so that no warp
  // has more to do than another.
  __device__ bool looks_up(int i) const {
    return i < count_ && static_cast<int>(threadIdx.x) / kKeyTile == i % (kThreads / kKeyTile);
  }
  // This thread's position in key tile i.
  __device__ int position(int i) const {
    return first_position_ + i * kKeyTile + static_cast<int>(threadIdx.x) % kKeyTile;
  }

  // Page of this thread's position, to publish later: the load returns while the tile before is computed.
  __device__ void look_up(int i) {
    if (!looks_up(i)) return;
    const int p = position(i);
    page_ = p >= kv_begin_ && p < kv_end_ ? page_of(params_.index, request_, p) : -1;
  }

  // Tells all threads where the rows of key tile i begin.
  __device__ void publish(int i) {
    if (!looks_up(i)) return;
    const int64_t in_page = position(i) & (params_.index.page_size - 1);
    const auto address = [&](const PagedRows& rows) -> uint64_t {
      const int64_t offset =
          page_ * rows.page_stride + in_page * rows.token_stride + head_ * rows.head_stride;
      return page_ < 0 ? 0 : reinterpret_cast<uint64_t>(rows.data) + static_cast<uint64_t>(offset * kBytes);
    };
    addresses_[i % kStages * kKeyTile + static_cast<int>(threadIdx.x) % kKeyTile] = {address(params_.k),
                                                                                     address(params_.v)};
  }

  // Commits a group, empty when there is no tile i.
  __device__ void copy(int i) {
    if (i < count_) {
      const RowAddress* rows = addresses_ + i % kStages * kKeyTile;
      const int first = first_position_ + i * kKeyTile;
      const bool whole = first >= kv_begin_ && first + kKeyTile <= kv_end_;
      copy_rows<kHeadDimQk>([&](int row) { return rows[row].k; }, params_.head_dim_qk, whole, params_.k.data,
                            k(i));
      copy_rows<kHeadDimV>([&](int row) { return rows[row].v; }, params_.head_dim_v, whole, params_.v.data,
                           v(i));
    }
    ptx::commit_copies();
  }

  // A few neighbouring threads share a row, so that a warp reads whole sectors of few rows at a time and a
  // thread asks for few addresses. `whole`: every row is there. `somewhere`: an address where nothing is
  // read.
  template <int kHeadDim, class AddressOf>
  __device__ void copy_rows(const AddressOf& address_of, int head_dim, bool whole, const void* somewhere,
                            uint32_t to) {
    constexpr int kPieces = kHeadDim * kBytes / 16;
    constexpr int kLanes = kPieces % 8 == 0 ? 8 : 4;
    constexpr int kRowsPerRound = kThreads / kLanes, kRounds = kKeyTile / kRowsPerRound;
    static_assert(kPieces % kLanes == 0 && kKeyTile % kRowsPerRound == 0);
    const int first_row = static_cast<int>(threadIdx.x) / kLanes;
    const int first_piece = static_cast<int>(threadIdx.x) % kLanes;
    uint64_t addresses[kRounds];
#pragma unroll
    for (int round = 0; round < kRounds; ++round)
      addresses[round] = address_of(first_row + round * kRowsPerRound);
    if (whole && head_dim == kHeadDim) {
#pragma unroll
      for (int round = 0; round < kRounds; ++round)
#pragma unroll
        for (int piece = 0; piece < kPieces; piece += kLanes)
          ptx::copy_async_16(
              to + shared_offset<kPieces>(first_row + round * kRowsPerRound, first_piece + piece),
              reinterpret_cast<const char*>(addresses[round]) + first_piece * 16 + piece * 16);
      return;
    }
#pragma unroll
    for (int round = 0; round < kRounds; ++round) {
#pragma unroll 1
      for (int piece = 0; piece < kPieces; piece += kLanes) {
        const bool valid = addresses[round] != 0 && (first_piece + piece) * 16 < head_dim * kBytes;
        ptx::copy_async_16(
            to + shared_offset<kPieces>(first_row + round * kRowsPerRound, first_piece + piece),
            valid ? reinterpret_cast<const char*>(addresses[round]) + (first_piece + piece) * 16 : somewhere,
            valid);
      }
    }
  }

  template <int kPieces>
  __device__ static uint32_t shared_offset(int row, int piece) {
    if constexpr (kBytes == 2)
      return SwizzledRows<kPieces * 16>::offset(row, piece);
    else
      return static_cast<uint32_t>((row * kPieces + piece) * 16);
  }

  const AttentionParams& params_;
  uint32_t tiles_;
  RowAddress* addresses_;
  int request_, head_, count_;
  int kv_begin_, kv_end_, first_position_;
  int page_ = -1;
};

}  // namespace attend::kernels::cuda::sm80
