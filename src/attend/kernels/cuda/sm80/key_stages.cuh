// Tiles of K and V on their way into shared memory: a ring of places, filled by cp.async while others are
// read.
#pragma once

#include "attend/kernels/cuda/attention_params.h"
#include "attend/kernels/cuda/ptx/copy.cuh"
#include "attend/kernels/cuda/sm80/attention_tile.cuh"

namespace attend::kernels::cuda::sm80 {

// The keys of one request and KV head that a CTA goes through. Positions outside [kv_begin, kv_end) become
// zero rows, whatever the pool holds.
struct KeySpan {
  int request, head;
  int kv_begin, kv_end;
  int first_position;  // of the first tile
  int num_tiles;
};

// `kBytes`: of a stored element. 16-bit rows are swizzled as ldmatrix wants them; 8-bit rows lie one after
// another, to be converted.
//
// Every step consumes the tile of one place of the ring, copies a later one, and looks up the rows of the one
// after that. The places go on from one span of keys to the next: once all tiles of a span are looked up,
// aim() may name the next span. While there is none, places stay empty.
template <int kHeadDimQk, int kHeadDimV, int kBytes, int kKeys, int kThreads, int kStages>
class KeyStages {
  // Where the K and V rows of a position begin in global memory; 0: no row.
  struct alignas(16) RowAddress {
    uint64_t k, v;
  };

 public:
  static constexpr int kTileBytesK = kKeys * kHeadDimQk * kBytes;
  static constexpr int kTileBytesV = kKeys * kHeadDimV * kBytes;
  static constexpr int kStageBytes = kTileBytesK + kTileBytesV;
  static constexpr int kSharedBytes = kStages * (kStageBytes + kKeys * static_cast<int>(sizeof(RowAddress)));

  __device__ KeyStages(const AttentionParams& params, char* shared)
      : params_(params),
        shared_(shared),
        tiles_(ptx::shared_address(shared)),
        addresses_(reinterpret_cast<RowAddress*>(shared + kStages * kStageBytes)) {}

  // Names the next tiles to look up. After exhausted().
  __device__ void aim(const KeySpan& span) { span_ = span; }
  // Whether all tiles of the span are looked up.
  __device__ bool exhausted() const { return span_.num_tiles == 0; }

  // Fills all places but one, after the first aim(). Commits kStages - 1 groups of copies, the first of them
  // with whatever the caller copied before.
  __device__ void start() {
#pragma unroll
    for (int i = 0; i < kStages - 1; ++i) {
      look_up();
      publish(i);
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kStages - 1; ++i) copy(i, kStages - 2 - i);
    look_up();
  }

  // Waits for the tile of this step's place, and for all other copies too if `all`. All threads are past the
  // step before then. Whether there is a tile.
  __device__ bool wait(bool all) {
    if (all)
      ptx::wait_copies<0>();
    else
      ptx::wait_copies<kStages - 2>();
    publish(place_before());
    __syncthreads();
    return (present_ >> (kStages - 1) & 1) != 0;
  }

  // Starts the next copy, commits a group. After wait().
  __device__ void refill() { copy(place_before(), 0); }

  // Ends the step: starts the look-up of a later tile. After refill().
  __device__ void step() {
    look_up();
    place_ = place_ + 1 == kStages ? 0 : place_ + 1;
  }

  // This step's tile, from wait() to step().
  __device__ uint32_t k() const { return tiles_ + static_cast<uint32_t>(place_ * kStageBytes); }
  __device__ uint32_t v() const { return k() + kTileBytesK; }
  // Between step() and wait(): the place that was read last, free until refill().
  __device__ char* free_place() const { return shared_ + place_before() * kStageBytes; }

 private:
  __device__ int place_before() const { return place_ == 0 ? kStages - 1 : place_ - 1; }

  // Page of this thread's position in the span's next tile, to publish later: the load returns while the tile
  // before is computed. Groups of kKeys threads take turns, so that no warp has more to do than another.
  __device__ void look_up() {
    const bool present = span_.num_tiles > 0;
    const int first = span_.first_position;
    present_ = present_ << 1 | static_cast<uint32_t>(present);
    whole_ = whole_ << 1 | static_cast<uint32_t>(first >= span_.kv_begin && first + kKeys <= span_.kv_end);
    position_ = -1;
    if (!present) return;
    --span_.num_tiles;
    span_.first_position += kKeys;
    turn_ = (turn_ + 1) % (kThreads / kKeys);
    if (static_cast<int>(threadIdx.x) / kKeys != turn_) return;
    position_ = first + static_cast<int>(threadIdx.x) % kKeys;
    page_ = position_ >= span_.kv_begin && position_ < span_.kv_end
                ? page_of(params_.index, span_.request, position_)
                : -1;
  }

  // Tells all threads where the rows that this one looked up begin.
  __device__ void publish(int place) {
    if (position_ < 0) return;
    const int64_t in_page = position_ & (params_.index.page_size - 1);
    const auto address = [&](const PagedRows& rows) -> uint64_t {
      const int64_t offset =
          page_ * rows.page_stride + in_page * rows.token_stride + span_.head * rows.head_stride;
      return page_ < 0 ? 0 : reinterpret_cast<uint64_t>(rows.data) + static_cast<uint64_t>(offset * kBytes);
    };
    addresses_[place * kKeys + static_cast<int>(threadIdx.x) % kKeys] = {address(params_.k),
                                                                         address(params_.v)};
  }

  // Copies the tile that was looked up `age` look-ups before the last one. Commits a group, empty without a
  // tile.
  __device__ void copy(int place, int age) {
    if ((present_ >> age & 1) != 0) {
      const RowAddress* rows = addresses_ + place * kKeys;
      const bool whole = (whole_ >> age & 1) != 0;
      const uint32_t to = tiles_ + static_cast<uint32_t>(place * kStageBytes);
      copy_rows<kHeadDimQk>([&](int row) { return rows[row].k; }, params_.head_dim_qk, whole, params_.k.data,
                            to);
      copy_rows<kHeadDimV>([&](int row) { return rows[row].v; }, params_.head_dim_v, whole, params_.v.data,
                           to + kTileBytesK);
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
    constexpr int kRowsPerRound = kThreads / kLanes, kRounds = kKeys / kRowsPerRound;
    static_assert(kPieces % kLanes == 0 && kKeys % kRowsPerRound == 0);
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
  char* shared_;
  uint32_t tiles_;
  RowAddress* addresses_;
  KeySpan span_;                      // its tiles that are not looked up yet
  int place_ = 0;                     // of this step's tile
  uint32_t present_ = 0, whole_ = 0;  // of the last look-ups, the last in bit 0
  int turn_ = 0;
  int position_ = -1, page_ = -1;  // what this thread looked up last; -1: nothing
};

}  // namespace attend::kernels::cuda::sm80
