// Attention of many rows on sm_90a, with TMA and wgmma: query rows of one request and KV head (GQA heads
// packed with query tokens) against KV tiles. Warp-specialised and persistent: two consumer warpgroups take
// turns at the tensor cores, so that the softmax of one runs beside the wgmma of the other (ping-pong), and
// each issues QK^T of its next KV tile before the softmax of the present one has ended. fp8 K/V are converted
// to the 16-bit type of q on their way.
//
//   tile        128 rows x 128 keys (96 at head dim 192, 64 at 256); head dims 64/64, 128/128, 192/128,
//               256/256
//   warps       2 consumer warpgroups of 64 rows each: QK^T and PV by wgmma m64n(keys)k16 and
//               m64n(head_dim_v)k16, P in registers. A producer warpgroup: a warp for K and one for V, by TMA
//               where pages have 8 rows or more, else by cp.async, and a warp for each consumer's queries,
//               one of which schedules. fp8: two producer warpgroups, two warps each for K and V
//   registers   216 a consumer thread, 72 a producer thread (setmaxnreg); fp8: 200 and 56. Launched with 168
//               (fp8: 128)
//   shared      96 KB at head dims 64, 192 KB at 128, 216 KB at 192/128, 192 KB at 256; fp8: 112 KB and 224
//               KB. Two work tiles with their queries (one at 256 and for fp8), two stages of K and two of V,
//               two of fp8 bytes
//   bytes       of a KV tile: 32 KB at head dims 64, 64 KB at 128, 60 KB at 192/128, 64 KB at 256; half of it
//               from memory in fp8
//   bound       tensor cores, and the softmax's exponentials
#pragma once

#include <type_traits>

#include "attend/kernels/attention/cuda/common/fp8_convert.cuh"
#include "attend/kernels/attention/cuda/common/padding.cuh"
#include "attend/kernels/attention/cuda/common/plan_walk.cuh"
#include "attend/kernels/attention/cuda/common/row_state.cuh"
#include "attend/kernels/attention/cuda/common/warp_rows.cuh"
#include "attend/kernels/attention/cuda/common/work_tile_rows.cuh"
#include "attend/kernels/attention/cuda/sm90/prefill_kernel.h"
#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/common/cuda/ptx/copy.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/common/cuda/ptx/integer.cuh"
#include "attend/kernels/common/cuda/ptx/mbarrier.cuh"
#include "attend/kernels/common/cuda/ptx/tensor_copy.cuh"
#include "attend/kernels/common/cuda/ptx/thread.cuh"
#include "attend/kernels/common/cuda/ptx/warpgroup.cuh"
#include "attend/kernels/common/cuda/ptx/wgmma.cuh"
#include "attend/kernels/common/cuda/sm90/pipeline_state.cuh"
#include "attend_generated/wgmma_products.cuh"

namespace attend::kernels::cuda::sm90 {

// A tile of rows of 16-bit elements lies in panels of 64 columns, one after another; the rows of a panel, 128
// bytes each, are in TMA's 128-byte swizzle.
inline constexpr int kPanelColumns = 64, kPanelRowBytes = 128;
inline constexpr int kSwizzleAtom = 1024;  // eight such rows: what tiles are aligned to

// The tile's shape, warps and registers. `kConverts`: K/V of fp8.
template <int kHeadDimQk, int kHeadDimV, bool kConverts>
struct PrefillTile {
  static constexpr int kRows = kPrefillRows;
  static constexpr int kKeys = prefill_keys(kHeadDimQk);
  static constexpr int kMaxBoxRows = max_box_rows(kHeadDimQk);
  static constexpr int kStages = 2;  // of keys, and of values
  // One work tile is computed, K and queries of the next are loaded. Taking more of them ahead would
  // unbalance the CTAs at the end.
  static constexpr int kWorkTileStages = 2;
  // Queries are read until the last QK^T. Where two do not fit, those of the next work tile are loaded during
  // the epilogue of the present one.
  static constexpr int kQueryStages = kHeadDimQk > 192 || kConverts ? 1 : 2;
  static constexpr int kQkPanels = kHeadDimQk / kPanelColumns, kVPanels = kHeadDimV / kPanelColumns;

  static constexpr int kQueryPanelBytes = kRows * kPanelRowBytes;
  static constexpr int kKeyPanelBytes = kKeys * kPanelRowBytes;
  static constexpr int kQueryBytes = kQkPanels * kQueryPanelBytes;
  static constexpr int kKeyBytes = kQkPanels * kKeyPanelBytes;
  static constexpr int kValueBytes = kVPanels * kKeyPanelBytes;
  // fp8 bytes: one tile is converted, the next is loaded.
  static constexpr int kFp8Stages = kConverts ? 2 : 0;
  static constexpr int kFp8KeyBytes = kKeyBytes / 2, kFp8ValueBytes = kValueBytes / 2;

  // Warps by role. Each consumer warpgroup has a warp that loads its queries.
  static constexpr int kConsumers = 2, kConsumerWarps = 4 * kConsumers;
  static constexpr int kConsumerRows = kRows / kConsumers;
  static constexpr int kWarpsOfOperand = kConverts ? 2 : 1;  // of keys, and of values
  static constexpr int kLoadWarps = 2 * kWarpsOfOperand;
  static constexpr int kProducerWarps = (kLoadWarps + kConsumers + 3) / 4 * 4;  // whole warpgroups
  static constexpr int kThreads = 32 * (kProducerWarps + kConsumerWarps);

  // setmaxnreg redistributes what the CTA was launched with, a multiple of 8 a thread: of 64 K some may stay
  // unused, and a warpgroup that asked for them would wait for ever.
  static constexpr int kProducerRegisters = kConverts ? 56 : 72, kConsumerRegisters = kConverts ? 200 : 216;
  static_assert(32 * (kProducerWarps * kProducerRegisters + kConsumerWarps * kConsumerRegisters) <=
                65536 / kThreads / 8 * 8 * kThreads);
  static_assert(kHeadDimV <= kHeadDimQk && kKeys % kMaxBoxRows == 0);
};

// Where 16 bytes of a row of a panel lie, from the panel's begin.
__device__ inline uint32_t swizzled(int row, int piece) {
  return static_cast<uint32_t>(row * kPanelRowBytes + ((piece ^ (row & 7)) << 4));
}

// A row tile and a KV head, with all keys that they see or, where CTAs divide keys, a part of them.
struct alignas(16) PrefillWorkTile {
  RowTile tile;  // whose keys are narrowed to those of this layer and of the part
  int32_t head;
  int32_t partial_idx;  // of the partial result; -1: the result is final
  int32_t first_key;    // of the first key tile
  int32_t num_tiles;    // -1: there are no more work tiles
  KeyRange full;        // keys that every row sees, of those
};

template <class Tile>
struct PrefillShared {
  static constexpr int kQueriesAt = 0;
  static constexpr int kKeysAt = kQueriesAt + Tile::kQueryStages * Tile::kQueryBytes;
  static constexpr int kValuesAt = kKeysAt + Tile::kStages * Tile::kKeyBytes;
  static constexpr int kFp8KeysAt = kValuesAt + Tile::kStages * Tile::kValueBytes;
  static constexpr int kFp8ValuesAt = kFp8KeysAt + Tile::kFp8Stages * Tile::kFp8KeyBytes;
  static constexpr int kWorkTilesAt = kFp8ValuesAt + Tile::kFp8Stages * Tile::kFp8ValueBytes;
  static constexpr int kBarriersAt =
      kWorkTilesAt + Tile::kWorkTileStages * static_cast<int>(sizeof(PrefillWorkTile));
  static constexpr int kNumQueryBarriers = Tile::kQueryStages * Tile::kConsumers;
  static constexpr int kNumBarriers = 2 * Tile::kWorkTileStages + 2 * kNumQueryBarriers + 4 * Tile::kStages;
  static constexpr int kBytes = kBarriersAt + 8 * kNumBarriers;

  char* base;
  uint32_t shared;  // its address in the shared window

  __device__ explicit PrefillShared(char* memory) : base(memory), shared(ptx::shared_address(memory)) {}

  __device__ uint32_t queries(int stage) const { return shared + kQueriesAt + stage * Tile::kQueryBytes; }
  __device__ uint32_t keys(int stage) const { return shared + kKeysAt + stage * Tile::kKeyBytes; }
  __device__ uint32_t values(int stage) const { return shared + kValuesAt + stage * Tile::kValueBytes; }
  __device__ uint32_t fp8_keys(int stage) const { return shared + kFp8KeysAt + stage * Tile::kFp8KeyBytes; }
  __device__ uint32_t fp8_values(int stage) const {
    return shared + kFp8ValuesAt + stage * Tile::kFp8ValueBytes;
  }
  __device__ PrefillWorkTile& work_tile(int stage) const {
    return reinterpret_cast<PrefillWorkTile*>(base + kWorkTilesAt)[stage];
  }

  __device__ uint32_t barrier(int i) const { return shared + kBarriersAt + 8 * i; }
  // The work tile is written; all warps are done with it.
  __device__ uint32_t work_tile_full(int stage) const { return barrier(stage); }
  __device__ uint32_t work_tile_empty(int stage) const { return barrier(Tile::kWorkTileStages + stage); }
  // Of a consumer's queries.
  __device__ uint32_t queries_full(int stage, int consumer) const {
    return barrier(2 * Tile::kWorkTileStages + stage * Tile::kConsumers + consumer);
  }
  __device__ uint32_t queries_empty(int stage, int consumer) const {
    return queries_full(stage, consumer) + 8 * kNumQueryBarriers;
  }
  __device__ uint32_t keys_full(int stage) const {
    return barrier(2 * Tile::kWorkTileStages + 2 * kNumQueryBarriers + stage);
  }
  __device__ uint32_t keys_empty(int stage) const { return keys_full(Tile::kStages + stage); }
  __device__ uint32_t values_full(int stage) const { return keys_full(2 * Tile::kStages + stage); }
  __device__ uint32_t values_empty(int stage) const { return keys_full(3 * Tile::kStages + stage); }

  // By one thread.
  __device__ void init_barriers() const {
    for (int stage = 0; stage < Tile::kWorkTileStages; ++stage) {
      ptx::mbarrier_init(work_tile_full(stage), 1);
      ptx::mbarrier_init(work_tile_empty(stage), Tile::kConsumerWarps + Tile::kLoadWarps);
    }
    for (int stage = 0; stage < Tile::kQueryStages; ++stage)
      for (int consumer = 0; consumer < Tile::kConsumers; ++consumer) {
        ptx::mbarrier_init(queries_full(stage, consumer), 1);
        ptx::mbarrier_init(queries_empty(stage, consumer), Tile::kConsumerWarps / Tile::kConsumers);
      }
    for (int stage = 0; stage < Tile::kStages; ++stage) {
      ptx::mbarrier_init(keys_full(stage), Tile::kWarpsOfOperand);
      ptx::mbarrier_init(values_full(stage), Tile::kWarpsOfOperand);
      ptx::mbarrier_init(keys_empty(stage), Tile::kConsumerWarps);
      ptx::mbarrier_init(values_empty(stage), Tile::kConsumerWarps);
    }
    ptx::fence_mbarrier_init();
  }
};

// By all lanes of a warp: one arrival, once their cp.async have landed.
__device__ inline void arrive_after_cp_async(uint32_t barrier) {
  ptx::cp_async_mbarrier_arrive(barrier);
  __syncwarp();
  if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(barrier);
}

// The work tiles of a CTA, one after another. They are taken in the order of the plan, heads fastest: the
// first of every CTA is that of its index, and each CTA takes another as soon as it has published the one
// before (an atomic counter). Who computes a work tile changes no bit. Where CTAs divide keys, they are those
// of the CTA's range. By one thread.
template <class Tile>
class PrefillWalk {
 public:
  __device__ explicit PrefillWalk(const PrefillParams& params)
      : params_(params.attention), progress_(params.progress), divides_keys_(divides_keys(params_.plan)) {}

  __device__ void begin() {
    const PlanView& plan = params_.plan;
    const int cta = static_cast<int>(blockIdx.x);
    const PlanHeader header = *plan.header;
    if (divides_keys_) {
      // All loads at once; there is no start behind the line.
      const CtaStart start = plan.cta_starts[cta];
      row_tile_ = start.tile.index;
      head_ = start.head;
      first_ = start.first;
      gap_ = header.line.gap;
      if (cta / plan.heads_at_once * header.line.cta_range < header.line_length) left_ = start.length;
    } else {
      work_tile_idx_ = cta;
      num_work_tiles_ = header.num_row_tiles * params_.num_kv_heads;
    }
  }

  // After begin() and advance(), before the others.
  __device__ void find() {
    if (divides_keys_) return;
    while (work_tile_idx_ < num_work_tiles_ && !begins_work_tile()) advance();
    row_tile_ = work_tile_idx_ / params_.num_kv_heads;
    head_ = work_tile_idx_ % params_.num_kv_heads;
  }
  __device__ bool has_ended() const { return divides_keys_ ? left_ <= 0 : work_tile_idx_ >= num_work_tiles_; }

  __device__ void write(PrefillWorkTile& work_tile) {
    PrefillWorkTile made = make_work_tile();
    if (divides_keys_) {
      const sm80::KvTileRange part = sm80::range_at<false>(params_.plan, made.tile, head_, first_,
                                                           min(made.tile.num_kv_tiles - first_, left_));
      left_ -= part.count;
      made.partial_idx = part.partial_idx;
      const int part_begin = (made.tile.first_kv_tile + part.first) * kKeyTile;
      made.tile.kv_begin = max(made.tile.kv_begin, part_begin);
      made.tile.kv_end = max(made.tile.kv_begin, min(made.tile.kv_end, part_begin + part.count * kKeyTile));
      made.full = {max(made.full.begin, made.tile.kv_begin), min(made.full.end, made.tile.kv_end)};
    }
    made.first_key = made.tile.kv_begin / Tile::kMaxBoxRows * Tile::kMaxBoxRows;
    if (made.tile.kv_begin < made.tile.kv_end)
      made.num_tiles = (made.tile.kv_end - made.first_key + Tile::kKeys - 1) / Tile::kKeys;
    work_tile = made;
  }

  __device__ void advance() {
    if (!divides_keys_) {
      work_tile_idx_ = static_cast<int>(gridDim.x) + atomicAdd(progress_, 1);
      return;
    }
    left_ -= gap_;
    first_ = 0;
    head_ += params_.plan.heads_at_once;
    if (head_ < params_.num_kv_heads) return;
    head_ -= params_.num_kv_heads;
    ++row_tile_;
  }

  // The last CTA to end resets the counters.
  __device__ void end() const {
    if (divides_keys_ || atomicAdd(progress_ + 1, 1) + 1 < static_cast<int>(gridDim.x)) return;
    progress_[0] = 0;
    progress_[1] = 0;
  }

 private:
  // Where the plan's row tiles are lower than a work tile, the tiles that follow the first belong to its work
  // tile.
  __device__ bool begins_work_tile() const {
    return params_.plan.row_tiles[work_tile_idx_ / params_.num_kv_heads].row_begin % Tile::kRows == 0;
  }

  // With all keys of the row tile.
  __device__ PrefillWorkTile make_work_tile() const {
    const BatchParams& batch = params_.batch;
    PrefillWorkTile work_tile{};
    work_tile.head = head_;
    work_tile.partial_idx = -1;
    work_tile.tile = params_.plan.row_tiles[row_tile_];
    const sm80::WorkTileRows rows(params_, work_tile.tile, work_tile.head, Tile::kRows);
    const int j_first = rows.first_query, j_last = rows.at(params_, rows.num_rows - 1).query;
    // The plan may be one of a layer without a window, its row tiles lower.
    const VisibleRange of_first =
                           visible_range(batch, rows.span, position_of<false>(batch, rows.span, j_first)),
                       of_last =
                           visible_range(batch, rows.span, position_of<false>(batch, rows.span, j_last));
    work_tile.tile.kv_begin = of_first.lo;
    work_tile.tile.kv_end = max(of_first.lo, of_last.hi + 1);
    work_tile.full = {of_last.lo, of_first.hi + 1};
    return work_tile;
  }

  const AttentionParams& params_;
  int32_t* const progress_;
  const bool divides_keys_;
  int row_tile_ = 0, head_ = 0;
  // Where keys are divided: the CTA's first KV tile of the row tile, and what is left of its range.
  int first_ = 0, left_ = 0, gap_ = 0;
  // Else.
  int work_tile_idx_ = 0, num_work_tiles_ = 0;
};

// Scheduler, and producer of the queries.
template <class Tile>
class PrefillScheduler {
  using Shared = PrefillShared<Tile>;

 public:
  // `consumer`: whose queries this warp loads; that of consumer 0 schedules.
  __device__ PrefillScheduler(const PrefillParams& params, const Shared& shared, int consumer)
      : params_(params), shared_(shared), consumer_(consumer) {}

  __device__ void run() {
    PrefillWalk<Tile> walk(params_);
    const bool schedules = consumer_ == 0 && lane_ == 0;
    if (schedules) walk.begin();
    PipelineState queries;
    for (PipelineState state;; state.advance(Tile::kWorkTileStages), queries.advance(Tile::kQueryStages)) {
      if (schedules) {
        walk.find();
        ptx::mbarrier_wait(shared_.work_tile_empty(state.stage), state.parity ^ 1);
        const bool has_ended = walk.has_ended();
        if (has_ended)
          shared_.work_tile(state.stage).num_tiles = -1;
        else
          walk.write(shared_.work_tile(state.stage));
        ptx::mbarrier_arrive(shared_.work_tile_full(state.stage));
        if (has_ended) return walk.end();
        walk.advance();
      }
      ptx::mbarrier_wait(shared_.work_tile_full(state.stage), state.parity);
      const PrefillWorkTile& work_tile = shared_.work_tile(state.stage);
      if (work_tile.num_tiles < 0) return;
      ptx::mbarrier_wait(shared_.queries_empty(queries.stage, consumer_), queries.parity ^ 1);
      copy_queries(work_tile, shared_.queries(queries.stage));
      arrive_after_cp_async(shared_.queries_full(queries.stage, consumer_));
    }
  }

 private:
  // Rows beyond the request's are zero. Eight neighbouring threads copy 128 bytes of a row.
  __device__ void copy_queries(const PrefillWorkTile& work_tile, uint32_t queries) const {
    const AttentionParams& params = params_.attention;
    const sm80::WorkTileRows rows(params, work_tile.tile, work_tile.head, Tile::kRows);
    const char* q = static_cast<const char*>(params.q.data);
    const int piece = lane_ % 8;
#pragma unroll 2
    for (int row = lane_ / 8; row < Tile::kConsumerRows; row += 32 / 8) {
      const int tile_row = consumer_ * Tile::kConsumerRows + row;
      const char* from = q + 2 * rows.offset_in(params.q, rows.at(params, tile_row));
#pragma unroll
      for (int panel = 0; panel < Tile::kQkPanels; ++panel) {
        const int column = panel * kPanelColumns + piece * 8;
        const bool valid = tile_row < rows.num_rows && column < params.head_dim_qk;
        ptx::cp_async_16(queries + panel * Tile::kQueryPanelBytes + swizzled(tile_row, piece),
                         valid ? from + 2 * column : q, valid);
      }
    }
  }

  const PrefillParams& params_;
  const Shared& shared_;
  const int consumer_;
  const int lane_ = static_cast<int>(threadIdx.x) % 32;
};

// Rows of V that the last KV tile's P is multiplied with: whole steps of k16.
__device__ inline int rows_multiplied(int num_rows) { return (num_rows + 15) / 16 * 16; }

// Producer of K, or of V. What is multiplied with P = 0 must not be infinite or NaN, so rows of V outside of
// the request's keys become zero. K there may be anything, since those scores are masked.
template <class Tile, bool kValues>
class PrefillProducer {
  using Shared = PrefillShared<Tile>;
  static constexpr int kPanels = kValues ? Tile::kVPanels : Tile::kQkPanels;
  static constexpr int kKeys = Tile::kKeys;
  // Eight lanes copy 128 bytes of a row.
  static constexpr int kRowsAtOnce = 4, kRowsOfLane = kKeys / 32;

 public:
  __device__ PrefillProducer(const PrefillParams& params, const Shared& shared, int /*warp: the only one*/)
      : params_(params),
        rows_(kValues ? params.attention.v : params.attention.k),
        head_dim_(kValues ? params.attention.head_dim_v : params.attention.head_dim_qk),
        shared_(shared) {}

  // By one warp: all work tiles.
  __device__ void run() {
    for (PipelineState state;; state.advance(Tile::kWorkTileStages)) {
      ptx::mbarrier_wait(shared_.work_tile_full(state.stage), state.parity);
      const PrefillWorkTile& work_tile = shared_.work_tile(state.stage);
      if (work_tile.num_tiles < 0) return;
      if (params_.box_rows > 0)
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
  __device__ uint32_t tile() const {
    return kValues ? shared_.values(state_.stage) : shared_.keys(state_.stage);
  }
  __device__ void wait_for_empty_stage() const {
    ptx::mbarrier_wait(kValues ? shared_.values_empty(state_.stage) : shared_.keys_empty(state_.stage),
                       state_.parity ^ 1);
  }

  // By TMA: each of a few lanes has a box's rows. Pages are looked up a tile ahead.
  __device__ void load_boxes(const PrefillWorkTile& work_tile) {
    const int box_rows = params_.box_rows, first_row = lane_ * box_rows;
    const int page_mask = params_.attention.index.page_size - 1;
    const bool contiguous = params_.attention.index.kind == KvIndexKind::kContiguous;
    const int begin = work_tile.tile.kv_begin, end = work_tile.tile.kv_end, num_tiles = work_tile.num_tiles,
              head = work_tile.head;
    // Values of the request's later keys may be multiplied with P = 0.
    const int request_end = work_tile.tile.seqlen_kv;
    const auto look_up = [&](int first_key) {
      const int position = first_key + first_row;
      if (first_row >= kKeys || position >= end || position + box_rows <= begin) return -1;
      // A box may begin before the first key, where the index may say anything.
      return page_of(params_.attention.index, work_tile.tile.request,
                     contiguous ? position : max(position, begin));
    };
    int first_key = work_tile.first_key, next_page = look_up(first_key);
    for (int i = 0; i < num_tiles; ++i, first_key += kKeys) {
      const int page = next_page, position = first_key + first_row;
      if (i + 1 < num_tiles) next_page = look_up(first_key + kKeys);
      // Of boxes of eight rows the last step of 16 may have one that nobody looked up.
      const bool is_partial = kValues &&
                              (position < begin || position >= end || position + box_rows > request_end) &&
                              first_row < min(kKeys, rows_multiplied(end - first_key));
      const uint32_t partial_boxes = __ballot_sync(0xffffffffu, is_partial);
      const uint32_t boxes = __ballot_sync(0xffffffffu, page >= 0 && !is_partial);
      wait_for_empty_stage();
      if (partial_boxes != 0) load_partial_boxes(work_tile, first_key, page, partial_boxes);
      if (lane_ == 0)
        ptx::mbarrier_arrive_expect_tx(full(), kPanels * __popc(boxes) * box_rows * kPanelRowBytes);
      __syncwarp();
      if (boxes >> lane_ & 1) {
#pragma unroll
        for (int panel = 0; panel < kPanels; ++panel)
          ptx::cp_async_bulk_tensor(tile() + panel * Tile::kKeyPanelBytes + first_row * kPanelRowBytes,
                                    kValues ? &params_.v : &params_.k, panel * kPanelColumns, head,
                                    position & page_mask, page, full(), policy_);
      }
      state_.advance(Tile::kStages);
    }
  }

  // Boxes of which only some rows are the request's and not before the work tile's keys, or none: bit l of
  // `partial_boxes` is that of lane l, which knows its page.
  __device__ void load_partial_boxes(const PrefillWorkTile& work_tile, int first_key, int lane_page,
                                     uint32_t partial_boxes) const {
    const int box_rows = params_.box_rows;
    const bool contiguous = params_.attention.index.kind == KvIndexKind::kContiguous;
    for (; partial_boxes != 0; partial_boxes &= partial_boxes - 1) {
      const int box = __ffs(static_cast<int>(partial_boxes)) - 1;
      const int page = __shfl_sync(0xffffffffu, lane_page, box);
      for (int in_box = lane_ / 8; in_box < box_rows; in_box += kRowsAtOnce) {
        const int row = box * box_rows + in_box, position = first_key + row;
        const bool wanted = position >= work_tile.tile.kv_begin && position < work_tile.tile.kv_end;
        load_row(row, wanted ? address_of(contiguous ? page + in_box : page, position, work_tile.head) : 0);
      }
    }
    ptx::cp_async_mbarrier_arrive(full());
    __syncwarp();
  }

  // By cp.async: every lane knows a few rows' pages.
  __device__ void load_rows(const PrefillWorkTile& work_tile) {
    const int num_tiles = work_tile.num_tiles, head = work_tile.head;
    int first_key = work_tile.first_key, next_pages[kRowsOfLane];
    const auto look_up = [&](int first) {
#pragma unroll
      for (int r = 0; r < kRowsOfLane; ++r) {
        const int position = first + r * 32 + lane_;
        const bool wanted = position >= work_tile.tile.kv_begin && position < work_tile.tile.kv_end;
        next_pages[r] = wanted ? page_of(params_.attention.index, work_tile.tile.request, position) : -1;
      }
    };
    look_up(first_key);
    for (int i = 0; i < num_tiles; ++i, first_key += kKeys) {
      uint64_t addresses[kRowsOfLane];
#pragma unroll
      for (int r = 0; r < kRowsOfLane; ++r)
        addresses[r] = next_pages[r] < 0 ? 0 : address_of(next_pages[r], first_key + r * 32 + lane_, head);
      if (i + 1 < num_tiles) look_up(first_key + kKeys);
      wait_for_empty_stage();
#pragma unroll
      for (int r = 0; r < kRowsOfLane; ++r)
#pragma unroll 2
        for (int first = 0; first < 32; first += kRowsAtOnce) {
          const int row_lane = first + lane_ / 8;
          load_row(r * 32 + row_lane, __shfl_sync(0xffffffffu, addresses[r], row_lane));
        }
      arrive_after_cp_async(full());
      state_.advance(Tile::kStages);
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

  // This lane's 16 bytes of every panel of a row of the tile; zeros where the address is 0.
  __device__ void load_row(int row, uint64_t address) const {
#pragma unroll
    for (int panel = 0; panel < kPanels; ++panel) {
      const int column = panel * kPanelColumns + lane_ % 8 * 8;
      const bool valid = address != 0 && column < head_dim_;
      ptx::cp_async_16(tile() + panel * Tile::kKeyPanelBytes + swizzled(row, lane_ % 8),
                       valid ? reinterpret_cast<const char*>(address) + 2 * column : rows_.data, valid);
    }
  }

  const PrefillParams& params_;
  const PagedRows& rows_;
  const int head_dim_;
  const Shared& shared_;
  const int lane_ = static_cast<int>(threadIdx.x) % 32;
  const uint64_t policy_ = ptx::createpolicy_evict_last();
  PipelineState state_;
};

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

// Producer of K, or of V, from fp8. The 16-bit type of q holds every value of fp8's. A lane copies 16 bytes
// of a row at a time by cp.async to a place of its own, a tile ahead, and converts them there, so it waits
// for its own copies alone.
template <class T, Element kKv, class Tile, bool kValues>
class PrefillFp8Producer {
  using Shared = PrefillShared<Tile>;
  static constexpr int kHeadDim = (kValues ? Tile::kVPanels : Tile::kQkPanels) * kPanelColumns;
  static constexpr int kPieceBytes = 16, kLanesOfRow = kHeadDim / kPieceBytes;
  // Rows of a tile that a warp, and all warps, have at once; a lane's lie alike in their eights.
  static constexpr int kRowsOfWarp = 32 / kLanesOfRow, kRowsAtOnce = Tile::kWarpsOfOperand * kRowsOfWarp;
  static constexpr int kRounds = Tile::kKeys / kRowsAtOnce;
  static_assert(kRowsAtOnce % 8 == 0);
  // Rows that a lane looks up for its warp.
  static constexpr int kLookUps = kRounds * kRowsOfWarp / 32;

 public:
  // `warp`: of the operand's.
  __device__ PrefillFp8Producer(const PrefillParams& params, const Shared& shared, int warp)
      : params_(params.attention),
        rows_(kValues ? params.attention.v : params.attention.k),
        shared_(shared),
        warp_(warp),
        in_row_(lane_ % kLanesOfRow),
        has_columns_(in_row_ * kPieceBytes <
                     (kValues ? params.attention.head_dim_v : params.attention.head_dim_qk)) {}

  // All work tiles.
  __device__ void run() {
    for (PipelineState state;; state.advance(Tile::kWorkTileStages)) {
      ptx::mbarrier_wait(shared_.work_tile_full(state.stage), state.parity);
      const PrefillWorkTile& work_tile = shared_.work_tile(state.stage);
      if (work_tile.num_tiles < 0) return;
      load(work_tile);
      __syncwarp();
      if (lane_ == 0) ptx::mbarrier_arrive(shared_.work_tile_empty(state.stage));
    }
  }

 private:
  __device__ void load(const PrefillWorkTile& work_tile) {
    const int num_tiles = work_tile.num_tiles;
    int first_key = work_tile.first_key;
    look_up(work_tile, first_key);
#pragma unroll 1
    for (int i = 0; i <= num_tiles; ++i, first_key += Tile::kKeys) {
      if (i < num_tiles) copy(i % 2);
      ptx::cp_async_commit_group();
      if (i + 1 < num_tiles) look_up(work_tile, first_key + Tile::kKeys);
      if (i > 0) convert_and_release((i - 1) % 2);
    }
  }

  // Row `row_of_warp` of those that the warp has at once in a round.
  __device__ int row_of(int round, int row_of_warp) const {
    return round * kRowsAtOnce + warp_ * kRowsOfWarp + row_of_warp;
  }

  // Rows that are not the work tile's become zero: what is multiplied with P = 0 must not be NaN.
  __device__ void look_up(const PrefillWorkTile& work_tile, int first_key) {
#pragma unroll
    for (int i = 0; i < kLookUps; ++i) {
      const int row = i * 32 + lane_, position = first_key + row_of(row / kRowsOfWarp, row % kRowsOfWarp);
      const bool wanted = position >= work_tile.tile.kv_begin && position < work_tile.tile.kv_end;
      addresses_[i] = wanted ? address_of(work_tile, position) : 0;
    }
  }

  // Where a position's row begins in global memory.
  __device__ uint64_t address_of(const PrefillWorkTile& work_tile, int position) const {
    const int page = page_of(params_.index, work_tile.tile.request, position);
    const int in_page = position & (params_.index.page_size - 1);
    // Tiled kernels only take strides of 32 bits.
    int64_t offset = ptx::mad_wide(page, static_cast<int32_t>(rows_.page_stride), 0);
    offset = ptx::mad_wide(in_page, static_cast<int32_t>(rows_.token_stride), offset);
    offset = ptx::mad_wide(work_tile.head, static_cast<int32_t>(rows_.head_stride), offset);
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
        ptx::cp_async_16(fp8_address(look_up * kRoundsOfLookUp + i, stage),
                         valid ? reinterpret_cast<const char*>(address) + in_row_ * kPieceBytes : rows_.data,
                         valid);
      }
  }

  // Converts the tile before the one whose copies were started last.
  __device__ void convert_and_release(int stage) {
    ptx::cp_async_wait_group<1>();
    ptx::mbarrier_wait(kValues ? shared_.values_empty(state_.stage) : shared_.keys_empty(state_.stage),
                       state_.parity ^ 1);
    convert(stage);
    ptx::fence_proxy_async();
    __syncwarp();
    if (lane_ == 0)
      ptx::mbarrier_arrive(kValues ? shared_.values_full(state_.stage) : shared_.keys_full(state_.stage));
    state_.advance(Tile::kStages);
  }

  __device__ void convert(int stage) const {
    constexpr int kPiecesOfPanel = kPanelColumns / kPieceBytes;
    const int panel = in_row_ / kPiecesOfPanel, piece = in_row_ % kPiecesOfPanel * 2;
    // Lanes of two panels of a row write at once: one of them in the other order, to other banks.
    const bool swaps = panel % 2 != 0;
    const uint32_t tile = kValues ? shared_.values(state_.stage) : shared_.keys(state_.stage);
    const uint32_t to = tile + panel * Tile::kKeyPanelBytes;
    const int row = row_of(0, lane_ / kLanesOfRow);
    const uint32_t first = to + swizzled(row, piece + swaps);
    const uint32_t second = to + swizzled(row, piece + !swaps);
#pragma unroll 2
    for (int i = 0; i < kRounds; ++i) {
      const uint4 bytes = ptx::ld_shared_16(fp8_address(i, stage));
      const uint2 a = widened<kKv>(bytes.x, T()), b = widened<kKv>(bytes.y, T());
      const uint2 c = widened<kKv>(bytes.z, T()), d = widened<kKv>(bytes.w, T());
      const uint4 low{a.x, a.y, b.x, b.y}, high{c.x, c.y, d.x, d.y};
      ptx::st_shared_16(first + i * kRowsAtOnce * kPanelRowBytes, swaps ? high : low);
      ptx::st_shared_16(second + i * kRowsAtOnce * kPanelRowBytes, swaps ? low : high);
    }
  }

  // Where this lane's fp8 bytes of a row lie.
  __device__ uint32_t fp8_address(int round, int stage) const {
    return (kValues ? shared_.fp8_values(stage) : shared_.fp8_keys(stage)) +
           ((round * Tile::kWarpsOfOperand + warp_) * 32 + lane_) * kPieceBytes;
  }

  const AttentionParams& params_;
  const PagedRows& rows_;
  const Shared& shared_;
  const int lane_ = static_cast<int>(threadIdx.x) % 32;
  const int warp_;
  const int in_row_;        // which 16 bytes
  const bool has_columns_;  // of those 16 bytes
  uint64_t addresses_[kLookUps];
  PipelineState state_;
};

// A consumer warpgroup's 64 rows in registers: scores of a KV tile, the online softmax, P and the output
// accumulators. A thread has rows 16 w + l / 4 and 8 further (`half` 0 and 1), w its warp and l its lane;
// element [4 n + 2 half + i] of scores and out is of column 8 n + 2 (l % 4) + i.
template <class T, class Tile>
struct PrefillRows {
  static constexpr int kKeys = Tile::kKeys, kSteps = kKeys / 16, kColumns = Tile::kVPanels * kPanelColumns;
  // P relative to a stale row max may be up to 2^kSlack before that is raised.
  static constexpr float kSlack = 8.0f;

  float scores[kKeys / 2];
  float out[kColumns / 2];
  uint32_t p[kSteps][4];  // operand A of wgmma with V
  // Row max of unscaled scores; stale by at most kSlack after scaling.
  float row_max[2];
  float row_sum[2];  // of this lane's columns only
  float rescale[2];
  bool rescales;

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (float& x : out) x = 0.0f;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      row_max[half] = -INFINITY;
      row_sum[half] = 0.0f;
    }
  }

  // Issues scores = q k^T. `q`: the warpgroup's first row; `k`: the tile.
  __device__ __forceinline__ void multiply_keys(uint32_t q, uint32_t k) {
    constexpr int kStepsOfPanel = kPanelColumns / 16, kStepBytes = 32;
    const uint64_t a = ptx::smem_descriptor(q), b = ptx::smem_descriptor(k);
#pragma unroll
    for (int i = 0; i < Tile::kQkPanels * kStepsOfPanel; ++i) {
      const int panel = i / kStepsOfPanel, in_panel = i % kStepsOfPanel * kStepBytes;
      ptx::wgmma_mma_async(scores, a + (panel * Tile::kQueryPanelBytes + in_panel) / 16,
                           b + (panel * Tile::kKeyPanelBytes + in_panel) / 16, i > 0, T());
    }
    ptx::wgmma_commit_group();
  }

  // Issues out += P v over the first `num_steps` times 16 keys of the tile.
  __device__ __forceinline__ void multiply_values(uint32_t v, int num_steps = kSteps) {
    constexpr int kStepBytes = 16 * kPanelRowBytes;
    const uint64_t b = ptx::smem_descriptor_mn_major(v, Tile::kKeyPanelBytes);
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
      if (step < num_steps) ptx::wgmma_mma_async_rs(out, p[step], b + step * kStepBytes / 16, T());
    ptx::wgmma_commit_group();
  }

  // Mask: scores of the KV tile from `first_key` on that a row does not see, or that lie outside of `keys`,
  // become -inf. `first_row`: the thread's, of the work tile.
  __device__ __forceinline__ void mask_scores(const AttentionParams& params, const sm80::WorkTileRows& rows,
                                              int first_row, int first_key, const KeyRange& keys) {
    const int first_column = first_key + static_cast<int>(threadIdx.x) % 4 * 2;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = first_row + 8 * half;
      const QueryRange query = query_range<false>(params.batch, rows.span, rows.at(params, row).query);
      const int begin = max(query.lo, keys.begin) - first_column;
      const int end = row < rows.num_rows ? min(query.hi + 1, keys.end) - first_column : begin;
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
        for (int i = 0; i < 2; ++i)
          if (8 * n + i < begin || 8 * n + i >= end) scores[4 * n + 2 * half + i] = -INFINITY;
    }
  }

  // Online softmax: scores become P = 2^(softmax_scale_log2 (score - row_max)), and `rescale` what out and
  // row_sum so far are to be multiplied with. A row's own scores decide whether they are, so its bits do not
  // depend on the rows beside it.
  __device__ __forceinline__ void softmax(float softmax_scale_log2) {
    bool changed = false;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float new_max = row_max[half];
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n)
        new_max = fmaxf(new_max, fmaxf(scores[4 * n + 2 * half], scores[4 * n + 2 * half + 1]));
      new_max = sm80::quad_max(new_max);
      if (!((new_max - row_max[half]) * softmax_scale_log2 > kSlack)) new_max = row_max[half];
      const float shift = new_max == -INFINITY ? 0.0f : __fmul_rn(new_max, softmax_scale_log2);
      // The product rounded by itself: exactly 1 for a row whose max stays.
      rescale[half] = ptx::ex2_approx(__fmul_rn(row_max[half], softmax_scale_log2) - shift);
      changed |= new_max != row_max[half];
      row_max[half] = new_max;
      float sums[2] = {};
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float& score = scores[4 * n + 2 * half + i];
          score = ptx::ex2_approx(score * softmax_scale_log2 - shift);
          sums[i] += score;
        }
      row_sum[half] = row_sum[half] * rescale[half] + (sums[0] + sums[1]);
    }
    rescales = __any_sync(0xffffffffu, changed);
  }

  // After softmax(), when the PV of the KV tile before has ended.
  __device__ __forceinline__ void rescale_and_pack_p() {
    if (rescales) {
#pragma unroll
      for (int i = 0; i < kColumns / 2; ++i) out[i] *= rescale[i / 2 % 2];
    }
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        p[step][i] = sm80::pack(scores[8 * step + 2 * i], scores[8 * step + 2 * i + 1], T());
  }

  // Row sums over all columns: call once, after the last tile.
  __device__ __forceinline__ void finish_sums() {
#pragma unroll
    for (float& s : row_sum) s = sm80::quad_sum(s);
  }
};

// Epilogue. The work tile's row that the present thread begins with, of the consumers' `warpgroup`.
template <class Tile>
__device__ __forceinline__ int prefill_row(int warpgroup) {
  const int thread = ptx::tid_x();
  return warpgroup * Tile::kConsumerRows + thread / 32 % 4 * 16 + thread % 32 / 4;
}

template <class T, class Tile>
class PrefillEpilogue {
  using Rows = PrefillRows<T, Tile>;
  static constexpr int kGroups = Rows::kColumns / 8;  // of eight columns

 public:
  __device__ PrefillEpilogue(const AttentionParams& params, const sm80::WorkTileRows& rows, int warpgroup)
      : params_(params), rows_(rows), first_row_(prefill_row<Tile>(warpgroup)) {}

  // After finish_sums(). By all threads of a warp. `partial_idx`: of the plan; -1: the output.
  __device__ __forceinline__ void write(const Rows& rows, float softmax_scale_log2, int partial_idx) const {
    if (partial_idx >= 0) return write_partial(rows, partial_idx);
    float out_scale[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) out_scale[half] = finish(rows, half, softmax_scale_log2);
    if (params_.out_element == Element::kF32)
      write_wide(rows, out_scale);
    else
      write_narrow(rows, out_scale);
  }

 private:
  // Writes the row's LSE; returns the scale of its output.
  __device__ float finish(const Rows& rows, int half, float softmax_scale_log2) const {
    const int tile_row = first_row_ + 8 * half;
    const sm80::TileRow row = rows_.at(params_, min(tile_row, rows_.num_rows - 1));
    const sm80::RowResult result =
        sm80::finish_row(params_, rows.row_max[half], rows.row_sum[half], softmax_scale_log2, row.head);
    if (params_.lse != nullptr && lane_ % 4 == 0 && tile_row < rows_.num_rows)
      params_.lse[(rows_.span.first_token + row.query) * params_.lse_token_stride +
                  row.head * params_.lse_head_stride] = result.lse;
    return result.out_scale;
  }

  __device__ char* out_row(int tile_row, int element_bytes) const {
    return static_cast<char*>(params_.out.data) +
           rows_.offset_in(params_.out, rows_.at(params_, tile_row)) * element_bytes;
  }

  __device__ __forceinline__ void write_wide(const Rows& rows, const float (&out_scale)[2]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int tile_row = first_row_ + 8 * half;
      if (tile_row >= rows_.num_rows) continue;
      write_floats(rows, half, out_scale[half], reinterpret_cast<float2*>(out_row(tile_row, sizeof(float))));
    }
  }

  __device__ __forceinline__ void write_partial(const Rows& rows, int partial_idx) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int tile_row = first_row_ + 8 * half;
      if (tile_row >= rows_.num_rows) continue;
      const int64_t partial_row = int64_t{partial_idx} * params_.plan.partial_rows + tile_row;
      if (lane_ % 4 == 0)
        params_.plan.partial_state[partial_row] = make_float2(rows.row_max[half], rows.row_sum[half]);
      write_floats(rows, half, 1.0f,
                   reinterpret_cast<float2*>(params_.plan.partial_out + partial_row * params_.head_dim_v));
    }
  }

  __device__ __forceinline__ void write_floats(const Rows& rows, int half, float scale, float2* to) const {
#pragma unroll
    for (int n = 0; n < kGroups; ++n) {
      const int column = 8 * n + lane_ % 4 * 2;
      if (column < params_.head_dim_v)
        to[column / 2] =
            make_float2(rows.out[4 * n + 2 * half] * scale, rows.out[4 * n + 2 * half + 1] * scale);
    }
  }

  // Four lanes of a row transpose their words of four groups, so that each writes whole groups: four lanes 64
  // bytes.
  __device__ __forceinline__ void write_narrow(const Rows& rows, const float (&out_scale)[2]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int tile_row = first_row_ + 8 * half;
      const bool valid = tile_row < rows_.num_rows;
      auto* const to = reinterpret_cast<uint4*>(out_row(valid ? tile_row : 0, 2));
#pragma unroll
      for (int first = 0; first < kGroups; first += 4) {
        uint32_t words[4];
#pragma unroll
        for (int i = 0; i < 4; ++i)
          words[i] = sm80::pack(rows.out[4 * (first + i) + 2 * half] * out_scale[half],
                                rows.out[4 * (first + i) + 2 * half + 1] * out_scale[half], T());
        sm80::quad_transpose(words);
        const int group = first + lane_ % 4;
        if (valid && group * 8 < params_.head_dim_v)
          to[group] = make_uint4(words[0], words[1], words[2], words[3]);
      }
    }
  }

  const AttentionParams& params_;
  const sm80::WorkTileRows rows_;
  const int first_row_;
  const int lane_ = ptx::tid_x() % 32;
};

// Consumer: one warpgroup, all work tiles.
template <class T, class Tile>
class PrefillConsumer {
  using Shared = PrefillShared<Tile>;
  using Rows = PrefillRows<T, Tile>;
  // Named barriers: two that order the warpgroups' wgmma (ping-pong), then one of each warpgroup alone.
  static constexpr int kSchedulerBarrier = 1, kWarpgroupBarrier = kSchedulerBarrier + Tile::kConsumers;

 public:
  // `warpgroup`: of the consumers.
  __device__ PrefillConsumer(const PrefillParams& params, const Shared& shared, int warpgroup)
      : params_(params.attention),
        shared_(shared),
        warpgroup_(warpgroup),
        cp_async_rows_(params.box_rows == 0 && Tile::kWarpsOfOperand == 1),
        softmax_scale_log2_(sm80::softmax_scale_log2_of(params.attention)) {}

  __device__ void run() {
    if (warpgroup_ == 1) scheduler_barrier_arrive();
    for (PipelineState state;; state.advance(Tile::kWorkTileStages)) {
      ptx::mbarrier_wait(shared_.work_tile_full(state.stage), state.parity);
      const PrefillWorkTile& work_tile = shared_.work_tile(state.stage);
      if (work_tile.num_tiles < 0) return;
      ptx::mbarrier_wait(shared_.queries_full(queries_.stage, warpgroup_), queries_.parity);
      ptx::fence_proxy_async();
      attend(work_tile);
      release(shared_.work_tile_empty(state.stage));
    }
  }

 private:
  __device__ __forceinline__ void attend(const PrefillWorkTile& work_tile) {
    const uint32_t q = shared_.queries(queries_.stage) + warpgroup_ * Tile::kConsumerRows * kPanelRowBytes;
    const int num_tiles = work_tile.num_tiles;
    const KeyRange full = work_tile.full;
    int first_key = work_tile.first_key;
    // Boxes of V that begin before the first key, or end behind the last, are copied by cp.async.
    const bool begins_inside = first_key < work_tile.tile.kv_begin;
    Rows rows;
    rows.clear();
    if (num_tiles == 0) {
      release_queries();
    } else {
      wait_for_keys();
      ptx::wgmma_fence();
      rows.multiply_keys(q, shared_.keys(keys_.stage));
      ptx::wgmma_wait_group<0>();
      compute_p(rows, work_tile, first_key, full);
      rows.rescale_and_pack_p();
      wait_for_keys_or_end(num_tiles > 1);
#pragma unroll 1
      for (int i = 1; i < num_tiles; ++i) {
        first_key += Tile::kKeys;
        scheduler_barrier_sync();
        ptx::wgmma_fence();
        rows.multiply_keys(q, shared_.keys(keys_.stage));
        wait_for_values(i == 1 && begins_inside);
        rows.multiply_values(shared_.values(values_.stage));
        scheduler_barrier_arrive();
        ptx::wgmma_wait_group<1>();
        compute_p(rows, work_tile, first_key, full);
        // The spin loop in this keeps the compiler from moving the next wait before the softmax.
        wait_for_keys_or_end(i + 1 < num_tiles);
        ptx::wgmma_wait_group<0>();
        ptx::fence_operand(rows.out);
        release_values();
        rows.rescale_and_pack_p();
      }
      wait_for_values(true);
      ptx::wgmma_fence();
      rows.multiply_values(shared_.values(values_.stage), (work_tile.tile.kv_end - first_key + 15) / 16);
      ptx::wgmma_wait_group<0>();
      ptx::fence_operand(rows.out);
      release_values();
    }
    rows.finish_sums();
    // Else the compiler takes the warps of a warpgroup for diverged and serialises every wgmma.
    ptx::barrier_sync(kWarpgroupBarrier + warpgroup_, 128);
    PrefillEpilogue<T, Tile>(params_, rows_of(work_tile), warpgroup_)
        .write(rows, softmax_scale_log2_, work_tile.partial_idx);
  }

  // The stage of K is free; cap, mask and softmax: scores become P.
  __device__ __forceinline__ void compute_p(Rows& rows, const PrefillWorkTile& work_tile, int first_key,
                                            const KeyRange& full) {
    ptx::fence_operand(rows.scores);
    release(shared_.keys_empty(keys_.stage));
    keys_.advance(Tile::kStages);
    if (params_.logit_cap > 0.0f) {
      const sm80::ScoreCap cap(params_);
#pragma unroll
      for (float& score : rows.scores) score = cap(score);
    }
    if (first_key < full.begin || first_key + Tile::kKeys > full.end)
      rows.mask_scores(params_, rows_of(work_tile), prefill_row<Tile>(warpgroup_), first_key,
                       {work_tile.tile.kv_begin, work_tile.tile.kv_end});
    rows.softmax(softmax_scale_log2_);
  }

  // Computed again where it is wanted, since registers are short.
  __device__ __forceinline__ sm80::WorkTileRows rows_of(const PrefillWorkTile& work_tile) const {
    return {params_, work_tile.tile, work_tile.head, Tile::kRows};
  }

  __device__ __forceinline__ void wait_for_keys() const {
    ptx::mbarrier_wait(shared_.keys_full(keys_.stage), keys_.parity);
    if (cp_async_rows_) ptx::fence_proxy_async();
  }
  // Waits for the next K; without any, the queries are free.
  __device__ __forceinline__ void wait_for_keys_or_end(bool more) {
    if (more)
      wait_for_keys();
    else
      release_queries();
  }
  // `by_cp_async`: rows of this tile may have come so, and want a fence before wgmma reads them.
  __device__ __forceinline__ void wait_for_values(bool by_cp_async) const {
    ptx::mbarrier_wait(shared_.values_full(values_.stage), values_.parity);
    if (cp_async_rows_ || by_cp_async) ptx::fence_proxy_async();
  }
  __device__ __forceinline__ void release_values() {
    release(shared_.values_empty(values_.stage));
    values_.advance(Tile::kStages);
  }
  __device__ __forceinline__ void release_queries() {
    release(shared_.queries_empty(queries_.stage, warpgroup_));
    queries_.advance(Tile::kQueryStages);
  }
  // One arrival a warp.
  __device__ __forceinline__ static void release(uint32_t barrier) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(barrier);
  }

  __device__ __forceinline__ void scheduler_barrier_sync() const {
    ptx::barrier_sync(kSchedulerBarrier + warpgroup_, 128 * Tile::kConsumers);
  }
  __device__ __forceinline__ void scheduler_barrier_arrive() const {
    ptx::barrier_arrive(kSchedulerBarrier + (warpgroup_ ^ 1), 128 * Tile::kConsumers);
  }

  const AttentionParams& params_;
  const Shared& shared_;
  const int warpgroup_;
  const bool cp_async_rows_;
  const float softmax_scale_log2_;
  PipelineState queries_, keys_, values_;
};

// The producer of K, or of V.
template <class T, Element kKv, class Tile, bool kValues>
using PrefillProducerOf = std::conditional_t<is_fp8(kKv), PrefillFp8Producer<T, kKv, Tile, kValues>,
                                             PrefillProducer<Tile, kValues>>;

template <class T, Element kKv, class Tile>
__global__ void __launch_bounds__(Tile::kThreads, 1)
    prefill_kernel(const __grid_constant__ PrefillParams params) {
  extern __shared__ __align__(kSwizzleAtom) char memory[];
  const PrefillShared<Tile> shared(memory);
  if (threadIdx.x == 0) shared.init_barriers();
  ptx::griddepcontrol_wait();
  write_padding(params.attention, params.attention.plan.header->num_tokens);
  __syncthreads();
  const int warp = static_cast<int>(threadIdx.x) / 32;
  if (warp < Tile::kProducerWarps) {
    ptx::setmaxnreg_dec<Tile::kProducerRegisters>();
    if (warp < Tile::kWarpsOfOperand)
      PrefillProducerOf<T, kKv, Tile, false>(params, shared, warp).run();
    else if (warp < Tile::kLoadWarps)
      PrefillProducerOf<T, kKv, Tile, true>(params, shared, warp - Tile::kWarpsOfOperand).run();
    else if (warp < Tile::kLoadWarps + Tile::kConsumers)
      PrefillScheduler<Tile>(params, shared, warp - Tile::kLoadWarps).run();
  } else {
    ptx::setmaxnreg_inc<Tile::kConsumerRegisters>();
    PrefillConsumer<T, Tile>(params, shared, warp / 4 - Tile::kProducerWarps / 4).run();
  }
}

template <class T, Element kKv, int kHeadDimQk, int kHeadDimV>
void launch_prefill(const PrefillParams& params, int num_ctas, void* stream) {
  using Tile = PrefillTile<kHeadDimQk, kHeadDimV, is_fp8(kKv)>;
  constexpr int kSharedBytes = PrefillShared<Tile>::kBytes;
  constexpr auto kKernel = prefill_kernel<T, kKv, Tile>;
  allow_shared_memory<kKernel>(kSharedBytes, "attention: shared memory");
  launch_dependent<PrefillParams>(kKernel, dim3(static_cast<unsigned>(num_ctas)), Tile::kThreads,
                                  kSharedBytes, stream, params, "attention");
}

}  // namespace attend::kernels::cuda::sm90
