// Shared memory of MLA on sm_90a: queries, a ring of KV tiles, what the math warpgroups hand one another, and
// the work in hand.
#pragma once

#include "attend/kernels/attention/cuda/common/cta_plan.cuh"
#include "attend/kernels/attention/cuda/sm90/mla_kernel.h"
#include "attend/kernels/attention/cuda/sm90/prefill_shared.cuh"

namespace attend::kernels::cuda::sm90 {

struct MlaTile {
  // Chunks of 64 columns, of 64 rows each: of queries and of latent rows, whose last one is RoPE's.
  static constexpr int kChunks = kMlaHeadDimQk / kChunkColumns;
  static constexpr int kValueChunks = kMlaHeadDimV / kChunkColumns;
  static constexpr int kChunkBytes = kMlaKeys * kChunkRowBytes;
  static_assert(kMlaRows == kMlaKeys);
  static constexpr int kQueryBytes = kChunks * kChunkBytes, kStageBytes = kChunks * kChunkBytes;
  static constexpr int kStages = 2;
  static constexpr int kJobSlots = 2;

  // A stage comes in, and is free again, in thirds.
  static constexpr int kThirds = kChunks / kMlaBoxChunks;
  static constexpr int kThirdBytes = kMlaBoxChunks * kChunkBytes;
  // Each math warpgroup has half of the columns of the results, so reads two of the thirds as values.
  static constexpr int kMathWarpgroups = 2, kMathWarps = 4 * kMathWarpgroups;
  static constexpr int kColumns = kMlaHeadDimV / kMathWarpgroups;
  static constexpr int kChunksOfHalf = kValueChunks / 2;

  static constexpr int kLoadWarps = 2, kQueryWarps = 2, kProducerWarps = kLoadWarps + kQueryWarps;
  static constexpr int kThreads = 32 * (kProducerWarps + kMathWarps);
  static constexpr int kProducerRegisters = 56, kMathRegisters = 224;
  static_assert(32 * (kProducerWarps * kProducerRegisters + kMathWarps * kMathRegisters) <=
                65536 / kThreads / 8 * 8 * kThreads);
};

// A row tile and query heads, and the keys that this CTA multiplies them with.
struct alignas(16) MlaJob {
  RowTile tile;
  int32_t head;       // group of query heads
  int32_t slot;       // of the partial result; -1: the result is final
  int32_t num_tiles;  // -1: there are no more jobs
  int32_t first_key;  // of the first KV tile, a multiple of kMlaKeys
  KeyRange keys;      // that any row may see here
  KeyRange boxes;     // KV tiles that TMA copies: those with keys of the job alone
  KeyRange full;      // KV tiles of which every row sees all keys
};

struct MlaShared {
  static constexpr int kQueriesAt = 0;
  static constexpr int kStagesAt = kQueriesAt + MlaTile::kQueryBytes;
  static constexpr int kWeightsAt = kStagesAt + MlaTile::kStages * MlaTile::kStageBytes;
  static constexpr int kRowMaxAt = kWeightsAt + kMlaRows * kMlaKeys * 2;
  static constexpr int kSumsAt = kRowMaxAt + kMlaRows * 4;
  static constexpr int kSumBytes = MlaTile::kMathWarpgroups * kMlaRows * 4;
  static constexpr int kJobsAt = kSumsAt + 2 * kSumBytes;
  static constexpr int kWalkAt = kJobsAt + MlaTile::kJobSlots * static_cast<int>(sizeof(MlaJob));
  static constexpr int kBarriersAt = kWalkAt + static_cast<int>(sizeof(sm80::PlanStart));
  static constexpr int kFullAt = 2 * MlaTile::kJobSlots + 2;
  static constexpr int kEmptyAt = kFullAt + MlaTile::kStages * MlaTile::kThirds;
  static constexpr int kWeightsFullAt = kEmptyAt + MlaTile::kStages * MlaTile::kThirds;
  static constexpr int kNumBarriers = kWeightsFullAt + MlaTile::kMathWarps;
  static constexpr int kBytes = kBarriersAt + 8 * kNumBarriers;
  // Beside what a derived plan takes, which is aligned as this is.
  static_assert(kBytes + kSwizzleAtom <= 227 * 1024);

  char* base;
  uint32_t shared;  // its address in the shared window

  __device__ explicit MlaShared(char* memory) : base(memory), shared(ptx::shared_address(memory)) {}

  __device__ uint32_t queries() const { return shared + kQueriesAt; }
  __device__ uint32_t stage(int i) const { return shared + kStagesAt + i * MlaTile::kStageBytes; }
  // 16 bytes of P for each thread of a warpgroup, 4 times.
  __device__ uint32_t weights() const { return shared + kWeightsAt; }
  // The reference that P is relative to.
  __device__ float* row_max() const { return reinterpret_cast<float*>(base + kRowMaxAt); }
  // Of a job with this parity, by a math warpgroup.
  __device__ float* sums(int parity, int warpgroup) const {
    return reinterpret_cast<float*>(base + kSumsAt + parity * kSumBytes) + warpgroup * kMlaRows;
  }
  __device__ MlaJob& job(int slot) const { return reinterpret_cast<MlaJob*>(base + kJobsAt)[slot]; }
  // Where the CTA stands in the plan; registers are short.
  __device__ sm80::PlanStart& walk() const { return *reinterpret_cast<sm80::PlanStart*>(base + kWalkAt); }

  __device__ uint32_t barrier(int i) const { return shared + kBarriersAt + 8 * i; }
  __device__ uint32_t job_told(int slot) const { return barrier(slot); }
  __device__ uint32_t job_done(int slot) const { return barrier(MlaTile::kJobSlots + slot); }
  __device__ uint32_t queries_full() const { return barrier(2 * MlaTile::kJobSlots); }
  __device__ uint32_t queries_empty() const { return barrier(2 * MlaTile::kJobSlots + 1); }
  __device__ uint32_t full(int stage, int third) const {
    return barrier(kFullAt + stage * MlaTile::kThirds + third);
  }
  __device__ uint32_t empty(int stage, int third) const {
    return barrier(kEmptyAt + stage * MlaTile::kThirds + third);
  }
  // P of a KV tile of this warpgroup is there, for the rows of one of its warps.
  __device__ uint32_t weights_full(int warpgroup, int warp) const {
    return barrier(kWeightsFullAt + 4 * warpgroup + warp);
  }

  // By one thread.
  __device__ void init_barriers() const {
    for (int slot = 0; slot < MlaTile::kJobSlots; ++slot) {
      ptx::init_barrier(job_told(slot), 1);
      ptx::init_barrier(job_done(slot), MlaTile::kProducerWarps + MlaTile::kMathWarps);
    }
    ptx::init_barrier(queries_full(), MlaTile::kQueryWarps);
    ptx::init_barrier(queries_empty(), MlaTile::kMathWarps);
    for (int i = 0; i < MlaTile::kStages; ++i) {
      for (int third = 0; third < MlaTile::kThirds; ++third) {
        ptx::init_barrier(full(i, third), MlaTile::kLoadWarps);
        // Columns of both warpgroups are in the middle.
        ptx::init_barrier(empty(i, third), third == 1 ? MlaTile::kMathWarps : MlaTile::kMathWarps / 2);
      }
    }
    for (int i = 0; i < MlaTile::kMathWarps; ++i) ptx::init_barrier(weights_full(i / 4, i % 4), 1);
    ptx::publish_barriers();
  }
};

// An arrival of a warp.
__device__ __forceinline__ void arrive_as_warp(uint32_t barrier) {
  __syncwarp();
  if (threadIdx.x % 32 == 0) ptx::arrive(barrier);
}

}  // namespace attend::kernels::cuda::sm90
