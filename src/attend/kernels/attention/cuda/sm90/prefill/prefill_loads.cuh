// Work tiles of prefill on sm_90a, their order, and the layout of tiles in shared memory: common to the
// 16-bit kernel (prefill.cuh) and the e4m3 kernel (prefill_e4m3.cuh).
#pragma once

#include "attend/kernels/attention/cuda/common/head_scales.cuh"
#include "attend/kernels/attention/cuda/common/plan/plan_walk.cuh"
#include "attend/kernels/attention/cuda/common/work_tile_rows.cuh"
#include "attend/kernels/attention/cuda/sm90/prefill/prefill_kernel.h"
#include "attend/kernels/common/cuda/ptx/cluster.cuh"
#include "attend/kernels/common/cuda/ptx/copy.cuh"
#include "attend/kernels/common/cuda/ptx/mbarrier.cuh"
#include "attend/kernels/common/cuda/ptx/tensor_copy.cuh"
#include "attend/kernels/common/cuda/ptx/thread.cuh"
#include "attend/kernels/common/cuda/sm90/packed_pipeline_state.h"
#include "attend/kernels/common/cuda/sm90/pipeline_state.cuh"

namespace attend::kernels::cuda::sm90 {

// A tile consists of panels: 128 bytes of each row, one panel after another. A panel's rows have TMA's
// 128-byte swizzle.
inline constexpr int kPanelRowBytes = 128;
inline constexpr int kSwizzleAtom = 1024;  // eight such rows: alignment of tiles

// Returns the offset of 16 bytes of a row from the panel's begin.
__device__ inline uint32_t swizzled(int row, int piece) {
  return static_cast<uint32_t>(row * kPanelRowBytes + ((piece ^ (row & 7)) << 4));
}

// A row tile and a KV head, with all keys that its rows attend to or, if CTAs divide keys, a part of them.
struct alignas(16) PrefillWorkTile {
  RowTile tile;  // its keys are limited to those of this layer and of the part
  int32_t head;
  int32_t partial_idx;  // index of the partial result; -1: the result is final
  int32_t first_key;    // first key of the first KV tile
  int32_t num_tiles;    // -1: there are no more work tiles
  KeyRange full;        // keys of the tile that every row attends to
  int32_t num_rows;
  int32_t num_staged_rows;  // rows with results that TMA may store: all rows of a work tile with final
                            // results, else 0
};

// Results that a consumer stored in the memory of its queries.
struct alignas(16) StagedResults {
  int token, head;  // first token and first query head of the work tile
  int num_rows;     // rows of the work tile; 0: none of its results are in shared memory
};

// Largest number of rows of a work tile: three consumers have more than a row tile, unless CTAs divide keys.
template <class Tile>
__device__ __forceinline__ int max_work_tile_rows(const AttentionParams& params) {
  return Tile::kRows > kPrefillRows && divides_keys(params.plan) ? kPrefillRows : Tile::kRows;
}

// Plan that CTAs derive themselves, if they divide the keys of few rows.
template <class Tile>
using InlinePlan = CtaPlan<Tile::kThreads, true>;

// Returns the number of tokens of the batch from its plan, or from the plan that CTAs derive here. Called
// once, by all threads.
template <class Tile>
__device__ int num_planned_tokens(const AttentionParams& params) {
  if constexpr (Tile::kSupportsInlinePlan)
    if (params.plan.inline_plan)
      return InlinePlan<Tile>(params).start(static_cast<int>(blockIdx.x)).header.num_tokens;
  return params.plan.header->num_tokens;
}

// Returns the KV partition of a streamed plan, after num_planned_tokens().
template <class Tile>
__device__ KvPartition plan_partition(const AttentionParams& params) {
  if constexpr (Tile::kSupportsInlinePlan)
    if (params.plan.inline_plan) return InlinePlan<Tile>::derived_start().header.partition;
  return params.plan.header->partition;
}

// Returns the first column of the head dim that this CTA has: CTAs of a cluster divide the columns.
template <class Tile>
__device__ __forceinline__ int first_column_of_cta() {
  if constexpr (Tile::kCtasPerWorkTile == 1) return 0;
  return ptx::cluster_rank() * Tile::kHeadDimQk;
}
// Returns the index of the CTA, or of its cluster, among those that have work tiles of their own.
template <class Tile>
__device__ __forceinline__ int plan_cta() {
  return Tile::kCtasPerWorkTile == 1 ? static_cast<int>(blockIdx.x) : ptx::cluster_id();
}

// Iterates over the work tiles of a CTA, in the order of the plan, heads fastest. The first work tile of a
// CTA has the CTA's index. After it has published a work tile, a CTA takes the next one from an atomic
// counter. CTAs of a cluster, which must have the same work tiles, take them in rounds instead, of which
// every other one runs backward: work tiles of a request are in descending order of keys. The assignment of
// work tiles to CTAs changes no bit. If CTAs divide keys, a CTA has the work tiles of its range. Used by one
// thread.
template <class Tile>
class PrefillWalk {
 public:
  __device__ explicit PrefillWalk(const PrefillParams& params)
      : params_(params.attention),
        progress_(params.progress),
        divides_keys_(divides_keys(params_.plan)),
        stores_boxes_(params.stores_boxes) {}

  __device__ void begin() {
    const PlanView& plan = params_.plan;
    const int cta = plan_cta<Tile>();
    if constexpr (Tile::kSupportsInlinePlan)
      if (plan.inline_plan) return begin_at(InlinePlan<Tile>::derived_start());
    const PlanHeader header = *plan.header;
    if (divides_keys_) {
      // All loads are issued at once; CTAs past the partition's end have no start.
      PlanStart start{header, plan.cta_starts[cta]};
      if (cta / plan.heads_per_round * header.partition.cta_range >= header.num_partition_units)
        start.cta.length = 0;
      begin_at(start);
    } else {
      work_tile_idx_ = cta;
      num_work_tiles_ = header.num_row_tiles * params_.num_kv_heads;
    }
  }

  // Called after begin() and advance(), before the other functions.
  __device__ void find() {
    if (divides_keys_) return;
    for (; work_tile_idx_ < num_work_tiles_; advance()) {
      tile_ = params_.plan.row_tiles[work_tile_idx_ / params_.num_kv_heads];
      if (begins_work_tile()) break;
    }
    head_ = work_tile_idx_ % params_.num_kv_heads;
  }
  __device__ bool has_ended() const { return divides_keys_ ? left_ <= 0 : work_tile_idx_ >= num_work_tiles_; }

  // Returns the descales of the next work tile; 1 if there is none.
  __device__ HeadDescales descales() const {
    if (has_ended()) return {1.0f, 1.0f};
    return load_descales(params_, tile_.request, head_);
  }

  __device__ void write(PrefillWorkTile& work_tile) {
    PrefillWorkTile next = make_work_tile();
    if (divides_keys_) {
      const KvTileRange part = range_at<false>(params_.plan, plan_cta<Tile>(), next.tile, head_, first_,
                                               min(next.tile.num_kv_tiles - first_, left_));
      left_ -= part.count;
      next.partial_idx = part.partial_idx;
      const int part_begin = (next.tile.first_kv_tile + part.first) * kKeyTile;
      next.tile.kv_begin = max(next.tile.kv_begin, part_begin);
      next.tile.kv_end = max(next.tile.kv_begin, min(next.tile.kv_end, part_begin + part.count * kKeyTile));
      next.full = {max(next.full.begin, next.tile.kv_begin), min(next.full.end, next.tile.kv_end)};
    }
    next.first_key = next.tile.kv_begin / Tile::kMaxBoxRows * Tile::kMaxBoxRows;
    if (next.tile.kv_begin < next.tile.kv_end)
      next.num_tiles = (next.tile.kv_end - next.first_key + Tile::kKeys - 1) / Tile::kKeys;
    if (stores_boxes_ && next.partial_idx < 0) next.num_staged_rows = next.num_rows;
    work_tile = next;
  }

  __device__ void advance() {
    if (!divides_keys_) {
      if constexpr (Tile::kCtasPerWorkTile > 1)
        work_tile_idx_ =
            next_row_tile<true>(work_tile_idx_, static_cast<int>(gridDim.x) / Tile::kCtasPerWorkTile);
      else
        work_tile_idx_ = static_cast<int>(gridDim.x) + atomicAdd(progress_, 1);
      return;
    }
    left_ -= gap_;
    first_ = 0;
    head_ += params_.plan.heads_per_round;
    if (head_ < params_.num_kv_heads) return;
    head_ -= params_.num_kv_heads;
    if (left_ > 0) tile_ = tile_after();
  }

  // The last CTA to end resets the counters.
  __device__ void end() const {
    if constexpr (Tile::kCtasPerWorkTile > 1) return;
    if (divides_keys_ || atomicAdd(progress_ + 1, 1) + 1 < static_cast<int>(gridDim.x)) return;
    progress_[0] = 0;
    progress_[1] = 0;
  }

 private:
  __device__ void begin_at(const PlanStart& start) {
    tile_ = start.cta.tile;
    head_ = start.cta.head;
    first_ = start.cta.first;
    left_ = start.cta.length;
    gap_ = start.header.partition.gap;
  }
  __device__ RowTile tile_after() const {
    if constexpr (Tile::kSupportsInlinePlan)
      if (params_.plan.inline_plan) return InlinePlan<Tile>(params_).tile_after(tile_);
    return params_.plan.row_tiles[tile_.index + 1];
  }

  // Row tiles of the plan may be lower than a work tile: most row tiles after the first then belong to the
  // same work tile. If a work tile begins within a row tile, the row tile is cut to begin there.
  __device__ bool begins_work_tile() {
    if constexpr (Tile::kRows <= kPrefillRows) return tile_.row_begin % Tile::kRows == 0;
    const int row = (tile_.row_begin + Tile::kRows - 1) / Tile::kRows * Tile::kRows;
    if (row >= tile_.row_begin + params_.plan.tile_rows || row >= tile_.seqlen_q * params_.group)
      return false;
    tile_.row_begin = row;
    tile_.first_query =
        params_.group == 1 ? row
                           : static_cast<int>(__umulhi(static_cast<uint32_t>(row), params_.group_reciprocal));
    return true;
  }

  // Returns the work tile with all keys of the row tile.
  __device__ PrefillWorkTile make_work_tile() const {
    const BatchParams& batch = params_.batch;
    PrefillWorkTile work_tile{};
    work_tile.head = head_;
    work_tile.partial_idx = -1;
    work_tile.tile = tile_;
    const WorkTileRows rows(params_, work_tile.tile, work_tile.head, max_work_tile_rows<Tile>(params_));
    work_tile.num_rows = rows.num_rows;
    const int j_first = rows.first_query, j_last = rows.at(params_, rows.num_rows - 1).query;
    // The plan may be that of a layer without a window, and its row tiles may be lower.
    const UnmaskedRange first_range = unmasked_range(batch, rows.span,
                                                     query_position<false>(batch, rows.span, j_first)),
                        last_range =
                            unmasked_range(batch, rows.span, query_position<false>(batch, rows.span, j_last));
    work_tile.tile.kv_begin = first_range.lo;
    work_tile.tile.kv_end = max(first_range.lo, last_range.hi + 1);
    work_tile.full = {last_range.lo, first_range.hi + 1};
    return work_tile;
  }

  const AttentionParams& params_;
  int32_t* const progress_;
  const bool divides_keys_, stores_boxes_;
  RowTile tile_{};
  int head_ = 0;
  // If keys are divided: the CTA's first KV tile of the row tile, and the rest of its range.
  int first_ = 0, left_ = 0, gap_ = 0;
  // Otherwise.
  int work_tile_idx_ = 0, num_work_tiles_ = 0;
};

// Producer warps of prefill on sm_90a that load queries, keys and values to shared memory. Those for queries
// also schedule and issue TMA stores of results.

// Called by all lanes of a warp: one arrival, after their cp.async have completed.
__device__ inline void arrive_after_cp_async(uint32_t barrier) {
  ptx::cp_async_mbarrier_arrive(barrier);
  __syncwarp();
  if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(barrier);
}

// Scheduler, and producer of the queries. Also stores results from the memory of the queries.
template <class Tile, class Shared>
class PrefillScheduler {
  static constexpr int kElementBytes = Tile::kElementBytes;
  static constexpr int kPanelColumns = kPanelRowBytes / kElementBytes, kPieceColumns = 16 / kElementBytes;
  // The warp loads queries of one consumer only.
  static constexpr bool kHasOneConsumer = Tile::kConsumers == 2 && !Tile::kSeparateQueryWarp;
  // With several consumers, the warp has few registers.
  static constexpr int kRowsUnderWay = kHasOneConsumer || Tile::kConsumers == 1 ? 2 : 1;

 public:
  // `warp`: index below `num_warps` (1 or 2). It loads the queries of consumers `warp`, `warp` + `num_warps`,
  // ... Warp 0 schedules.
  __device__ PrefillScheduler(const PrefillParams& params, const Shared& shared, int warp, int num_warps)
      : params_(params), shared_(shared), warp_(warp), num_warps_(num_warps) {}

  __device__ void run() {
    PrefillWalk<Tile> walk(params_);
    const bool schedules = warp_ == 0 && lane_ == 0;
    if (schedules) walk.begin();
    if constexpr (Tile::kStoresOutWithTma) {
      if (lane_ == 0)
        for (int stage = 0; stage < Tile::kQueryStages; ++stage) staged(stage).num_rows = 0;
    }
    PackedPipelineState<Tile::kWorkTileStages> state;
    for (;; state.advance()) {
      if (schedules) {
        walk.find();
        // Loaded before the wait, so that the latencies overlap.
        [[maybe_unused]] HeadDescales descales;
        if constexpr (Tile::kHasHeadDescales) descales = walk.descales();
        ptx::mbarrier_wait(shared_.work_tile_empty(state.stage()), state.parity() ^ 1);
        const bool has_ended = walk.has_ended();
        if (has_ended)
          shared_.work_tile(state.stage()).num_tiles = -1;
        else
          walk.write(shared_.work_tile(state.stage()));
        if constexpr (Tile::kHasHeadDescales) shared_.descales(state.stage()) = descales;
        ptx::mbarrier_arrive(shared_.work_tile_full(state.stage()));
        if (has_ended)
          walk.end();
        else
          walk.advance();
      }
      // Without this, lanes that did not schedule run ahead and the following code executes twice.
      __syncwarp();
      ptx::mbarrier_wait(shared_.work_tile_full(state.stage()), state.parity());
      const PrefillWorkTile& work_tile = shared_.work_tile(state.stage());
      if (work_tile.num_tiles < 0) break;
      const Queries queries = state.template with_stages<Tile::kQueryStages>();
      // Read before the queries have landed: after that, consumers may release the work tile.
      [[maybe_unused]] StagedResults results;
      if constexpr (Tile::kStoresOutWithTma) results = staged_results(work_tile);
      for_consumers([&](int consumer) {
        wait_for_queries_empty(queries, consumer);
        load(work_tile, queries.stage(), consumer);
      });
      if constexpr (Tile::kStoresOutWithTma) {
        if (lane_ == 0) staged(queries.stage()) = results;
      }
    }
    if constexpr (Tile::kStoresOutWithTma) {
      for (int i = 0; i < Tile::kQueryStages; ++i, state.advance())
        for_consumers([&](int consumer) {
          wait_for_queries_empty(state.template with_stages<Tile::kQueryStages>(), consumer);
        });
    }
  }

 private:
  using Queries = PackedPipelineState<Tile::kQueryStages>;

  // Calls `act` for each consumer with queries that this warp loads.
  template <class Do>
  __device__ __forceinline__ void for_consumers(const Do& act) const {
    if constexpr (kHasOneConsumer) {
      act(warp_);
    } else {
#pragma unroll 1
      for (int consumer = warp_; consumer < Tile::kConsumers; consumer += num_warps_) act(consumer);
    }
  }

  __device__ __forceinline__ StagedResults& staged(int stage) const { return shared_.staged(warp_, stage); }
  __device__ __forceinline__ StagedResults staged_results(const PrefillWorkTile& work_tile) const {
    return {work_tile.tile.first_token + work_tile.tile.first_query, work_tile.head * params_.attention.group,
            work_tile.num_staged_rows};
  }

  // Waits until a consumer has released a stage of queries and TMA has read the results in it.
  __device__ __forceinline__ void wait_for_queries_empty(const Queries& at, int consumer) const {
    ptx::mbarrier_wait(shared_.queries_empty(at.stage(), consumer), at.parity() ^ 1);
    if constexpr (Tile::kStoresOutWithTma) {
      if (lane_ > 0) return;
      const StagedResults& results = staged(at.stage());
      const int first_row = consumer * Tile::kConsumerRows;
      if (results.num_rows < first_row + Tile::kConsumerRows) return;
#pragma unroll
      for (int panel = 0; panel < Tile::kVPanels; ++panel)
        ptx::cp_async_bulk_tensor_store(
            &params_.out, panel * kPanelColumns, results.head, results.token + consumer * params_.box_tokens,
            shared_.queries(at.stage()) + panel * Tile::kQueryPanelBytes + first_row * kPanelRowBytes);
      ptx::cp_async_bulk_commit_group();
      ptx::cp_async_bulk_wait_until_read();
    }
  }

  // Loads the queries of a consumer.
  __device__ __forceinline__ void load(const PrefillWorkTile& work_tile, int stage, int consumer) const {
    const uint32_t full = shared_.queries_full(stage, consumer);
    if (params_.box_tokens > 0) {
      if (lane_ == 0) copy_box(work_tile, shared_.queries(stage), full, consumer);
    } else {
      copy_queries(work_tile, shared_.queries(stage), consumer);
      arrive_after_cp_async(full);
    }
  }

  // Called by one lane, with TMA. Rows past the request's are those of the next request, or zero.
  __device__ void copy_box(const PrefillWorkTile& work_tile, uint32_t queries, uint32_t full,
                           int consumer) const {
    const int first_row = consumer * Tile::kConsumerRows;
    const int token = work_tile.tile.first_token + work_tile.tile.first_query + consumer * params_.box_tokens;
    ptx::mbarrier_arrive_expect_tx(full, Tile::kQkPanels * Tile::kConsumerRows * kPanelRowBytes);
#pragma unroll
    for (int panel = 0; panel < Tile::kQkPanels; ++panel)
      ptx::cp_async_bulk_tensor(queries + panel * Tile::kQueryPanelBytes + first_row * kPanelRowBytes,
                                &params_.q, first_column_of_cta<Tile>() + panel * kPanelColumns,
                                work_tile.head * params_.attention.group, token, full,
                                ptx::createpolicy_evict_first());
  }

  // Rows past the request's are zero. Eight neighboring threads copy 128 bytes of a row.
  __device__ void copy_queries(const PrefillWorkTile& work_tile, uint32_t queries, int consumer) const {
    const AttentionParams& params = params_.attention;
    const WorkTileRows rows(params, work_tile.tile, work_tile.head, max_work_tile_rows<Tile>(params));
    const char* q = static_cast<const char*>(params.q.data);
    const int piece = lane_ % 8;
#pragma unroll kRowsUnderWay
    for (int row = lane_ / 8; row < Tile::kConsumerRows; row += 32 / 8) {
      const int tile_row = consumer * Tile::kConsumerRows + row;
      const char* from = q + kElementBytes * rows.offset_in(params.q, rows.at(params, tile_row));
#pragma unroll
      for (int panel = 0; panel < Tile::kQkPanels; ++panel) {
        const int column = first_column_of_cta<Tile>() + panel * kPanelColumns + piece * kPieceColumns;
        const bool valid = tile_row < rows.num_rows && column < params.head_dim_qk;
        ptx::cp_async_16(queries + panel * Tile::kQueryPanelBytes + swizzled(tile_row, piece),
                         valid ? from + kElementBytes * column : q, valid);
      }
    }
  }

  const PrefillParams& params_;
  const Shared& shared_;
  const int warp_, num_warps_;
  const int lane_ = static_cast<int>(threadIdx.x) % 32;
};

// Producer of K, or of V. Values that are multiplied by P = 0 must not be infinite or NaN, so rows of V
// outside of the request's keys become zero. Rows of K there may have any content, since their scores are
// masked.
template <class Tile, class Shared, bool kValues>
class PrefillProducer {
  static constexpr int kElementBytes = Tile::kElementBytes;
  static constexpr int kPanelColumns = kPanelRowBytes / kElementBytes, kPieceColumns = 16 / kElementBytes;
  static constexpr int kPanels = kValues ? Tile::kVPanels : Tile::kQkPanels;
  static constexpr bool kZeroesRows = kValues && Tile::kProducerZeroesValues;
  static constexpr int kKeys = Tile::kKeys, kStages = kValues ? Tile::kStages : Tile::kKeyStages;
  // 16-bit tiles: rows are loaded by other warps (prefill_tile.cuh), or not supported by the kernel.
  static constexpr bool kRowWarpsLoad = Tile::kElementBytes == 2;
  // Eight lanes copy 128 bytes of a row.
  static constexpr int kRowsAtOnce = 4, kRowsPerLane = kKeys / 32;

 public:
  __device__ PrefillProducer(const PrefillParams& params, const Shared& shared)
      : params_(params),
        rows_(kValues ? params.attention.v : params.attention.k),
        head_dim_(kValues ? params.attention.head_dim_v : params.attention.head_dim_qk),
        shared_(shared) {}

  // Called by one warp: loads for all work tiles.
  __device__ void run() {
    for (PipelineState state;; state.advance(Tile::kWorkTileStages)) {
      ptx::mbarrier_wait(shared_.work_tile_full(state.stage), state.parity);
      const PrefillWorkTile& work_tile = shared_.work_tile(state.stage);
      if (work_tile.num_tiles < 0) return;
      if (kRowWarpsLoad || params_.box_rows > 0)
        load_boxes(work_tile);
      else
        load_rows(work_tile);
      __syncwarp();
      if (lane_ == 0) ptx::mbarrier_arrive(shared_.work_tile_empty(state.stage));
    }
  }

 private:
  __device__ uint32_t full() const {
    return kValues ? shared_.values_full(state_.stage) : shared_.keys_full(state_.stage);
  }
  // Barrier of boxes that land in a tile with rows that become zero afterwards.
  __device__ uint32_t landed() const {
    if constexpr (kZeroesRows)
      return shared_.values_copied();
    else
      return full();
  }
  __device__ uint32_t tile() const {
    return kValues ? shared_.values(state_.stage) : shared_.keys(state_.stage);
  }
  __device__ void wait_for_empty_stage() const {
    ptx::mbarrier_wait(kValues ? shared_.values_empty(state_.stage) : shared_.keys_empty(state_.stage),
                       state_.parity ^ 1);
  }

  // Loads with TMA: each of the first lanes copies the rows of a box. Pages are looked up one KV tile ahead.
  // Boxes of V are loaded whole, then rows outside of the request's keys become zero.
  __device__ void load_boxes(const PrefillWorkTile& work_tile) {
    constexpr int kKeysPerTile = kKeys * Tile::kPartsPerTile;
    const int box_rows = params_.box_rows, first_row = lane_ * box_rows;
    const int page_mask = params_.attention.index.page_size - 1;
    const bool contiguous = params_.attention.index.kind == KvIndexKind::kContiguous;
    const int begin = work_tile.tile.kv_begin, end = work_tile.tile.kv_end, num_tiles = work_tile.num_tiles,
              head = work_tile.head;
    // Values of the request's later keys are finite, so they may be multiplied by P = 0.
    const int request_end = work_tile.tile.seqlen_kv;
    const auto look_up = [&](int first_key) {
      const int position = first_key + first_row;
      if (first_row >= kKeysPerTile || position >= end || position + box_rows <= begin) return -1;
      // A box may begin before the first key, where page indices are undefined.
      return find_page(params_.attention.index, work_tile.tile.request,
                       contiguous ? position : max(position, begin));
    };
    int first_key = work_tile.first_key, next_page = look_up(first_key);
    for (int i = 0; i < num_tiles; ++i) {
      const int page = next_page, position = first_key + first_row;
      if (i + 1 < num_tiles) next_page = look_up(first_key + kKeysPerTile);
#pragma unroll 1
      for (int part = 0; part < Tile::kPartsPerTile; ++part, first_key += kKeys) {
        const int row = first_row - part * kKeys;  // row within the part
        const bool copies = page >= 0 && (Tile::kPartsPerTile == 1 || (row >= 0 && row < kKeys));
        const uint32_t boxes = __ballot_sync(0xffffffffu, copies);
        // Valid rows exclude those before the work tile's keys, past the request's keys, and in no box.
        const int first_valid = begin - first_key;
        const int num_valid =
            max(min(request_end - first_key, (end - first_key + box_rows - 1) / box_rows * box_rows), 0);
        const bool zeroes = kZeroesRows && (first_valid > 0 || num_valid < kKeys);
        wait_for_empty_stage();
        const uint32_t landed = zeroes ? this->landed() : full();
        if (lane_ == 0)
          ptx::mbarrier_arrive_expect_tx(landed, kPanels * __popc(boxes) * box_rows * kPanelRowBytes);
        __syncwarp();
        if (copies) {
#pragma unroll
          for (int panel = 0; panel < kPanels; ++panel)
            ptx::cp_async_bulk_tensor(tile() + panel * Tile::kKeyPanelBytes + row * kPanelRowBytes,
                                      kValues ? &params_.v : &params_.k,
                                      first_column_of_cta<Tile>() + panel * kPanelColumns, head,
                                      position & page_mask, page, landed, policy_);
        }
        if (zeroes) {
          ptx::mbarrier_wait(landed, copied_parity_);
          copied_parity_ ^= 1;
          zero_rows(0, first_valid);
          zero_rows(num_valid, kKeys);
          ptx::fence_proxy_async();
          __syncwarp();
          if (lane_ == 0) ptx::mbarrier_arrive(full());
        }
        state_.advance(kStages);
      }
    }
  }

  // Writes zeros to rows `begin` to `end` of the tile; the range may be empty.
  __device__ void zero_rows(int begin, int end) const {
    for (int row = begin + lane_ / 8; row < end; row += kRowsAtOnce)
#pragma unroll
      for (int panel = 0; panel < kPanels; ++panel)
        ptx::st_shared_16(tile() + panel * Tile::kKeyPanelBytes + swizzled(row, lane_ % 8), uint4{});
  }

  // Loads with cp.async: every lane looks up the pages of kRowsPerLane rows.
  __device__ void load_rows(const PrefillWorkTile& work_tile) {
    const int num_tiles = work_tile.num_tiles * Tile::kPartsPerTile, head = work_tile.head;
    int first_key = work_tile.first_key, next_pages[kRowsPerLane];
    const auto look_up = [&](int first) {
#pragma unroll
      for (int r = 0; r < kRowsPerLane; ++r) {
        const int position = first + r * 32 + lane_;
        const bool needed = position >= work_tile.tile.kv_begin && position < work_tile.tile.kv_end;
        next_pages[r] = needed ? find_page(params_.attention.index, work_tile.tile.request, position) : -1;
      }
    };
    look_up(first_key);
    for (int i = 0; i < num_tiles; ++i, first_key += kKeys) {
      uint64_t addresses[kRowsPerLane];
#pragma unroll
      for (int r = 0; r < kRowsPerLane; ++r)
        addresses[r] = next_pages[r] < 0 ? 0 : row_address(next_pages[r], first_key + r * 32 + lane_, head);
      if (i + 1 < num_tiles) look_up(first_key + kKeys);
      wait_for_empty_stage();
#pragma unroll
      for (int r = 0; r < kRowsPerLane; ++r)
#pragma unroll 2
        for (int first = 0; first < 32; first += kRowsAtOnce) {
          const int row_lane = first + lane_ / 8;
          load_row(r * 32 + row_lane, __shfl_sync(0xffffffffu, addresses[r], row_lane));
        }
      arrive_after_cp_async(full());
      state_.advance(kStages);
    }
  }

  // Returns the global address of a position's row.
  __device__ uint64_t row_address(int page, int position, int head) const {
    const int in_page = position & (params_.attention.index.page_size - 1);
    // Tiled kernels support only 32-bit strides.
    int64_t offset = ptx::mad_wide(page, static_cast<int32_t>(rows_.page_stride), 0);
    offset = ptx::mad_wide(in_page, static_cast<int32_t>(rows_.token_stride), offset);
    offset = ptx::mad_wide(head, static_cast<int32_t>(rows_.head_stride), offset);
    return reinterpret_cast<uint64_t>(rows_.data) + static_cast<uint64_t>(kElementBytes * offset);
  }

  // Copies this lane's 16 bytes of every panel of a row of the tile; zeros if the address is 0.
  __device__ void load_row(int row, uint64_t address) const {
#pragma unroll
    for (int panel = 0; panel < kPanels; ++panel) {
      const int column = panel * kPanelColumns + lane_ % 8 * kPieceColumns;
      const bool valid = address != 0 && column < head_dim_;
      ptx::cp_async_16(tile() + panel * Tile::kKeyPanelBytes + swizzled(row, lane_ % 8),
                       valid ? reinterpret_cast<const char*>(address) + kElementBytes * column : rows_.data,
                       valid);
    }
  }

  const PrefillParams& params_;
  const PagedRows& rows_;
  const int head_dim_;
  const Shared& shared_;
  const int lane_ = static_cast<int>(threadIdx.x) % 32;
  // Other row tiles read K/V again, except in verify.
  const uint64_t policy_ = Tile::kVerifies ? ptx::createpolicy_evict_first() : ptx::createpolicy_evict_last();
  PipelineState state_;
  uint32_t copied_parity_ = 0;
};

}  // namespace attend::kernels::cuda::sm90
