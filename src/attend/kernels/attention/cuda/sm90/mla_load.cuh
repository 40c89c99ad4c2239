// Latent rows on their way into shared memory, as far ahead as the ring allows: by TMA, each warp every other
// box, or by cp.async, each warp half of the rows.
#pragma once

#include "attend/kernels/attention/cuda/sm90/mla_shared.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/common/cuda/ptx/integer.cuh"
#include "attend/kernels/common/cuda/ptx/tensor_copy.cuh"

namespace attend::kernels::cuda::sm90 {

// Rows of a KV tile that are not all the job's are copied by threads: those that are not become zero, since
// what is multiplied with weights of 0 must not be infinite or NaN.
class MlaLoad {
  // Rows of a tile that a warp copies; as many at once: eight lanes copy 128 bytes of a row.
  static constexpr int kRows = kMlaKeys / MlaTile::kLoadWarps, kRowsAtOnce = 4;
  static_assert(kRows == 32);

 public:
  // `warp`: of those that load.
  __device__ MlaLoad(const MlaParams& params, const MlaShared& shared, int warp)
      : params_(params), shared_(shared), warp_(warp) {}

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
  // Pages are looked up a tile ahead: that of the lane's box, or of its row.
  __device__ void load(const MlaJob& job, bool is_early) {
    const int num_tiles = job.num_tiles, prefix = job.tile.seqlen_kv - job.tile.seqlen_q;
    const int request = job.tile.request;
    const KeyRange keys = job.keys, boxes = job.boxes;
    const int box_row = params_.box_rows == kMlaKeys
                            ? lane_ * kMlaKeys
                            : (lane_ * MlaTile::kLoadWarps + warp_) * params_.box_rows;
    const auto look_up = [&](int tile, int first) {
      const int row = tile >= boxes.begin && tile < boxes.end ? box_row : warp_ * kRows + lane_;
      const int position = first + row;
      const bool wanted = row < kMlaKeys && position >= keys.begin && position < keys.end;
      return wanted ? page_of(params_.attention.index, request, position) : -1;
    };
    int first_key = job.first_key, next_page = look_up(0, first_key);
    for (int i = 0; i < num_tiles; ++i, first_key += kMlaKeys) {
      const int page = next_page;
      if (i + 1 < num_tiles) next_page = look_up(i + 1, first_key + kMlaKeys);
      if (is_early && min(first_key + kMlaKeys, keys.end) > prefix) {
        ptx::wait_for_previous_kernel();
        is_early = false;
      }
      if (i >= boxes.begin && i < boxes.end)
        copy_boxes(page, first_key, box_row);
      else
        copy_rows(page, first_key + warp_ * kRows + lane_);
      place_.advance(MlaTile::kStages);
    }
    if (is_early) ptx::wait_for_previous_kernel();
  }

  __device__ void wait_for_room(int third) const {
    ptx::wait_for_phase(shared_.empty(place_.slot, third), place_.parity ^ 1);
  }

  // A lane has a box.
  __device__ void copy_boxes(int page, int first_key, int box_row) const {
    const bool contiguous = params_.attention.index.kind == KvIndexKind::kContiguous;
    const int slot = contiguous ? page : (first_key + box_row) & (params_.attention.index.page_size - 1);
    const int page_or_none = contiguous ? 0 : page;
    const bool is_one = params_.box_rows == kMlaKeys;
    const int num_boxes = is_one ? 1 : kMlaKeys / MlaTile::kLoadWarps / params_.box_rows;
    const uint32_t to = shared_.stage(place_.slot) + box_row * kChunkRowBytes;
#pragma unroll
    for (int third = 0; third < MlaTile::kThirds; ++third) {
      const uint32_t full = shared_.full(place_.slot, third);
      wait_for_room(third);
      // The warps take turns where there is but one box.
      const bool has_boxes = !is_one || third % MlaTile::kLoadWarps == warp_;
      if (lane_ == 0)
        ptx::arrive_and_expect(full,
                               has_boxes ? num_boxes * kMlaBoxChunks * params_.box_rows * kChunkRowBytes : 0);
      __syncwarp();
      if (!has_boxes || lane_ >= num_boxes) continue;
      if (is_one) {
        ptx::copy_box(to + third * MlaTile::kThirdBytes, &params_.latent, 0, page_or_none, slot,
                      third * kMlaBoxChunks, full, policy_);
      } else {
#pragma unroll
        for (int chunk = third * kMlaBoxChunks; chunk < (third + 1) * kMlaBoxChunks; ++chunk)
          ptx::copy_box(to + chunk * MlaTile::kChunkBytes, &params_.latent, 0, page_or_none, slot, chunk,
                        full, policy_);
      }
    }
  }

  // A row without a page becomes zero. `position`: of the lane's row.
  __device__ void copy_rows(int page, int position) const {
    const uint64_t lane_address = address_of(page, position);
#pragma unroll 1
    for (int third = 0; third < MlaTile::kThirds; ++third) {
      wait_for_room(third);
#pragma unroll 1
      for (int first = 0; first < kRows; first += kRowsAtOnce) {
        const int row = first + lane_ / 8;
        const uint64_t address = __shfl_sync(0xffffffffu, lane_address, row);
        copy_row(third * kMlaBoxChunks, warp_ * kRows + row, address);
      }
      arrive_after_copies(shared_.full(place_.slot, third));
    }
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

  // This lane's 16 bytes of a few chunks of a row.
  __device__ void copy_row(int first_chunk, int row, uint64_t address) const {
#pragma unroll
    for (int i = 0; i < kMlaBoxChunks; ++i) {
      const int chunk = first_chunk + i, column = chunk * kChunkColumns + lane_ % 8 * 8;
      const bool valid = address != 0 && column < params_.attention.head_dim_qk;
      ptx::copy_async_16(
          shared_.stage(place_.slot) + chunk * MlaTile::kChunkBytes + swizzled(row, lane_ % 8),
          valid ? reinterpret_cast<const char*>(address) + 2 * column : params_.attention.k.data, valid);
    }
  }

  const MlaParams& params_;
  const MlaShared& shared_;
  const int warp_;
  const int lane_ = static_cast<int>(threadIdx.x) % 32;
  const uint64_t policy_ = ptx::evict_first();
  RingPlace place_;
};

}  // namespace attend::kernels::cuda::sm90
