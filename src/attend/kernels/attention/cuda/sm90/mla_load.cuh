// Latent rows on their way into shared memory: a warp for each half of the chunks of a KV tile, as far ahead
// as the ring allows.
#pragma once

#include "attend/kernels/attention/cuda/sm90/mla_shared.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/common/cuda/ptx/integer.cuh"
#include "attend/kernels/common/cuda/ptx/tensor_copy.cuh"

namespace attend::kernels::cuda::sm90 {

// Whether a KV tile's rows are copied by threads: those of a tile in which some are not the job's, which
// become zero, since what is multiplied with weights of 0 must not be infinite or NaN.
__device__ inline bool copied_by_threads(const MlaParams& params, const MlaJob& job, int first_key) {
  return params.box_rows == 0 || first_key < job.keys.begin || first_key + kMlaKeys > job.keys.end;
}

class MlaLoad {
  // Rows that a lane looks up, and that a warp copies at once: eight lanes copy 128 bytes of a row.
  static constexpr int kRowsOfLane = kMlaKeys / 32, kRowsAtOnce = 4;

 public:
  __device__ MlaLoad(const MlaParams& params, const MlaShared& shared, int half)
      : params_(params),
        shared_(shared),
        half_(half),
        first_chunk_(half * MlaTile::kChunksOfHalf),
        end_chunk_(half == 0 ? MlaTile::kChunksOfHalf : MlaTile::kChunks) {}

  // `is_early`: the kernel before may still run, and write keys of the new tokens.
  __device__ void run(bool is_early) {
    for (RingPlace place;; place.advance(MlaTile::kJobSlots)) {
      ptx::wait_for_phase(shared_.job_told(place.slot), place.parity);
      const MlaJob& job = shared_.job(place.slot);
      if (job.num_tiles < 0) return;
      load(job, is_early);
      is_early = false;
      arrive_as_warp(shared_.job_done(place.slot));
    }
  }

 private:
  // Pages are looked up a tile ahead.
  __device__ void load(const MlaJob& job, bool is_early) {
    const int num_tiles = job.num_tiles, prefix = job.tile.seqlen_kv - job.tile.seqlen_q;
    int first_key = job.first_key, next_pages[kRowsOfLane];
    const auto look_up = [&](int first) {
#pragma unroll
      for (int r = 0; r < kRowsOfLane; ++r) {
        const int position = first + r * 32 + lane_;
        const bool wanted = position >= job.keys.begin && position < job.keys.end;
        next_pages[r] = wanted ? page_of(params_.attention.index, job.tile.request, position) : -1;
      }
    };
    look_up(first_key);
    for (int i = 0; i < num_tiles; ++i, first_key += kMlaKeys) {
      int pages[kRowsOfLane];
#pragma unroll
      for (int r = 0; r < kRowsOfLane; ++r) pages[r] = next_pages[r];
      if (i + 1 < num_tiles) look_up(first_key + kMlaKeys);
      if (is_early && min(first_key + kMlaKeys, job.keys.end) > prefix) {
        ptx::wait_for_previous_kernel();
        is_early = false;
      }
      ptx::wait_for_phase(shared_.empty(place_.slot, half_), place_.parity ^ 1);
      if (copied_by_threads(params_, job, first_key))
        copy_rows(pages, first_key);
      else
        copy_boxes(pages, first_key);
      place_.advance(MlaTile::kStages);
    }
    if (is_early) ptx::wait_for_previous_kernel();
  }

  // By TMA: each of a few lanes has a box's rows.
  __device__ void copy_boxes(const int (&pages)[kRowsOfLane], int first_key) const {
    const int box_rows = params_.box_rows, first_row = lane_ * box_rows;
    int page = 0;
#pragma unroll
    for (int r = 0; r < kRowsOfLane; ++r) {
      const int page_of_row = __shfl_sync(0xffffffffu, pages[r], first_row % 32);
      if (first_row / 32 == r) page = page_of_row;
    }
    if (lane_ == 0)
      for (int chunk = first_chunk_; chunk < end_chunk_; ++chunk)
        ptx::arrive_and_expect(shared_.full(place_.slot, chunk), MlaTile::kChunkBytes);
    __syncwarp();
    if (first_row >= kMlaKeys) return;
    const int slot = (first_key + first_row) & (params_.attention.index.page_size - 1);
    for (int chunk = first_chunk_; chunk < end_chunk_; ++chunk)
      ptx::copy_box(shared_.stage(place_.slot) + chunk * MlaTile::kChunkBytes + first_row * kChunkRowBytes,
                    &params_.latent, chunk * kChunkColumns, 0, slot, page, shared_.full(place_.slot, chunk),
                    policy_);
  }

  // By the threads; a row without a page becomes zero.
  __device__ void copy_rows(const int (&pages)[kRowsOfLane], int first_key) const {
    uint64_t addresses[kRowsOfLane];
#pragma unroll
    for (int r = 0; r < kRowsOfLane; ++r) addresses[r] = address_of(pages[r], first_key + r * 32 + lane_);
#pragma unroll
    for (int r = 0; r < kRowsOfLane; ++r)
#pragma unroll 2
      for (int first = 0; first < 32; first += kRowsAtOnce) {
        const int row_lane = first + lane_ / 8;
        copy_row(r * 32 + row_lane, __shfl_sync(0xffffffffu, addresses[r], row_lane));
      }
    for (int chunk = first_chunk_; chunk < end_chunk_; ++chunk)
      ptx::await_copies(shared_.full(place_.slot, chunk));
    __syncwarp();
    if (lane_ == 0)
      for (int chunk = first_chunk_; chunk < end_chunk_; ++chunk)
        ptx::arrive(shared_.full(place_.slot, chunk));
  }

  // Where a position's row begins in global memory; 0 without a page.
  __device__ uint64_t address_of(int page, int position) const {
    if (page < 0) return 0;
    const PagedRows& rows = params_.attention.k;
    const int in_page = position & (params_.attention.index.page_size - 1);
    // Tiled kernels only take strides of 32 bits.
    int64_t offset = ptx::multiply_add_wide(page, static_cast<int32_t>(rows.page_stride), 0);
    offset = ptx::multiply_add_wide(in_page, static_cast<int32_t>(rows.token_stride), offset);
    return reinterpret_cast<uint64_t>(rows.data) + static_cast<uint64_t>(2 * offset);
  }

  // This lane's 16 bytes of every chunk of a row.
  __device__ void copy_row(int row, uint64_t address) const {
    for (int chunk = first_chunk_; chunk < end_chunk_; ++chunk) {
      const int column = chunk * kChunkColumns + lane_ % 8 * 8;
      const bool valid = address != 0 && column < params_.attention.head_dim_qk;
      ptx::copy_async_16(
          shared_.stage(place_.slot) + chunk * MlaTile::kChunkBytes + swizzled(row, lane_ % 8),
          valid ? reinterpret_cast<const char*>(address) + 2 * column : params_.attention.k.data, valid);
    }
  }

  const MlaParams& params_;
  const MlaShared& shared_;
  const int half_, first_chunk_, end_chunk_;
  const int lane_ = static_cast<int>(threadIdx.x) % 32;
  const uint64_t policy_ = ptx::evict_first();
  RingPlace place_;
};

}  // namespace attend::kernels::cuda::sm90
