// Which jobs a CTA computes, and their queries on the way into shared memory.
#pragma once

#include "attend/kernels/attention/cuda/sm90/prefill_shared.cuh"

namespace attend::kernels::cuda::sm90 {

// Jobs are taken in the order of the plan, heads fastest: the first of every CTA is that of its index, and
// each CTA takes another as soon as it has told its warps of the one before. Who computes a job changes no
// bit.
template <class Tile>
class PrefillJobs {
  using Shared = PrefillShared<Tile>;

 public:
  // `consumer`: whose queries this warp copies.
  __device__ PrefillJobs(const PrefillParams& params, const Shared& shared, int consumer)
      : params_(params), shared_(shared), consumer_(consumer) {}

  __device__ void run() {
    const int num_jobs = params_.attention.plan.header->num_row_tiles * params_.attention.num_kv_heads;
    const bool tells = consumer_ == 0 && lane_ == 0;
    int job = static_cast<int>(blockIdx.x);
    RingPlace queries;
    for (RingPlace place;; place.advance(Tile::kJobSlots), queries.advance(Tile::kQuerySlots)) {
      if (tells) {
        while (job < num_jobs && !begins_job(job)) job = next_job();
        ptx::mbarrier_wait(shared_.job_done(place.slot), place.parity ^ 1);
        shared_.job(place.slot) = job < num_jobs ? make_job(job) : PrefillJob{.num_tiles = -1};
        ptx::mbarrier_arrive(shared_.job_told(place.slot));
        if (job >= num_jobs) return end();
        job = next_job();
      }
      ptx::mbarrier_wait(shared_.job_told(place.slot), place.parity);
      const PrefillJob& told = shared_.job(place.slot);
      if (told.num_tiles < 0) return;
      ptx::mbarrier_wait(shared_.queries_empty(queries.slot, consumer_), queries.parity ^ 1);
      copy_queries(told, shared_.queries(queries.slot));
      arrive_after_copies(shared_.queries_full(queries.slot, consumer_));
    }
  }

 private:
  __device__ int next_job() const { return static_cast<int>(gridDim.x) + atomicAdd(params_.progress, 1); }

  // Where the plan's row tiles are lower than a job, the tiles that follow the first belong to its job.
  __device__ bool begins_job(int job_idx) const {
    const AttentionParams& params = params_.attention;
    return params.plan.row_tiles[job_idx / params.num_kv_heads].row_begin % Tile::kRows == 0;
  }

  // The last CTA to end leaves the counts as it found them.
  __device__ void end() const {
    if (atomicAdd(params_.progress + 1, 1) + 1 < static_cast<int>(gridDim.x)) return;
    params_.progress[0] = 0;
    params_.progress[1] = 0;
  }

  __device__ PrefillJob make_job(int job_idx) const {
    const AttentionParams& params = params_.attention;
    const BatchParams& batch = params.batch;
    PrefillJob job{};
    job.head = job_idx % params.num_kv_heads;
    job.tile = params.plan.row_tiles[job_idx / params.num_kv_heads];
    const sm80::JobRows rows(params, job.tile, job.head, Tile::kRows);
    const int j_first = rows.first_query, j_last = rows.at(params, rows.num_rows - 1).query;
    // The plan may be one of a layer without a window, its row tiles lower.
    const KeyRange keys = key_range(batch, rows.span, j_first, j_last);
    job.tile.kv_begin = keys.begin;
    job.tile.kv_end = keys.end;
    job.full = {first_visible(batch, position_of(batch, rows.span, j_last)),
                min(position_of(batch, rows.span, j_first) + 1, rows.span.seqlen_kv)};
    job.first_key = job.tile.kv_begin / Tile::kMostBoxRows * Tile::kMostBoxRows;
    if (job.tile.kv_begin < job.tile.kv_end)
      job.num_tiles = (job.tile.kv_end - job.first_key + Tile::kKeys - 1) / Tile::kKeys;
    return job;
  }

  // Rows beyond the request's are zero. Eight neighbouring threads copy 128 bytes of a row.
  __device__ void copy_queries(const PrefillJob& job, uint32_t queries) const {
    const AttentionParams& params = params_.attention;
    const sm80::JobRows rows(params, job.tile, job.head, Tile::kRows);
    const char* q = static_cast<const char*>(params.q.data);
    const int piece = lane_ % 8;
#pragma unroll 2
    for (int row = lane_ / 8; row < Tile::kConsumerRows; row += 32 / 8) {
      const int tile_row = consumer_ * Tile::kConsumerRows + row;
      const char* from = q + 2 * rows.offset_in(params.q, rows.at(params, tile_row));
#pragma unroll
      for (int chunk = 0; chunk < Tile::kQkChunks; ++chunk) {
        const int column = chunk * kChunkColumns + piece * 8;
        const bool valid = tile_row < rows.num_rows && column < params.head_dim_qk;
        ptx::cp_async_16(queries + chunk * Tile::kQueryChunkBytes + swizzled(tile_row, piece),
                           valid ? from + 2 * column : q, valid);
      }
    }
  }

  const PrefillParams& params_;
  const Shared& shared_;
  const int consumer_;
  const int lane_ = static_cast<int>(threadIdx.x) % 32;
};

}  // namespace attend::kernels::cuda::sm90
