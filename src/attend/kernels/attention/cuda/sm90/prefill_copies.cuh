// Keys and values of prefill on their way into shared memory: a warp each, as far ahead as the ring allows.
#pragma once

#include "attend/kernels/attention/cuda/sm90/prefill_shared.cuh"
#include "attend/kernels/common/cuda/ptx/integer.cuh"
#include "attend/kernels/common/cuda/ptx/tensor_copy.cuh"

namespace attend::kernels::cuda::sm90 {

// The rows of values that the last tile of a job is multiplied with: whole steps of the tensor cores.
__device__ inline int rows_multiplied(int num_rows) { return (num_rows + 15) / 16 * 16; }

// What is multiplied with weights of 0 must not be infinite or NaN, so rows of values outside of the job's
// keys become zero. Keys there may be anything, since their scores are hidden.
template <class Tile, bool kValues>
class PrefillCopies {
  using Shared = PrefillShared<Tile>;
  static constexpr int kChunks = kValues ? Tile::kVChunks : Tile::kQkChunks;
  static constexpr int kKeys = Tile::kKeys;
  // Eight lanes copy 128 bytes of a row.
  static constexpr int kRowsAtOnce = 4, kRowsOfLane = kKeys / 32;

 public:
  __device__ PrefillCopies(const PrefillParams& params, const Shared& shared, int /*warp: the only one*/)
      : params_(params),
        rows_(kValues ? params.attention.v : params.attention.k),
        head_dim_(kValues ? params.attention.head_dim_v : params.attention.head_dim_qk),
        shared_(shared) {}

  // By one warp: all jobs.
  __device__ void run() {
    for (RingPlace place;; place.advance(Tile::kJobSlots)) {
      ptx::mbarrier_wait(shared_.job_told(place.slot), place.parity);
      const PrefillJob& job = shared_.job(place.slot);
      if (job.num_tiles < 0) return;
      if (params_.box_rows > 0)
        copy_boxes(job);
      else
        copy_rows(job);
      __syncwarp();
      if (lane_ == 0) ptx::mbarrier_arrive(shared_.job_done(place.slot));
    }
  }

 private:
  __device__ uint32_t full() const {
    return kValues ? shared_.values_full(place_.slot) : shared_.keys_full(place_.slot);
  }
  __device__ uint32_t tile() const {
    return kValues ? shared_.values(place_.slot) : shared_.keys(place_.slot);
  }
  __device__ void wait_for_room() const {
    ptx::mbarrier_wait(kValues ? shared_.values_empty(place_.slot) : shared_.keys_empty(place_.slot),
                        place_.parity ^ 1);
  }

  // By the copy engine: each of a few lanes has a box's rows. Pages are looked up a tile ahead.
  __device__ void copy_boxes(const PrefillJob& job) {
    const int box_rows = params_.box_rows, first_row = lane_ * box_rows;
    const int page_mask = params_.attention.index.page_size - 1;
    const bool contiguous = params_.attention.index.kind == KvIndexKind::kContiguous;
    const int begin = job.tile.kv_begin, end = job.tile.kv_end, num_tiles = job.num_tiles, head = job.head;
    const auto look_up = [&](int first_key) {
      const int position = first_key + first_row;
      if (first_row >= kKeys || position >= end || position + box_rows <= begin) return -1;
      // A box may begin before the first key, where the index may say anything.
      return page_of(params_.attention.index, job.tile.request, contiguous ? position : max(position, begin));
    };
    int first_key = job.first_key, next_page = look_up(first_key);
    for (int i = 0; i < num_tiles; ++i, first_key += kKeys) {
      const int page = next_page, position = first_key + first_row;
      if (i + 1 < num_tiles) next_page = look_up(first_key + kKeys);
      const bool in_part = kValues && (position < begin || position + box_rows > end) &&
                           first_row < min(kKeys, rows_multiplied(end - first_key));
      const uint32_t parts = __ballot_sync(0xffffffffu, in_part);
      const uint32_t boxes = __ballot_sync(0xffffffffu, page >= 0 && !in_part);
      wait_for_room();
      if (parts != 0) copy_parts(job, first_key, page, parts);
      if (lane_ == 0) ptx::mbarrier_arrive_expect_tx(full(), kChunks * __popc(boxes) * box_rows * kChunkRowBytes);
      __syncwarp();
      if (boxes >> lane_ & 1) {
#pragma unroll
        for (int chunk = 0; chunk < kChunks; ++chunk)
          ptx::cp_async_bulk_tensor(tile() + chunk * Tile::kKeyChunkBytes + first_row * kChunkRowBytes,
                        kValues ? &params_.v : &params_.k, chunk * kChunkColumns, head, position & page_mask,
                        page, full(), policy_);
      }
      place_.advance(Tile::kStages);
    }
  }

  // Boxes of which only some rows are the job's, or none: bit l of `parts` is that of lane l, which knows its
  // page.
  __device__ void copy_parts(const PrefillJob& job, int first_key, int lane_page, uint32_t parts) const {
    const int box_rows = params_.box_rows;
    const bool contiguous = params_.attention.index.kind == KvIndexKind::kContiguous;
    for (; parts != 0; parts &= parts - 1) {
      const int box = __ffs(static_cast<int>(parts)) - 1;
      const int page = __shfl_sync(0xffffffffu, lane_page, box);
      for (int in_box = lane_ / 8; in_box < box_rows; in_box += kRowsAtOnce) {
        const int row = box * box_rows + in_box, position = first_key + row;
        const bool wanted = position >= job.tile.kv_begin && position < job.tile.kv_end;
        copy_row(row, wanted ? address_of(contiguous ? page + in_box : page, position, job.head) : 0);
      }
    }
    ptx::cp_async_mbarrier_arrive(full());
    __syncwarp();
  }

  // By the threads: every lane knows a few rows' pages.
  __device__ void copy_rows(const PrefillJob& job) {
    const int num_tiles = job.num_tiles, head = job.head;
    int first_key = job.first_key, next_pages[kRowsOfLane];
    const auto look_up = [&](int first) {
#pragma unroll
      for (int r = 0; r < kRowsOfLane; ++r) {
        const int position = first + r * 32 + lane_;
        const bool wanted = position >= job.tile.kv_begin && position < job.tile.kv_end;
        next_pages[r] = wanted ? page_of(params_.attention.index, job.tile.request, position) : -1;
      }
    };
    look_up(first_key);
    for (int i = 0; i < num_tiles; ++i, first_key += kKeys) {
      uint64_t addresses[kRowsOfLane];
#pragma unroll
      for (int r = 0; r < kRowsOfLane; ++r)
        addresses[r] = next_pages[r] < 0 ? 0 : address_of(next_pages[r], first_key + r * 32 + lane_, head);
      if (i + 1 < num_tiles) look_up(first_key + kKeys);
      wait_for_room();
#pragma unroll
      for (int r = 0; r < kRowsOfLane; ++r)
#pragma unroll 2
        for (int first = 0; first < 32; first += kRowsAtOnce) {
          const int row_lane = first + lane_ / 8;
          copy_row(r * 32 + row_lane, __shfl_sync(0xffffffffu, addresses[r], row_lane));
        }
      arrive_after_copies(full());
      place_.advance(Tile::kStages);
    }
  }

  // Where a position's row begins in global memory.
  __device__ uint64_t address_of(int page, int position, int head) const {
    const int in_page = position & (params_.attention.index.page_size - 1);
    // Tiled kernels only take strides of 32 bits.
    int64_t offset = ptx::mad_wide(page, static_cast<int32_t>(rows_.page_stride), 0);
    offset = ptx::mad_wide(in_page, static_cast<int32_t>(rows_.token_stride), offset);
    offset = ptx::mad_wide(head, static_cast<int32_t>(rows_.head_stride), offset);
    return reinterpret_cast<uint64_t>(rows_.data) + static_cast<uint64_t>(2 * offset);
  }

  // This lane's 16 bytes of every chunk of a row of the tile; zeros where the address is 0.
  __device__ void copy_row(int row, uint64_t address) const {
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      const int column = chunk * kChunkColumns + lane_ % 8 * 8;
      const bool valid = address != 0 && column < head_dim_;
      ptx::cp_async_16(tile() + chunk * Tile::kKeyChunkBytes + swizzled(row, lane_ % 8),
                         valid ? reinterpret_cast<const char*>(address) + 2 * column : rows_.data, valid);
    }
  }

  const PrefillParams& params_;
  const PagedRows& rows_;
  const int head_dim_;
  const Shared& shared_;
  const int lane_ = static_cast<int>(threadIdx.x) % 32;
  const uint64_t policy_ = ptx::createpolicy_evict_last();
  RingPlace place_;
};

}  // namespace attend::kernels::cuda::sm90
