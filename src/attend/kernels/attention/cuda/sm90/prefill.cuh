// Attention of many rows on sm_90a, with TMA and wgmma: query rows of one request and KV head (GQA heads
// packed with query tokens) against KV tiles. Warp-specialised and persistent: two consumer warpgroups take
// turns at the tensor cores, so that the softmax of one runs beside the wgmma of the other (ping-pong), and
// each issues QK^T of its next KV tile before the softmax of the present one has ended. Up to head dim 96
// there are three, who take no turns. fp8 K/V are converted to the 16-bit type of q on their way.
//
// Fixed splits (head dims 128/128): bit for bit what sm80's kernel computes. Its KV tiles of 64 keys, its
// order of row sums, and at the end of a split it is merged into those before it, which lie in shared memory.
// Queries are in registers then.
//
//   tile        128 rows x 128 keys (64 at head dim 256 and under fixed splits); 192 rows x 96 keys at head
//               dims 64 and 96 (fp8: as the others). Head dims 64/64, 96/96, 128/128, 192/128, 256/256
//   warps       2 or 3 consumer warpgroups of 64 rows each: QK^T and PV by wgmma m64n(keys)k16 and
//               m64n(head_dim_v)k16, P in registers. A producer warpgroup: a warp for K and one for V, by TMA
//               where pages have 8 rows or more, else by cp.async, and two for the consumers' queries, one of
//               which schedules. fp8: two producer warpgroups, two warps each for K and V
//   registers   216 a consumer thread, 72 a producer thread (setmaxnreg); at head dim 256 and under
//               fixed splits 224 and 56; three consumers: 152 and 56; fp8: 200 and 56. Launched with 168
//               (three consumers, fp8: 128)
//   shared      96 KB at head dims 64, 192 KB at 96 and 128, 208 KB at 192/128, 192 KB at 256; fp8: 112
//               and 224 KB; fixed splits 224 KB. Two work tiles with their queries (one above 128 and for
//               fp8), two stages of K and two of V (three under fixed splits), two of fp8 bytes, the splits
//               that have ended
//   bytes       of a KV tile: 24 KB at head dims 64, 36 KB at 96, 64 KB at 128, 80 KB at 192/128, 64 KB at
//               256; fp8: 16 and 32 KB
//   bound       tensor cores, and the softmax's exponentials
#pragma once

#include <type_traits>

#include "attend/kernels/attention/cuda/common/fp8_convert.cuh"
#include "attend/kernels/attention/cuda/common/padding.cuh"
#include "attend/kernels/attention/cuda/common/row_state.cuh"
#include "attend/kernels/attention/cuda/common/warp_rows.cuh"
#include "attend/kernels/attention/cuda/sm90/prefill_loads.cuh"
#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/common/cuda/ptx/copy.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/common/cuda/ptx/integer.cuh"
#include "attend/kernels/common/cuda/ptx/mbarrier.cuh"
#include "attend/kernels/common/cuda/ptx/mma.cuh"
#include "attend/kernels/common/cuda/ptx/stmatrix.cuh"
#include "attend/kernels/common/cuda/ptx/tensor_copy.cuh"
#include "attend/kernels/common/cuda/ptx/thread.cuh"
#include "attend/kernels/common/cuda/ptx/warpgroup.cuh"
#include "attend/kernels/common/cuda/ptx/wgmma.cuh"
#include "attend/kernels/common/cuda/sm90/pipeline_state.cuh"
#include "attend_generated/wgmma_codes_products.cuh"
#include "attend_generated/wgmma_products.cuh"

namespace attend::kernels::cuda::sm90 {

inline constexpr int kPanelColumns = kPanelRowBytes / 2;  // of elements of 16 bits

// The tile's shape, warps and registers. `kConverts`: K/V of fp8. `kFixed`: the plan has fixed splits.
template <int kQk, int kV, bool kConverts, bool kFixed = false>
struct PrefillTile {
  static constexpr bool kFixedSplits = kFixed;
  static constexpr int kHeadDimQk = kQk, kHeadDimV = kV;
  static constexpr int kConsumers = has_three_consumers(kHeadDimQk) && !kConverts ? 3 : 2;
  static constexpr int kElementBytes = 2, kRows = 64 * kConsumers;
  static constexpr bool kMayPlanInline = !kFixed && may_plan_inline(kHeadDimV, kConverts);
  static constexpr int kKeys = kConverts ? 128 : kFixed ? kKeyTile : prefill_keys(kHeadDimQk);
  static constexpr int kMaxBoxRows = kConverts ? kMaxBoxRowsOfFp8 : max_box_rows(kHeadDimQk);
  static constexpr int kStages = kFixed ? 3 : 2;       // of keys, and of values
  static constexpr bool kProducerZeroesValues = true;  // of rows that are not the request's
  // One work tile is computed, K and queries of the next are loaded. Taking more of them ahead would
  // unbalance the CTAs at the end.
  static constexpr int kWorkTileStages = 2;
  // Queries are read until the last QK^T. Where two do not fit, those of the next work tile are loaded during
  // the epilogue of the present one.
  static constexpr int kQueryStages = kHeadDimQk > 128 || kConverts ? 1 : 2;
  // The exponentials of a KV tile while the PV of the one before is under way, or behind it; and whether the
  // consumers take turns at the tensor cores: as measured. Of three, the others' products hide a softmax
  // anyway.
  static constexpr bool kExponentiatesBesidePv = kConsumers == 3 || (kHeadDimV > 64 && kHeadDimV <= 128),
                        kTakesTurns = kConsumers == 2 && kHeadDimV > 64;
  // Where they do, results take the place of the queries, from where TMA stores them.
  static constexpr bool kStagesResults = kQueryStages == 2;
  static constexpr int kQkPanels = (kHeadDimQk + kPanelColumns - 1) / kPanelColumns;
  static constexpr int kVPanels = (kHeadDimV + kPanelColumns - 1) / kPanelColumns;

  static constexpr int kQueryPanelBytes = kRows * kPanelRowBytes;
  static constexpr int kKeyPanelBytes = kKeys * kPanelRowBytes;
  static constexpr int kQueryBytes = kQkPanels * kQueryPanelBytes;
  static constexpr int kKeyBytes = kQkPanels * kKeyPanelBytes;
  static constexpr int kValueBytes = kVPanels * kKeyPanelBytes;
  // fp8 bytes: one tile is converted, the next is loaded.
  static constexpr int kFp8Stages = kConverts ? 2 : 0;
  static constexpr int kFp8KeyBytes = kKeyBytes / 2, kFp8ValueBytes = kValueBytes / 2;

  // Fixed splits: the output accumulators of the splits that have ended.
  static constexpr int kSplitBytes = kFixed ? kRows * kHeadDimV * static_cast<int>(sizeof(float)) : 0;

  // Warps by role.
  static constexpr int kConsumerWarps = 4 * kConsumers;
  static constexpr int kConsumerRows = kRows / kConsumers;
  static constexpr int kWarpsOfOperand = kConverts ? 2 : 1;  // of keys, and of values
  static constexpr int kLoadWarps = 2 * kWarpsOfOperand;
  static constexpr int kQueryWarps = 2;
  static constexpr int kProducerWarps = (kLoadWarps + kQueryWarps + 3) / 4 * 4;  // whole warpgroups
  static constexpr int kThreads = 32 * (kProducerWarps + kConsumerWarps);

  // setmaxnreg redistributes what the CTA was launched with, a multiple of 8 a thread: of 64 K some may stay
  // unused, and a warpgroup that asked for them would wait for ever.
  static constexpr int kProducerRegisters =
      kConverts || kConsumers == 3 || kHeadDimV > 128 || kFixed ? 56 : 72;
  static constexpr int kConsumerRegisters = kConverts                   ? 200
                                            : kConsumers == 3           ? 152
                                            : kHeadDimV > 128 || kFixed ? 224
                                                                        : 216;
  static_assert(32 * (kProducerWarps * kProducerRegisters + kConsumerWarps * kConsumerRegisters) <=
                65536 / kThreads / 8 * 8 * kThreads);
  static_assert(kHeadDimV <= kHeadDimQk && kKeys % kMaxBoxRows == 0);
  static_assert(!kFixed || (kConsumers == 2 && kKeys == kKeyTile && kMaxBoxRows == kKeyTile));
  // Of a panel that is not full, wgmma takes the columns there are: steps of 16, and 32 of the result.
  static_assert(kHeadDimQk % 16 == 0 && kHeadDimV % 32 == 0);
};

template <class Tile>
struct PrefillShared {
  static constexpr int kQueriesAt = 0;
  static constexpr int kKeysAt = kQueriesAt + Tile::kQueryStages * Tile::kQueryBytes;
  static constexpr int kValuesAt = kKeysAt + Tile::kStages * Tile::kKeyBytes;
  static constexpr int kFp8KeysAt = kValuesAt + Tile::kStages * Tile::kValueBytes;
  static constexpr int kFp8ValuesAt = kFp8KeysAt + Tile::kFp8Stages * Tile::kFp8KeyBytes;
  static constexpr int kSplitsAt = kFp8ValuesAt + Tile::kFp8Stages * Tile::kFp8ValueBytes;
  static constexpr int kWorkTilesAt = kSplitsAt + Tile::kSplitBytes;
  static constexpr int kBarriersAt =
      kWorkTilesAt + Tile::kWorkTileStages * static_cast<int>(sizeof(PrefillWorkTile));
  static constexpr int kNumQueryBarriers = Tile::kQueryStages * Tile::kConsumers;
  static constexpr int kNumBarriers =
      2 * Tile::kWorkTileStages + 2 * kNumQueryBarriers + 4 * Tile::kStages + 1;
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
  // Of the present thread of a consumer: [four columns, thread] of float4.
  __device__ float4* splits(int consumer) const {
    return reinterpret_cast<float4*>(base + kSplitsAt) + consumer * (Tile::kHeadDimV / 8 * 128) +
           ptx::tid_x() % 128;
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
  // For the producer of values alone.
  __device__ uint32_t values_landed() const { return keys_full(4 * Tile::kStages); }

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
    ptx::mbarrier_init(values_landed(), 1);
    ptx::fence_mbarrier_init();
  }
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
  static constexpr int kKeys = Tile::kKeys, kSteps = kKeys / 16, kColumns = Tile::kHeadDimV;
  // P relative to a stale row max may be up to 2^kSlack before that is raised.
  static constexpr float kSlack = 8.0f;

  // Queries in registers, where 64 keys at a time would want them from shared memory as often as keys.
  static constexpr bool kHoldsQueries = Tile::kFixedSplits;
  static constexpr int kQuerySteps = Tile::kHeadDimQk / 16;

  uint32_t queries[kHoldsQueries ? kQuerySteps : 1][4];  // operand A of wgmma with K
  float scores[kKeys / 2];
  float out[kColumns / 2];
  uint32_t p[kSteps][4];  // operand A of wgmma with V
  // Row max of unscaled scores; stale by at most kSlack after scaling.
  float row_max[2];
  float row_sum[2];  // of this lane's columns only
  float rescale[2], shifts[2];
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

  // Before the first multiply_keys(), with its `q`.
  __device__ __forceinline__ void hold_queries(uint32_t q) {
    if constexpr (kHoldsQueries) {
      constexpr int kStepsOfPanel = kPanelColumns / 16;
      const int thread = ptx::tid_x(), lane = thread % 32, row = thread / 32 % 4 * 16 + lane % 16;
#pragma unroll
      for (int i = 0; i < kQuerySteps; ++i)
        ptx::ldmatrix_x4(queries[i], q + i / kStepsOfPanel * Tile::kQueryPanelBytes +
                                         swizzled(row, i % kStepsOfPanel * 2 + lane / 16));
    }
  }

  // Issues scores = q k^T. `q`: the warpgroup's first row; `k`: the tile.
  __device__ __forceinline__ void multiply_keys(uint32_t q, uint32_t k) {
    constexpr int kStepsOfPanel = kPanelColumns / 16, kStepBytes = 32;
    const uint64_t a = ptx::smem_descriptor(q), b = ptx::smem_descriptor(k);
#pragma unroll
    for (int i = 0; i < kQuerySteps; ++i) {
      const int panel = i / kStepsOfPanel, in_panel = i % kStepsOfPanel * kStepBytes;
      const uint64_t keys = b + (panel * Tile::kKeyPanelBytes + in_panel) / 16;
      if constexpr (kHoldsQueries)
        ptx::wgmma_mma_async_rs_k_major(scores, queries[i], keys, i > 0, T());
      else
        ptx::wgmma_mma_async(scores, a + (panel * Tile::kQueryPanelBytes + in_panel) / 16, keys, i > 0, T());
    }
    ptx::wgmma_commit_group();
  }

  // Issues out += P v over all keys of the tile: those that are nobody's are zeros in both, and with branches
  // around them ptxas serialises the products (its note C7520).
  __device__ __forceinline__ void multiply_values(uint32_t v) {
    constexpr int kStepBytes = 16 * kPanelRowBytes;
    const uint64_t b = ptx::smem_descriptor_mn_major(v, Tile::kKeyPanelBytes);
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
      ptx::wgmma_mma_async_rs(out, p[step], b + step * kStepBytes / 16, T());
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

  // Online softmax, first half: the row max, and `rescale`, what out and row_sum so far are to be multiplied
  // with. A row's own scores decide whether they are, so its bits do not depend on the rows beside it.
  __device__ __forceinline__ void raise_max(float softmax_scale_log2) {
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
      shifts[half] = shift;
    }
    rescales = __any_sync(0xffffffffu, changed);
  }

  // Second half: scores become P = 2^(softmax_scale_log2 (score - row_max)).
  __device__ __forceinline__ void exponentiate(float softmax_scale_log2) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      // Two chains are faster; sm80's kernel has one.
      float sums[2] = {};
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float& score = scores[4 * n + 2 * half + i];
          score = ptx::ex2_approx(score * softmax_scale_log2 - shifts[half]);
          sums[Tile::kFixedSplits ? 0 : i] += score;
        }
      row_sum[half] = row_sum[half] * rescale[half] + (sums[0] + sums[1]);
    }
  }

  // After exponentiate(), when the PV of the KV tile before has ended.
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

// Fixed splits: what a thread has of its rows over the splits that have ended, beside those of the present
// one.
template <class Rows>
class PrefillSplits {
  static constexpr int kPieces = Rows::kColumns / 8, kStride = 128;

 public:
  // `out`: this thread's place of the splits in shared memory.
  __device__ __forceinline__ PrefillSplits(float4* out, int first_key, int keys_of_split)
      : out_(out), end_((first_key / keys_of_split + 1) * keys_of_split) {}

  // Before the scores of the KV tile from `first_key` on: whether a new split begins with them.
  __device__ __forceinline__ bool ends_before(int first_key, int keys_of_split, Rows& rows) {
    if (first_key < end_) return false;
    end_ += keys_of_split;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      ended_max_[half] = rows.row_max[half];
      ended_sum_[half] = rows.row_sum[half];
      rows.row_max[half] = -INFINITY;
      rows.row_sum[half] = 0.0f;
    }
    return true;
  }

  // After that, when all of the ended split's P V is in rows.out, which becomes zero.
  __device__ __forceinline__ void add_ended(Rows& rows, float softmax_scale_log2) {
#pragma unroll
    for (float& sum : ended_sum_) sum = sm80::quad_sum(sum);
    merge(ended_max_, ended_sum_, rows.out, softmax_scale_log2);
#pragma unroll
    for (int n = 0; n < kPieces; ++n)
      out_[n * kStride] =
          make_float4(rows.out[4 * n], rows.out[4 * n + 1], rows.out[4 * n + 2], rows.out[4 * n + 3]);
    is_empty_ = false;
#pragma unroll
    for (float& x : rows.out) x = 0.0f;
  }

  // The last split, after its finish_sums(): rows become those of all splits.
  __device__ __forceinline__ void finish(Rows& rows, float softmax_scale_log2) {
    merge(rows.row_max, rows.row_sum, rows.out, softmax_scale_log2);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      rows.row_max[half] = row_max_[half];
      rows.row_sum[half] = row_sum_[half];
    }
  }

 private:
  // The splits so far come first. `out`: of the split that is added, then of all.
  __device__ __forceinline__ void merge(const float (&partial_max)[2], const float (&partial_sum)[2],
                                        float (&out)[Rows::kColumns / 2], float softmax_scale_log2) {
    if (is_empty_) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        row_max_[half] = partial_max[half];
        row_sum_[half] = partial_sum[half];
      }
      return;
    }
    sm80::MergeScales scales[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float new_max = fmaxf(row_max_[half], partial_max[half]);
      scales[half] = sm80::merge_scales(row_max_[half], partial_max[half], new_max, softmax_scale_log2);
      row_max_[half] = new_max;
      row_sum_[half] = sm80::merged(row_sum_[half], partial_sum[half], scales[half]);
    }
#pragma unroll
    for (int n = 0; n < kPieces; ++n) {
      const float4 before = out_[n * kStride];
      out[4 * n] = sm80::merged(before.x, out[4 * n], scales[0]);
      out[4 * n + 1] = sm80::merged(before.y, out[4 * n + 1], scales[0]);
      out[4 * n + 2] = sm80::merged(before.z, out[4 * n + 2], scales[1]);
      out[4 * n + 3] = sm80::merged(before.w, out[4 * n + 3], scales[1]);
    }
  }

  float4* const out_;
  float row_max_[2], row_sum_[2];
  // Of the split that ends, whose P V may still be under way.
  float ended_max_[2], ended_sum_[2];
  bool is_empty_ = true;
  int end_;  // of the present split: the first key of the next
};
struct NoPrefillSplits {
  __device__ NoPrefillSplits(float4*, int, int) {}
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

  // After finish_sums(). By all threads of a warp, whose 16 rows all are. Results as panels in shared memory:
  // `to` is the warpgroup's first row of the first.
  __device__ __forceinline__ void stage(const Rows& rows, float softmax_scale_log2, uint32_t to) const {
    float out_scale[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) out_scale[half] = finish(rows, half, softmax_scale_log2);
    // Lane l gives the address of row l % 16 of a group of eight columns, or of the next one.
    const int row = ptx::tid_x() / 32 % 4 * 16 + lane_ % 16;
#pragma unroll
    for (int n = 0; n < kGroups; n += 2) {
      uint32_t words[4];
#pragma unroll
      for (int i = 0; i < 4; ++i)
        words[i] = sm80::pack(rows.out[4 * n + 2 * i] * out_scale[i % 2],
                              rows.out[4 * n + 2 * i + 1] * out_scale[i % 2], T());
      ptx::stmatrix_x4(to + n / 8 * Tile::kQueryPanelBytes + swizzled(row, n % 8 + lane_ / 16), words);
    }
  }

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
  using Splits = std::conditional_t<Tile::kFixedSplits, PrefillSplits<Rows>, NoPrefillSplits>;
  // Named barriers: two that order the warpgroups' wgmma (ping-pong), then one of each warpgroup alone.
  static constexpr int kSchedulerBarrier = 1, kWarpgroupBarrier = kSchedulerBarrier + Tile::kConsumers;

 public:
  // `warpgroup`: of the consumers.
  __device__ PrefillConsumer(const PrefillParams& params, const Shared& shared, int warpgroup)
      : prefill_(params),
        params_(params.attention),
        shared_(shared),
        warpgroup_(warpgroup),
        cp_async_rows_(params.box_rows == 0 && Tile::kWarpsOfOperand == 1),
        cp_async_queries_(params.box_tokens == 0),
        softmax_scale_log2_(sm80::softmax_scale_log2_of(params.attention)) {}

  __device__ void run() {
    if (warpgroup_ == Tile::kConsumers - 1) scheduler_barrier_arrive();
    for (PipelineState state;; state.advance(Tile::kWorkTileStages)) {
      ptx::mbarrier_wait(shared_.work_tile_full(state.stage), state.parity);
      const PrefillWorkTile& work_tile = shared_.work_tile(state.stage);
      if (work_tile.num_tiles < 0) break;
      ptx::mbarrier_wait(shared_.queries_full(queries_.stage, warpgroup_), queries_.parity);
      if (cp_async_queries_) ptx::fence_proxy_async();
      if (ptx::warp_uniform(rows_of(work_tile).num_rows) > warpgroup_ * Tile::kConsumerRows)
        attend(work_tile);
      else
        pass(work_tile);
      release(shared_.work_tile_empty(state.stage));
    }
    if (is_leader()) ptx::cp_async_bulk_wait_until_read();
  }

 private:
  // The other consumer has rows, this one none: turns pass, and stages are free.
  __device__ __forceinline__ void pass(const PrefillWorkTile& work_tile) {
    const int num_tiles = ptx::warp_uniform(work_tile.num_tiles);
    release_results();
#pragma unroll 1
    for (int i = 0; i < num_tiles; ++i) {
      if (i > 0) {
        scheduler_barrier_sync();
        scheduler_barrier_arrive();
      }
      wait_for_keys();
      release(shared_.keys_empty(keys_.stage));
      keys_.advance(Tile::kStages);
      wait_for_values();
      release_values();
    }
    release_queries(work_tile);
  }

  __device__ __forceinline__ void attend(const PrefillWorkTile& work_tile) {
    const uint32_t q = shared_.queries(queries_.stage) + warpgroup_ * Tile::kConsumerRows * kPanelRowBytes;
    // What the compiler takes for different from lane to lane costs an instruction for each product: their
    // descriptors are in uniform registers.
    const int num_tiles = ptx::warp_uniform(work_tile.num_tiles);
    const KeyRange full{ptx::warp_uniform(work_tile.full.begin), ptx::warp_uniform(work_tile.full.end)};
    int first_key = ptx::warp_uniform(work_tile.first_key);
    Rows rows;
    Splits splits(shared_.splits(warpgroup_), first_key, params_.plan.kv_tile_keys);
    rows.clear();
    if (num_tiles == 0) {
      release_results();
      release_queries(work_tile);
    } else {
      rows.hold_queries(q);
      wait_for_keys();
      ptx::wgmma_fence();
      rows.multiply_keys(q, shared_.keys(keys_.stage));
      ptx::wgmma_wait_group<0>();
      release_results();
      score<false>(rows, work_tile, first_key);
      rows.exponentiate(softmax_scale_log2_);
      rows.rescale_and_pack_p();
      wait_for_keys_or_end(num_tiles > 1, work_tile);
      // Most tiles are plain. Their code stands by itself: behind a jump over that of others, instructions
      // come late.
      for (int i = 1; i < num_tiles;) {
#pragma unroll 1
        for (; i < num_tiles && is_plain(full, first_key + Tile::kKeys); ++i)
          add_tile<true>(rows, splits, work_tile, q, first_key += Tile::kKeys, i + 1 < num_tiles);
#pragma unroll 1
        for (; i < num_tiles && !is_plain(full, first_key + Tile::kKeys); ++i)
          add_tile<false>(rows, splits, work_tile, q, first_key += Tile::kKeys, i + 1 < num_tiles);
      }
      wait_for_values();
      ptx::wgmma_fence();
      rows.multiply_values(shared_.values(values_.stage));
      ptx::wgmma_wait_group<0>();
      ptx::fence_operand(rows.out);
      release_values();
    }
    rows.finish_sums();
    if constexpr (Tile::kFixedSplits) splits.finish(rows, softmax_scale_log2_);
    // Else the compiler takes the warps of a warpgroup for diverged and serialises every wgmma.
    ptx::barrier_sync(kWarpgroupBarrier + warpgroup_, 128);
    const PrefillEpilogue<T, Tile> epilogue(params_, rows_of(work_tile), warpgroup_);
    if (holds_results_) {
      epilogue.stage(rows, softmax_scale_log2_, q);
      ptx::fence_proxy_async();
      ptx::barrier_sync(kWarpgroupBarrier + warpgroup_, 128);
      if (is_leader()) store_results(work_tile, q);
    } else {
      epilogue.write(rows, softmax_scale_log2_, work_tile.partial_idx);
    }
  }

  // Whether the warpgroup's results go to memory by TMA: they are final, and a whole box.
  __device__ __forceinline__ bool can_stage_results(const PrefillWorkTile& work_tile) const {
    return Tile::kStagesResults && prefill_.stores_boxes && work_tile.partial_idx < 0 &&
           rows_of(work_tile).num_rows >= (warpgroup_ + 1) * Tile::kConsumerRows;
  }
  // By the leader. `from`: the warpgroup's queries, whose place results have.
  __device__ __forceinline__ void store_results(const PrefillWorkTile& work_tile, uint32_t from) const {
    const int token =
        work_tile.tile.first_token + work_tile.tile.first_query + warpgroup_ * prefill_.box_tokens;
#pragma unroll
    for (int panel = 0; panel < Tile::kVPanels; ++panel)
      ptx::cp_async_bulk_tensor_store(&prefill_.out, panel * kPanelColumns, work_tile.head * params_.group,
                                      token, from + panel * Tile::kQueryPanelBytes);
    ptx::cp_async_bulk_commit_group();
  }
  // The place of the work tile's results before this one is free, as soon as they have been read from it.
  __device__ __forceinline__ void release_results() {
    if constexpr (Tile::kStagesResults) {
      if (holds_results_ && is_leader()) {
        ptx::cp_async_bulk_wait_until_read();
        ptx::mbarrier_arrive(shared_.queries_empty(queries_.stage ^ 1, warpgroup_),
                             Tile::kConsumerWarps / Tile::kConsumers);
      }
      holds_results_ = false;
    }
  }
  __device__ __forceinline__ static bool is_leader() { return threadIdx.x % 128 == 0; }

  // QK^T of the KV tile from `first_key` on, P V of the one before. `more`: there is another one.
  template <bool kPlain>
  __device__ __forceinline__ void add_tile(Rows& rows, [[maybe_unused]] Splits& splits,
                                           const PrefillWorkTile& work_tile, uint32_t q, int first_key,
                                           bool more) {
    scheduler_barrier_sync();
    ptx::wgmma_fence();
    rows.multiply_keys(q, shared_.keys(keys_.stage));
    wait_for_values();
    rows.multiply_values(shared_.values(values_.stage));
    scheduler_barrier_arrive();
    ptx::wgmma_wait_group<1>();
    [[maybe_unused]] bool begins_split = false;
    if constexpr (Tile::kFixedSplits)
      begins_split = splits.ends_before(first_key, params_.plan.kv_tile_keys, rows);
    score<kPlain>(rows, work_tile, first_key);
    if constexpr (Tile::kExponentiatesBesidePv) {
      rows.exponentiate(softmax_scale_log2_);
      // The spin loop in this keeps the compiler from moving the next wait before the softmax.
      wait_for_keys_or_end(more, work_tile);
    }
    ptx::wgmma_wait_group<0>();
    ptx::fence_operand(rows.out);
    release_values();
    if constexpr (Tile::kFixedSplits)
      if (begins_split) splits.add_ended(rows, softmax_scale_log2_);
    if constexpr (!Tile::kExponentiatesBesidePv) {
      rows.exponentiate(softmax_scale_log2_);
      wait_for_keys_or_end(more, work_tile);
    }
    rows.rescale_and_pack_p();
  }

  // Of a KV tile: without cap and mask.
  __device__ __forceinline__ bool is_plain(const KeyRange& full, int first_key) const {
    return params_.logit_cap <= 0.0f && first_key >= full.begin && first_key + Tile::kKeys <= full.end;
  }

  // The stage of K is free; cap, mask and row max.
  template <bool kPlain>
  __device__ __forceinline__ void score(Rows& rows, const PrefillWorkTile& work_tile, int first_key) {
    ptx::fence_operand(rows.scores);
    release(shared_.keys_empty(keys_.stage));
    keys_.advance(Tile::kStages);
    if (!kPlain && params_.logit_cap > 0.0f) {
      const sm80::ScoreCap cap(params_);
#pragma unroll
      for (float& score : rows.scores) score = cap(score);
    }
    if (!kPlain && (first_key < work_tile.full.begin || first_key + Tile::kKeys > work_tile.full.end))
      rows.mask_scores(params_, rows_of(work_tile), prefill_row<Tile>(warpgroup_), first_key,
                       {work_tile.tile.kv_begin, work_tile.tile.kv_end});
    rows.raise_max(softmax_scale_log2_);
  }

  // Computed again where it is wanted, since registers are short.
  __device__ __forceinline__ sm80::WorkTileRows rows_of(const PrefillWorkTile& work_tile) const {
    return {params_, work_tile.tile, work_tile.head, most_rows<Tile>(params_)};
  }

  __device__ __forceinline__ void wait_for_keys() const {
    ptx::mbarrier_wait(shared_.keys_full(keys_.stage), keys_.parity);
    if (cp_async_rows_) ptx::fence_proxy_async();
  }
  // Waits for the next K; without any, the queries are free.
  __device__ __forceinline__ void wait_for_keys_or_end(bool more, const PrefillWorkTile& work_tile) {
    if (more)
      wait_for_keys();
    else
      release_queries(work_tile);
  }
  __device__ __forceinline__ void wait_for_values() const {
    ptx::mbarrier_wait(shared_.values_full(values_.stage), values_.parity);
    if (cp_async_rows_) ptx::fence_proxy_async();
  }
  __device__ __forceinline__ void release_values() {
    release(shared_.values_empty(values_.stage));
    values_.advance(Tile::kStages);
  }
  // Where results will take their place, that is for release_results() to do.
  __device__ __forceinline__ void release_queries(const PrefillWorkTile& work_tile) {
    holds_results_ = can_stage_results(work_tile);
    if (!holds_results_) release(shared_.queries_empty(queries_.stage, warpgroup_));
    queries_.advance(Tile::kQueryStages);
  }
  // One arrival a warp.
  __device__ __forceinline__ static void release(uint32_t barrier) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(barrier);
  }

  // Without turns, the warpgroup's own: some barrier keeps the compiler from taking its warps for diverged.
  __device__ __forceinline__ void scheduler_barrier_sync() const {
    if constexpr (!Tile::kTakesTurns) return ptx::barrier_sync(kWarpgroupBarrier + warpgroup_, 128);
    ptx::barrier_sync(kSchedulerBarrier + warpgroup_, 128 * Tile::kConsumers);
  }
  __device__ __forceinline__ void scheduler_barrier_arrive() const {
    if constexpr (!Tile::kTakesTurns) return;
    ptx::barrier_arrive(kSchedulerBarrier + (warpgroup_ ^ 1), 128 * Tile::kConsumers);
  }

  const PrefillParams& prefill_;
  const AttentionParams& params_;
  const Shared& shared_;
  const int warpgroup_;
  const bool cp_async_rows_, cp_async_queries_;
  const float softmax_scale_log2_;
  PipelineState queries_, keys_, values_;
  bool holds_results_ = false;  // in the place of the queries before the present ones
};

// The producer of K, or of V.
template <class T, Element kKv, class Tile, bool kValues>
using PrefillProducerOf = std::conditional_t<is_fp8(kKv), PrefillFp8Producer<T, kKv, Tile, kValues>,
                                             PrefillProducer<Tile, PrefillShared<Tile>, kValues>>;

template <class T, Element kKv, class Tile>
__global__ void __launch_bounds__(Tile::kThreads, 1)
    prefill_kernel(const __grid_constant__ PrefillParams params) {
  extern __shared__ __align__(kSwizzleAtom) char memory[];
  const PrefillShared<Tile> shared(memory);
  if (threadIdx.x == 0) shared.init_barriers();
  ptx::griddepcontrol_wait();
  write_padding(params.attention, num_planned_tokens<Tile>(params.attention));
  __syncthreads();
  const int warp = ptx::warp_uniform(static_cast<int>(threadIdx.x) / 32);
  if (warp < Tile::kProducerWarps) {
    ptx::setmaxnreg_dec<Tile::kProducerRegisters>();
    if (warp < Tile::kWarpsOfOperand)
      PrefillProducerOf<T, kKv, Tile, false>(params, shared, warp).run();
    else if (warp < Tile::kLoadWarps)
      PrefillProducerOf<T, kKv, Tile, true>(params, shared, warp - Tile::kWarpsOfOperand).run();
    else if (warp < Tile::kLoadWarps + Tile::kQueryWarps)
      PrefillScheduler<Tile, PrefillShared<Tile>>(params, shared, warp - Tile::kLoadWarps).run();
  } else {
    ptx::setmaxnreg_inc<Tile::kConsumerRegisters>();
    PrefillConsumer<T, Tile>(params, shared, warp / 4 - Tile::kProducerWarps / 4).run();
  }
}

template <class T, Element kKv, class Tile>
void launch_prefill_tile(const PrefillParams& params, int num_ctas, void* stream) {
  constexpr int kSharedBytes = PrefillShared<Tile>::kBytes;
  constexpr auto kKernel = prefill_kernel<T, kKv, Tile>;
  allow_shared_memory<kKernel>(kSharedBytes, "attention: shared memory");
  launch_dependent<PrefillParams>(kKernel, dim3(static_cast<unsigned>(num_ctas)), Tile::kThreads,
                                  kSharedBytes, stream, params, "attention");
}

template <class T, Element kKv, int kHeadDimQk, int kHeadDimV>
void launch_prefill(const PrefillParams& params, int num_ctas, void* stream) {
  if constexpr (!is_fp8(kKv) && has_fixed_splits({kHeadDimQk, kHeadDimV}))
    if (params.attention.plan.split_bank != nullptr)
      return launch_prefill_tile<T, kKv, PrefillTile<kHeadDimQk, kHeadDimV, false, true>>(params, num_ctas,
                                                                                          stream);
  launch_prefill_tile<T, kKv, PrefillTile<kHeadDimQk, kHeadDimV, is_fp8(kKv)>>(params, num_ctas, stream);
}

}  // namespace attend::kernels::cuda::sm90
