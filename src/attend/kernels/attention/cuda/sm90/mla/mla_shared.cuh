// What the parts of MLA on sm_90a share: how a work tile and its KV tiles lie in shared memory, and barriers.
#pragma once

#include <cstdint>

#include "attend/kernels/attention/cuda/common/plan/plan_walk.cuh"
#include "attend/kernels/attention/cuda/common/visible.cuh"
#include "attend/kernels/attention/cuda/sm90/mla/mla_kernel.h"
#include "attend/kernels/common/cuda/ptx/copy.cuh"
#include "attend/kernels/common/cuda/ptx/integer.cuh"
#include "attend/kernels/common/cuda/ptx/mbarrier.cuh"

namespace attend::kernels::cuda::sm90 {

// Rows of 16-bit elements lie in panels of 64 columns, one after another; the rows of a panel, 128 bytes
// each, are in TMA's 128-byte swizzle.
inline constexpr int kMlaPanelColumns = 64, kMlaPanelRowBytes = 128;
inline constexpr int kMlaSwizzleAtom = 1024;  // eight such rows: what tiles are aligned to

// Where 16 bytes of a row of a panel lie, from the panel's begin.
__device__ inline uint32_t mla_swizzled(int row, int piece) {
  return static_cast<uint32_t>(row * kMlaPanelRowBytes + ((piece ^ (row & 7)) << 4));
}

struct MlaTile {
  // Panels of 64 columns, of 64 rows each: of queries and of latent rows, whose last one is RoPE's.
  static constexpr int kPanels = kMlaHeadDimQk / kMlaPanelColumns;
  static constexpr int kValuePanels = kMlaHeadDimV / kMlaPanelColumns;
  static constexpr int kPanelBytes = kMlaKeys * kMlaPanelRowBytes;
  static_assert(kMlaRows == kMlaKeys);
  static constexpr int kQueryBytes = kPanels * kPanelBytes, kStageBytes = kPanels * kPanelBytes;
  static constexpr int kStages = 2;
  static constexpr int kScheduleStages = 2;

  // Each math warpgroup has half of the columns of the results.
  static constexpr int kMathWarpgroups = 2, kMathWarps = 4 * kMathWarpgroups;
  static constexpr int kColumns = kMlaHeadDimV / kMathWarpgroups;
  static constexpr int kPanelsOfHalf = kValuePanels / kMathWarpgroups;
  // A stage comes in, is multiplied and is free again in parts: what is of keys alone, RoPE's, then the
  // values of each math warpgroup.
  static constexpr int kParts = 1 + kMathWarpgroups, kRopePart = 0;
  __host__ __device__ static constexpr int values_part(int warpgroup) { return 1 + warpgroup; }
  __host__ __device__ static constexpr int first_panel(int part) {
    return part == kRopePart ? kValuePanels : (part - 1) * kPanelsOfHalf;
  }
  __host__ __device__ static constexpr int num_panels(int part) {
    return part == kRopePart ? 1 : kPanelsOfHalf;
  }
  static_assert(kPanelsOfHalf == kMlaBoxPanels);
  // Threads write a stage in thirds, with a barrier for each. The left values end in the second, the right
  // ones and RoPE's columns in the last. The part that a third is the first to need:
  static constexpr int kThirds = 3, kPanelsOfThird = kPanels / kThirds;
  static_assert(kThirds == kParts && kPanelsOfThird == kPanelsOfHalf - 1);
  __host__ __device__ static constexpr int part_of_third(int third) {
    return third + 1 == kThirds ? kRopePart : values_part(third);
  }

  static constexpr int kLoadWarps = 2, kQueryWarps = 2, kProducerWarps = kLoadWarps + kQueryWarps;
  static constexpr int kThreads = 32 * (kProducerWarps + kMathWarps);
  static constexpr int kProducerRegisters = 56, kMathRegisters = 224;
  static_assert(32 * (kProducerWarps * kProducerRegisters + kMathWarps * kMathRegisters) <=
                65536 / kThreads / 8 * 8 * kThreads);
};

// A row tile and query heads, and the keys that this CTA multiplies them with.
struct alignas(16) MlaWorkTile {
  RowTile tile;
  int32_t head;         // group of query heads
  int32_t partial_idx;  // of the partial result; -1: the result is final
  int32_t num_tiles;    // -1: there are no more work_tiles
  int32_t first_key;    // of the first KV tile, a multiple of kMlaKeys
  KeyRange keys;        // that any row may see here
  KeyRange full;        // KV tiles of which every row sees all keys
};

struct MlaShared {
  static constexpr int kQueriesAt = 0;
  static constexpr int kStagesAt = kQueriesAt + MlaTile::kQueryBytes;
  static constexpr int kPAt = kStagesAt + MlaTile::kStages * MlaTile::kStageBytes;
  static constexpr int kRowMaxAt = kPAt + kMlaRows * kMlaKeys * 2;
  static constexpr int kSumsAt = kRowMaxAt + kMlaRows * 4;
  static constexpr int kSumBytes = MlaTile::kMathWarpgroups * kMlaRows * 4;
  static constexpr int kScheduleAt = kSumsAt + 2 * kSumBytes;
  static constexpr int kWalkAt =
      kScheduleAt + MlaTile::kScheduleStages * static_cast<int>(sizeof(MlaWorkTile));
  static constexpr int kBarriersAt = kWalkAt + static_cast<int>(sizeof(PlanStart));
  static constexpr int kFullAt = 2 * MlaTile::kScheduleStages + 2;
  static constexpr int kEmptyAt = kFullAt + MlaTile::kStages * MlaTile::kParts;
  static constexpr int kPFullAt = kEmptyAt + MlaTile::kStages * MlaTile::kParts;
  static constexpr int kLandedAt = kPFullAt + MlaTile::kMathWarps;
  static constexpr int kNumBarriers = kLandedAt + MlaTile::kLoadWarps;
  static constexpr int kLandedParityAt = kBarriersAt + 8 * kNumBarriers;
  static constexpr int kBytes = kLandedParityAt + 4 * MlaTile::kLoadWarps;
  // Beside what a derived plan takes, which is aligned as this is.
  static_assert(kBytes + kMlaSwizzleAtom <= 227 * 1024);

  char* base;
  uint32_t shared;  // its address in the shared window

  __device__ explicit MlaShared(char* memory) : base(memory), shared(ptx::shared_address(memory)) {}

  __device__ uint32_t queries() const { return shared + kQueriesAt; }
  __device__ uint32_t stage(int i) const { return shared + kStagesAt + i * MlaTile::kStageBytes; }
  // 16 bytes of P for each thread of a warpgroup, 4 times.
  __device__ uint32_t p() const { return shared + kPAt; }
  // The reference that P is relative to.
  __device__ float* row_max() const { return reinterpret_cast<float*>(base + kRowMaxAt); }
  // Of a work_tile with this parity, by a math warpgroup.
  __device__ float* sums(int parity, int warpgroup) const {
    return reinterpret_cast<float*>(base + kSumsAt + parity * kSumBytes) + warpgroup * kMlaRows;
  }
  __device__ MlaWorkTile& work_tile(int stage) const {
    return reinterpret_cast<MlaWorkTile*>(base + kScheduleAt)[stage];
  }
  // Where the CTA stands in the plan; registers are short.
  __device__ PlanStart& walk() const { return *reinterpret_cast<PlanStart*>(base + kWalkAt); }

  __device__ uint32_t barrier(int i) const { return shared + kBarriersAt + 8 * i; }
  __device__ uint32_t schedule_full(int stage) const { return barrier(stage); }
  __device__ uint32_t schedule_empty(int stage) const { return barrier(MlaTile::kScheduleStages + stage); }
  __device__ uint32_t queries_full() const { return barrier(2 * MlaTile::kScheduleStages); }
  __device__ uint32_t queries_empty() const { return barrier(2 * MlaTile::kScheduleStages + 1); }
  __device__ uint32_t full(int stage, int part) const {
    return barrier(kFullAt + stage * MlaTile::kParts + part);
  }
  __device__ uint32_t empty(int stage, int part) const {
    return barrier(kEmptyAt + stage * MlaTile::kParts + part);
  }
  // P of a KV tile of this warpgroup is there, for the rows of one of its warps.
  __device__ uint32_t p_full(int warpgroup, int warp) const {
    return barrier(kPFullAt + 4 * warpgroup + warp);
  }

  // The boxes of a cut KV tile that this warp asked for have come.
  __device__ uint32_t landed(int warp) const { return barrier(kLandedAt + warp); }

  // Of its present phase; registers are short.
  __device__ uint32_t& landed_parity(int warp) const {
    return reinterpret_cast<uint32_t*>(base + kLandedParityAt)[warp];
  }

  // By one thread. How many warps bring a part of a stage, and queries.
  __device__ void init_barriers(int num_row_warps, int num_query_warps) const {
    for (int warp = 0; warp < MlaTile::kLoadWarps; ++warp) {
      ptx::mbarrier_init(landed(warp), 1);
      landed_parity(warp) = 0;
    }
    for (int stage = 0; stage < MlaTile::kScheduleStages; ++stage) {
      ptx::mbarrier_init(schedule_full(stage), 1);
      ptx::mbarrier_init(schedule_empty(stage), MlaTile::kProducerWarps + MlaTile::kMathWarps);
    }
    ptx::mbarrier_init(queries_full(), num_query_warps);
    ptx::mbarrier_init(queries_empty(), MlaTile::kMathWarps);
    for (int i = 0; i < MlaTile::kStages; ++i) {
      for (int part = 0; part < MlaTile::kParts; ++part) {
        ptx::mbarrier_init(full(i, part), num_row_warps);
        // One warpgroup is the last that reads it.
        ptx::mbarrier_init(empty(i, part), MlaTile::kMathWarps / MlaTile::kMathWarpgroups);
      }
    }
    for (int i = 0; i < MlaTile::kMathWarps; ++i) ptx::mbarrier_init(p_full(i / 4, i % 4), 1);
    ptx::fence_mbarrier_init();
  }
};

// The keys that query j of a plain batch (MlaParams) sees: those before what this returns.
__device__ __forceinline__ int mla_plain_end(const BatchParams& batch, const RequestSpan& span, int j) {
  return batch.causal ? span.prefix() + j + 1 : span.seqlen_kv;
}

// An arrival of a warp.
__device__ __forceinline__ void arrive_as_warp(uint32_t barrier) {
  __syncwarp();
  if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(barrier);
}

// By all lanes of a warp: one arrival, once their cp.async have landed.
__device__ __forceinline__ void mla_arrive_after_cp_async(uint32_t barrier) {
  ptx::cp_async_mbarrier_arrive(barrier);
  arrive_as_warp(barrier);
}

// Where a position's latent row begins in global memory; 0 without a page.
__device__ inline uint64_t mla_row_address(const AttentionParams& params, int page, int position,
                                           int element_bytes) {
  if (page < 0) return 0;
  const PagedRows& rows = params.k;
  const int in_page = position & (params.index.page_size - 1);
  // Tiled kernels only take strides of 32 bits.
  int64_t offset = ptx::mad_wide(page, static_cast<int32_t>(rows.page_stride), 0);
  offset = ptx::mad_wide(in_page, static_cast<int32_t>(rows.token_stride), offset);
  return reinterpret_cast<uint64_t>(rows.data) + static_cast<uint64_t>(element_bytes * offset);
}

}  // namespace attend::kernels::cuda::sm90
