// Keys and values of 8 bits on their way into shared memory, as the 16-bit type of q, which holds every value
// of theirs: a few warps each, as far ahead as the ring allows.
#pragma once

#include "attend/kernels/attention/cuda/common/fp8_convert.cuh"
#include "attend/kernels/attention/cuda/common/warp_rows.cuh"
#include "attend/kernels/attention/cuda/sm90/prefill_shared.cuh"
#include "attend/kernels/common/cuda/ptx/integer.cuh"

namespace attend::kernels::cuda::sm90 {

// Four elements of 8 bits.
template <Element kKv>
__device__ inline uint2 widened(uint32_t four, __half) {
  return {sm80::low_pair<kKv>(four), sm80::high_pair<kKv>(four)};
}
template <Element kKv>
__device__ inline uint2 widened(uint32_t four, __nv_bfloat16) {
  const uint2 halves = widened<kKv>(four, __half());
  const auto to_bf16 = [](uint32_t pair) {
    const float2 both = __half22float2(*reinterpret_cast<const __half2*>(&pair));
    return sm80::pack(both.x, both.y, __nv_bfloat16());
  };
  return {to_bf16(halves.x), to_bf16(halves.y)};
}

// A lane brings 16 bytes of a row at a time to a place of its own, a tile ahead, and converts them there, so
// it waits for its own copies alone.
template <class T, Element kKv, class Tile, bool kValues>
class PrefillConversions {
  using Shared = PrefillShared<Tile>;
  static constexpr int kHeadDim = (kValues ? Tile::kVChunks : Tile::kQkChunks) * kChunkColumns;
  static constexpr int kPieceBytes = 16, kLanesOfRow = kHeadDim / kPieceBytes;
  // Rows of a tile that a warp, and all warps, have at once; a lane's lie alike in their eights.
  static constexpr int kRowsOfWarp = 32 / kLanesOfRow, kRowsAtOnce = Tile::kRingWarps * kRowsOfWarp;
  static constexpr int kRounds = Tile::kKeys / kRowsAtOnce;
  static_assert(kRowsAtOnce % 8 == 0);
  // Rows that a lane looks up for its warp.
  static constexpr int kLookUps = kRounds * kRowsOfWarp / 32;

 public:
  // `warp`: of those of this ring.
  __device__ PrefillConversions(const PrefillParams& params, const Shared& shared, int warp)
      : params_(params.attention),
        rows_(kValues ? params.attention.v : params.attention.k),
        shared_(shared),
        warp_(warp),
        in_row_(lane_ % kLanesOfRow),
        has_columns_(in_row_ * kPieceBytes <
                     (kValues ? params.attention.head_dim_v : params.attention.head_dim_qk)) {}

  // All jobs.
  __device__ void run() {
    for (RingPlace place;; place.advance(Tile::kJobSlots)) {
      ptx::mbarrier_wait(shared_.job_told(place.slot), place.parity);
      const PrefillJob& job = shared_.job(place.slot);
      if (job.num_tiles < 0) return;
      bring(job);
      __syncwarp();
      if (lane_ == 0) ptx::mbarrier_arrive(shared_.job_done(place.slot));
    }
  }

 private:
  __device__ void bring(const PrefillJob& job) {
    const int num_tiles = job.num_tiles;
    int first_key = job.first_key;
    look_up(job, first_key);
#pragma unroll 1
    for (int i = 0; i <= num_tiles; ++i, first_key += Tile::kKeys) {
      if (i < num_tiles) copy(i % 2);
      ptx::cp_async_commit_group();
      if (i + 1 < num_tiles) look_up(job, first_key + Tile::kKeys);
      if (i > 0) put((i - 1) % 2);
    }
  }

  // Row `row_of_warp` of those that the warp has at once in a round.
  __device__ int row_of(int round, int row_of_warp) const {
    return round * kRowsAtOnce + warp_ * kRowsOfWarp + row_of_warp;
  }

  // Rows that are not the job's become zero: what is multiplied with weights of 0 must not be NaN.
  __device__ void look_up(const PrefillJob& job, int first_key) {
#pragma unroll
    for (int i = 0; i < kLookUps; ++i) {
      const int row = i * 32 + lane_, position = first_key + row_of(row / kRowsOfWarp, row % kRowsOfWarp);
      const bool wanted = position >= job.tile.kv_begin && position < job.tile.kv_end;
      addresses_[i] = wanted ? address_of(job, position) : 0;
    }
  }

  // Where a position's row begins in global memory.
  __device__ uint64_t address_of(const PrefillJob& job, int position) const {
    const int page = page_of(params_.index, job.tile.request, position);
    const int in_page = position & (params_.index.page_size - 1);
    // Tiled kernels only take strides of 32 bits.
    int64_t offset = ptx::mad_wide(page, static_cast<int32_t>(rows_.page_stride), 0);
    offset = ptx::mad_wide(in_page, static_cast<int32_t>(rows_.token_stride), offset);
    offset = ptx::mad_wide(job.head, static_cast<int32_t>(rows_.head_stride), offset);
    return reinterpret_cast<uint64_t>(rows_.data) + static_cast<uint64_t>(offset);
  }

  __device__ void copy(int stage) const {
    constexpr int kRoundsOfLookUp = 32 / kRowsOfWarp;
#pragma unroll
    for (int look_up = 0; look_up < kLookUps; ++look_up)
#pragma unroll 2
      for (int i = 0; i < kRoundsOfLookUp; ++i) {
        const int row = i * kRowsOfWarp + lane_ / kLanesOfRow;
        const uint64_t address = __shfl_sync(0xffffffffu, addresses_[look_up], row);
        const bool valid = has_columns_ && address != 0;
        ptx::cp_async_16(
            copied(look_up * kRoundsOfLookUp + i, stage),
            valid ? reinterpret_cast<const char*>(address) + in_row_ * kPieceBytes : rows_.data, valid);
      }
  }

  // Converts the tile before the one that was asked for last.
  __device__ void put(int stage) {
    ptx::cp_async_wait_group<1>();
    ptx::mbarrier_wait(kValues ? shared_.values_empty(place_.slot) : shared_.keys_empty(place_.slot),
                        place_.parity ^ 1);
    convert(stage);
    ptx::fence_proxy_async();
    __syncwarp();
    if (lane_ == 0) ptx::mbarrier_arrive(kValues ? shared_.values_full(place_.slot) : shared_.keys_full(place_.slot));
    place_.advance(Tile::kStages);
  }

  __device__ void convert(int stage) const {
    constexpr int kPiecesOfChunk = kChunkColumns / kPieceBytes;
    const int chunk = in_row_ / kPiecesOfChunk, piece = in_row_ % kPiecesOfChunk * 2;
    // Lanes of two chunks of a row write at once: each to the other's banks.
    const bool swaps = chunk % 2 != 0;
    const uint32_t tile = kValues ? shared_.values(place_.slot) : shared_.keys(place_.slot);
    const uint32_t to = tile + chunk * Tile::kKeyChunkBytes;
    const int row = row_of(0, lane_ / kLanesOfRow);
    const uint32_t first = to + swizzled(row, piece + swaps);
    const uint32_t second = to + swizzled(row, piece + !swaps);
#pragma unroll 2
    for (int i = 0; i < kRounds; ++i) {
      const uint4 bytes = ptx::ld_shared_16(copied(i, stage));
      const uint2 a = widened<kKv>(bytes.x, T()), b = widened<kKv>(bytes.y, T());
      const uint2 c = widened<kKv>(bytes.z, T()), d = widened<kKv>(bytes.w, T());
      const uint4 low{a.x, a.y, b.x, b.y}, high{c.x, c.y, d.x, d.y};
      ptx::st_shared_16(first + i * kRowsAtOnce * kChunkRowBytes, swaps ? high : low);
      ptx::st_shared_16(second + i * kRowsAtOnce * kChunkRowBytes, swaps ? low : high);
    }
  }

  // Where this lane's bytes of a row wait.
  __device__ uint32_t copied(int round, int stage) const {
    return (kValues ? shared_.copied_values(stage) : shared_.copied_keys(stage)) +
           ((round * Tile::kRingWarps + warp_) * 32 + lane_) * kPieceBytes;
  }

  const AttentionParams& params_;
  const PagedRows& rows_;
  const Shared& shared_;
  const int lane_ = static_cast<int>(threadIdx.x) % 32;
  const int warp_;
  const int in_row_;        // which 16 bytes
  const bool has_columns_;  // of those 16 bytes
  uint64_t addresses_[kLookUps];
  RingPlace place_;
};

}  // namespace attend::kernels::cuda::sm90
