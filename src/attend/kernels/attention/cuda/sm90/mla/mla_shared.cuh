// Code shared by the parts of MLA on sm_90a: shared-memory layout of a work tile and its KV tiles, and
// barriers.
#pragma once

#include <cstdint>

#include "attend/kernels/attention/cuda/common/attention_mask.cuh"
#include "attend/kernels/attention/cuda/common/plan/cta_plan.cuh"
#include "attend/kernels/attention/cuda/common/plan/plan_walk.cuh"
#include "attend/kernels/attention/cuda/common/work_tile_rows.cuh"
#include "attend/kernels/attention/cuda/sm90/mla/mla_kernel.h"
#include "attend/kernels/common/cuda/ptx/copy.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/common/cuda/ptx/mbarrier.cuh"
#include "attend/kernels/common/cuda/ptx/tensor_copy.cuh"
#include "attend/kernels/common/cuda/ptx/thread.cuh"
#include "attend/kernels/common/cuda/sm90/pipeline_state.cuh"

namespace attend::kernels::cuda::sm90 {

// Rows of 16-bit elements are in consecutive panels of 64 columns; the rows of a panel, 128 bytes each, have
// TMA's 128-byte swizzle.
inline constexpr int kMlaPanelColumns = 64, kMlaPanelRowBytes = 128;
inline constexpr int kMlaSwizzleAtom = 1024;  // eight such rows: alignment of tiles

// Returns the offset of 16 bytes of a row from the start of the panel.
__device__ inline uint32_t mla_swizzled(int row, int piece) {
  return static_cast<uint32_t>(row * kMlaPanelRowBytes + ((piece ^ (row & 7)) << 4));
}

struct MlaTile {
  // Panels of 64 columns and 64 rows: of queries and of latent rows. The last panel has the rope columns.
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
  static constexpr int kPanelsPerHalf = kValuePanels / kMathWarpgroups;
  // A stage is loaded, multiplied and released in parts: the rope columns, which only keys have, then the
  // values of each math warpgroup.
  static constexpr int kParts = 1 + kMathWarpgroups, kRopePart = 0;
  __host__ __device__ static constexpr int values_part(int warpgroup) { return 1 + warpgroup; }
  __host__ __device__ static constexpr int first_panel(int part) {
    return part == kRopePart ? kValuePanels : (part - 1) * kPanelsPerHalf;
  }
  __host__ __device__ static constexpr int num_panels(int part) {
    return part == kRopePart ? 1 : kPanelsPerHalf;
  }
  static_assert(kPanelsPerHalf == kMlaBoxPanels);
  // Threads write a stage in thirds, each with a barrier. The left values end in the second third, the right
  // ones and the rope columns in the last. third_part() returns the part that a third is the first to need.
  static constexpr int kThirds = 3, kPanelsPerThird = kPanels / kThirds;
  static_assert(kThirds == kParts && kPanelsPerThird == kPanelsPerHalf - 1);
  __host__ __device__ static constexpr int third_part(int third) {
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
  int32_t partial_idx;  // -1: the result is final
  int32_t num_tiles;    // -1: no more work tiles
  int32_t first_key;    // first key of the first KV tile, a multiple of kMlaKeys
  KeyRange keys;        // keys that any row may see here
  KeyRange full;        // KV tiles in which every row sees all keys
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
  static constexpr int kCopiedAt = kPFullAt + MlaTile::kMathWarps;
  static constexpr int kNumBarriers = kCopiedAt + MlaTile::kLoadWarps;
  static constexpr int kCopiedParityAt = kBarriersAt + 8 * kNumBarriers;
  static constexpr int kBytes = kCopiedParityAt + 4 * MlaTile::kLoadWarps;
  // Next to a derived plan, which has the same alignment.
  static_assert(kBytes + kMlaSwizzleAtom <= 227 * 1024);

  char* base;
  uint32_t shared;  // address in the shared window

  __device__ explicit MlaShared(char* memory) : base(memory), shared(ptx::shared_address(memory)) {}

  __device__ uint32_t queries() const { return shared + kQueriesAt; }
  __device__ uint32_t stage(int i) const { return shared + kStagesAt + i * MlaTile::kStageBytes; }
  // 16 bytes of P per thread of a warpgroup, 4 times.
  __device__ uint32_t p() const { return shared + kPAt; }
  // Reference of P.
  __device__ float* row_max() const { return reinterpret_cast<float*>(base + kRowMaxAt); }
  // Sums of a math warpgroup for a work tile with this parity.
  __device__ float* sums(int parity, int warpgroup) const {
    return reinterpret_cast<float*>(base + kSumsAt + parity * kSumBytes) + warpgroup * kMlaRows;
  }
  __device__ MlaWorkTile& work_tile(int stage) const {
    return reinterpret_cast<MlaWorkTile*>(base + kScheduleAt)[stage];
  }
  // Position of the CTA in the plan, in shared memory because registers are limited.
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
  // P of a KV tile of this warpgroup is available, for the rows of one of its warps.
  __device__ uint32_t p_full(int warpgroup, int warp) const {
    return barrier(kPFullAt + 4 * warpgroup + warp);
  }

  // The boxes of a partial KV tile that this warp copied have arrived.
  __device__ uint32_t copied(int warp) const { return barrier(kCopiedAt + warp); }

  // Parity of its current phase, in shared memory because registers are limited.
  __device__ uint32_t& copied_parity(int warp) const {
    return reinterpret_cast<uint32_t*>(base + kCopiedParityAt)[warp];
  }

  // Called by one thread. Arguments: warps that load a part of a stage, and warps that load queries.
  __device__ void init_barriers(int num_row_warps, int num_query_warps) const {
    for (int warp = 0; warp < MlaTile::kLoadWarps; ++warp) {
      ptx::mbarrier_init(copied(warp), 1);
      copied_parity(warp) = 0;
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
        // A single warpgroup reads it last.
        ptx::mbarrier_init(empty(i, part), MlaTile::kMathWarps / MlaTile::kMathWarpgroups);
      }
    }
    for (int i = 0; i < MlaTile::kMathWarps; ++i) ptx::mbarrier_init(p_full(i / 4, i % 4), 1);
    ptx::fence_mbarrier_init();
  }
};

// Returns the end of the keys that query j of a plain batch (MlaParams) sees.
__device__ __forceinline__ int mla_plain_end(const BatchParams& batch, const RequestSpan& span, int j) {
  return batch.causal ? span.prefix() + j + 1 : span.seqlen_kv;
}

// Arrives once per warp.
__device__ __forceinline__ void arrive_as_warp(uint32_t barrier) {
  __syncwarp();
  if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(barrier);
}

// Called by all lanes of a warp: arrives once, after their cp.async copies have finished.
__device__ __forceinline__ void mla_arrive_after_cp_async(uint32_t barrier) {
  ptx::cp_async_mbarrier_arrive(barrier);
  arrive_as_warp(barrier);
}

// Returns the global address of a position's latent row, or 0 without a page.
__device__ inline uint64_t mla_row_address(const AttentionParams& params, int page, int position,
                                           int element_bytes) {
  if (page < 0) return 0;
  const PagedRows& rows = params.k;
  const int in_page = position & (params.index.page_size - 1);
  // Tiled kernels support only 32-bit strides.
  int64_t offset = ptx::mad_wide(page, static_cast<int32_t>(rows.page_stride), 0);
  offset = ptx::mad_wide(in_page, static_cast<int32_t>(rows.token_stride), offset);
  return reinterpret_cast<uint64_t>(rows.data) + static_cast<uint64_t>(element_bytes * offset);
}

// Memory layout of MLA's partial results.

// Layout of the wgmma accumulators: per 8 consecutive rows, blocks of 16 columns with 4 floats of every lane.
// Lane l has columns 2 (l % 4), 2 (l % 4) + 1, and those plus 8, of row l / 4. So a warp writes and reads 512
// contiguous bytes.
inline constexpr int kMlaPartialRows = 8, kMlaPartialColumns = 16;
inline constexpr int kMlaPartialBlock = kMlaPartialRows * kMlaPartialColumns;

__device__ inline int mla_partial_blocks(int head_dim_v) {
  return (head_dim_v + kMlaPartialColumns - 1) / kMlaPartialColumns;
}
// Returns the start of the blocks of a row group, in floats. `partial_rows`: rows of every partial result, a
// multiple of kMlaPartialRows.
__device__ inline int64_t mla_partial_begin(int partial_idx, int partial_rows, int row_group,
                                            int head_dim_v) {
  return (int64_t{partial_idx} * (partial_rows / kMlaPartialRows) + row_group) *
         (mla_partial_blocks(head_dim_v) * kMlaPartialBlock);
}

// Work tiles of a CTA of MLA and of wide decode on sm_90a, and the copies of MLA's queries.

// Iterates over the work tiles of a CTA: its share of a streamed plan, or every gridDim.x-th row tile and
// head. Used by one thread. The position is in shared memory because registers are limited.
template <class Plan, bool kPlain>
class MlaWalk {
 public:
  // `walk`: start of the CTA in the plan, or only the header.
  __device__ MlaWalk(const AttentionParams& params, const Plan& cta_plan, PlanStart& walk)
      : params_(params), cta_plan_(cta_plan), walk_(walk) {}

  // Called before publish().
  __device__ void begin() {
    if (!params_.plan.streamed) next_work_tile() = static_cast<int>(blockIdx.x);
  }

  // Publishes the next work tile, or the end, as soon as the stage of `place` is free.
  template <class Shared>
  __device__ void publish(const Shared& shared, const PipelineState& place) {
    ptx::mbarrier_wait(shared.schedule_empty(place.stage), place.parity ^ 1);
    next(shared.work_tile(place.stage));
    ptx::mbarrier_arrive(shared.schedule_full(place.stage));
  }

 private:
  __device__ void next(MlaWorkTile& work_tile) {
    work_tile.num_tiles = -1;
    if (params_.plan.streamed)
      next_stream_k_tile(work_tile);
    else
      next_whole_tile(work_tile);
  }

  __device__ void next_stream_k_tile(MlaWorkTile& work_tile) {
    CtaStart& at = walk_.cta;
    if (at.length <= 0) return;
    const PlanView& plan = params_.plan;
    const KvTileRange part = range_at<false>(plan, static_cast<int>(blockIdx.x), at.tile, at.head, at.first,
                                             min(at.tile.num_kv_tiles - at.first, at.length));
    make(work_tile, at.tile, at.head, part);
    at.length -= part.count + walk_.header.partition.gap;
    if (at.length <= 0) return;
    at.first = 0;
    at.head += plan.heads_per_round;
    if (at.head < params_.num_kv_heads) return;
    at.tile = cta_plan_.tile_after(at.tile);
    at.head -= params_.num_kv_heads;
  }

  // Heads vary fastest: neighboring CTAs read the same keys.
  __device__ void next_whole_tile(MlaWorkTile& work_tile) {
    const int work_tile_idx = next_work_tile();
    if (work_tile_idx >= walk_.header.num_row_tiles * params_.num_kv_heads) return;
    const RowTile& tile = params_.plan.row_tiles[work_tile_idx / params_.num_kv_heads];
    make(work_tile, tile, work_tile_idx % params_.num_kv_heads, {0, tile.num_kv_tiles, -1, true});
    next_work_tile() = work_tile_idx + static_cast<int>(gridDim.x);
  }
  // Position in a whole plan, which has no CTA starts.
  __device__ int& next_work_tile() const { return walk_.cta.first; }

  __device__ void make(MlaWorkTile& work_tile, const RowTile& tile, int head, const KvTileRange& part) const {
    const BatchParams& batch = params_.batch;
    work_tile.tile = tile;
    work_tile.head = head;
    work_tile.partial_idx = part.partial_idx;
    const WorkTileRows rows(params_, tile, head, params_.plan.tile_rows);
    const int j_first = rows.first_query, j_last = rows.at(params_, rows.num_rows - 1).query;
    // The plan may be that of a layer without a window.
    if (!kPlain && (batch.window_left >= 0 || batch.chunk > 0))
      clip_to_layer(work_tile.tile, key_range(batch, rows.span, j_first, j_last));
    const int begin = work_tile.tile.kv_begin, end = work_tile.tile.kv_end;
    const int kv_tile_keys = params_.plan.kv_tile_keys;
    const int part_begin = (tile.first_kv_tile + part.first) * kv_tile_keys;
    work_tile.first_key = max(part_begin, begin / kMlaKeys * kMlaKeys);
    work_tile.keys = {max(begin, part_begin), min(part_begin + part.count * kv_tile_keys, end)};
    work_tile.full = {0, 0};
    if constexpr (kPlain)
      work_tile.full = whole_tile_keys(work_tile, {0, mla_plain_end(batch, rows.span, j_first)});
    else if (batch.tree_mask == nullptr || !batch.causal)
      work_tile.full = whole_tile_keys(work_tile, full_key_range(batch, rows.span, j_first, j_last));
    work_tile.num_tiles = max(0, (work_tile.keys.end - work_tile.first_key + kMlaKeys - 1) / kMlaKeys);
  }

  // Returns the KV tiles of the work tile with keys only from this range.
  __device__ static KeyRange whole_tile_keys(const MlaWorkTile& work_tile, const KeyRange& keys) {
    return {(max(0, keys.begin - work_tile.first_key) + kMlaKeys - 1) / kMlaKeys,
            max(0, keys.end - work_tile.first_key) / kMlaKeys};
  }

  const AttentionParams& params_;
  const Plan& cta_plan_;
  PlanStart& walk_;
};

// Copies queries of work tiles; each of `kWarps` warps copies a part of the rows.
template <int kWarps, bool kPlain>
class MlaQueries {
  // With more warps, fewer registers are available.
  static constexpr int kPanelsAtOnce = kWarps > 2 ? 1 : MlaTile::kPanels;

 public:
  __device__ MlaQueries(const MlaParams& params, const MlaShared& shared, int warp)
      : mla_(params), params_(params.attention), shared_(shared), warp_(warp) {}

  // `parity`: parity of the work tile's index in the CTA.
  __device__ void copy(const MlaWorkTile& work_tile, uint32_t parity) const {
    ptx::mbarrier_wait(shared_.queries_empty(), parity ^ 1);
    // Queries are written by the previous kernel, so they always wait for it.
    ptx::griddepcontrol_wait();
    if (kPlain || mla_.boxes_queries) {
      copy_boxes(work_tile);
    } else {
      copy_rows(work_tile);
      mla_arrive_after_cp_async(shared_.queries_full());
    }
  }

 private:
  // Copies with TMA. Rows past the tile's end are zero or belong to other tokens; their results are not used.
  __device__ void copy_boxes(const MlaWorkTile& work_tile) const {
    if (lane_ != 0) return;
    if (warp_ != 0) return ptx::mbarrier_arrive(shared_.queries_full());
    const RowTile& tile = work_tile.tile;
    // A tile's first row belongs to its first query.
    int token = tile.first_token + tile.first_query;
    int head = work_tile.head * params_.group + tile.row_begin - tile.first_query * params_.group;
    if (mla_.queries_in_sequence) {
      head += token * params_.num_q_heads;
      token = 0;
    }
    const uint64_t policy = ptx::createpolicy_evict_first();
    ptx::mbarrier_arrive_expect_tx(shared_.queries_full(), MlaTile::kQueryBytes);
#pragma unroll kPanelsAtOnce
    for (int panel = 0; panel < MlaTile::kPanels; ++panel) {
      const bool is_rope = panel == MlaTile::kValuePanels;
      ptx::cp_async_bulk_tensor(shared_.queries() + panel * MlaTile::kPanelBytes,
                                is_rope ? &mla_.q_rope : &mla_.q, is_rope ? 0 : panel * kMlaPanelColumns,
                                head, token, shared_.queries_full(), policy);
    }
  }

  // Copies columns of q, then those of q_rope. Rows and columns past the end are zero. Eight lanes copy 128
  // bytes of a row.
  __device__ void copy_rows(const MlaWorkTile& work_tile) const {
    constexpr int kRowsPerWarp = kMlaRows / kWarps, kRowsAtOnce = 4;
    const WorkTileRows rows(params_, work_tile.tile, work_tile.head, params_.plan.tile_rows);
    const char* const none = static_cast<const char*>(params_.q.data);
    const int num_nope = params_.head_dim_qk - params_.rope_dim, piece = lane_ % 8;
#pragma unroll 1
    for (int i = lane_ / 8; i < kRowsPerWarp; i += kRowsAtOnce) {
      const int tile_row = warp_ * kRowsPerWarp + i;
      const bool is_row = tile_row < rows.num_rows;
      const TileRow row = rows.at(params_, is_row ? tile_row : 0);
      const int64_t token = rows.span.first_token + row.query;
      const char* const nope = none + 2 * (token * params_.q.token_stride + row.head * params_.q.head_stride);
      const char* const rope =
          static_cast<const char*>(params_.q_rope.data) +
          2 * (token * params_.q_rope.token_stride + row.head * params_.q_rope.head_stride);
#pragma unroll kPanelsAtOnce
      for (int panel = 0; panel < MlaTile::kPanels; ++panel) {
        const int column = panel * kMlaPanelColumns + piece * 8;
        const bool valid = is_row && column < params_.head_dim_qk;
        const char* const from = column < num_nope ? nope + 2 * column : rope + 2 * (column - num_nope);
        ptx::cp_async_16(shared_.queries() + panel * MlaTile::kPanelBytes + mla_swizzled(tile_row, piece),
                         valid ? from : none, valid);
      }
    }
  }

  const MlaParams& mla_;
  const AttentionParams& params_;
  const MlaShared& shared_;
  const int warp_;
  // With more warps it is read again at each use, so that derived values are not kept in registers.
  const int lane_ = (kWarps > 2 ? ptx::tid_x() : static_cast<int>(threadIdx.x)) % 32;
};

// Two warps that load the queries; the first one publishes the work tiles.
template <class Plan, bool kPlain>
class MlaScheduler {
 public:
  __device__ MlaScheduler(const MlaParams& params, const MlaShared& shared, int warp)
      : params_(params),
        shared_(shared),
        queries_(params, shared, warp),
        publishes_(warp == 0 && lane() == 0) {}

  __device__ void run(const Plan& cta_plan) {
    MlaWalk<Plan, kPlain> walk(params_.attention, cta_plan, shared_.walk());
    if (publishes_) walk.begin();
    uint32_t parity = 0;
    for (PipelineState place;; place.advance(MlaTile::kScheduleStages), parity ^= 1) {
      if (publishes_) walk.publish(shared_, place);
      ptx::mbarrier_wait(shared_.schedule_full(place.stage), place.parity);
      const MlaWorkTile& work_tile = shared_.work_tile(place.stage);
      if (work_tile.num_tiles < 0) return;
      queries_.copy(work_tile, parity);
      arrive_as_warp(shared_.schedule_empty(place.stage));
    }
  }

 private:
  __device__ static int lane() { return static_cast<int>(threadIdx.x) % 32; }

  const MlaParams& params_;
  const MlaShared& shared_;
  const MlaQueries<MlaTile::kQueryWarps, kPlain> queries_;
  const bool publishes_;
};

}  // namespace attend::kernels::cuda::sm90
