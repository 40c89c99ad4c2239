// Prefill attention on sm_90a with e4m3 queries, keys and values, multiplied without conversion. Same
// schedule as prefill.cuh: two consumer warpgroups alternate on the tensor cores. 8-bit wgmma requires both
// operands K-major, so a separate warpgroup transposes values in shared memory. Keys of transposed values are
// in the order that P has in registers (prefill_e4m3_layout.h derives it).
//
//   tile        128 rows x 128 keys; head dims 64/64, 128/128, 192/128
//   warps       2 consumer warpgroups of 64 rows each: QK^T by wgmma m64n(keys)k32, PV by
//               m64n(head_dim_v)k32, P in registers. A producer warpgroup: a warp for K and one for V, by TMA
//               if pages have 8 rows or more, else by cp.async, and a warp for each consumer's queries, one
//               of which schedules. A warpgroup that transposes V, 32 keys per warp
//   registers   200 per consumer thread, 64 per producer thread, 48 per transposing thread (setmaxnreg);
//               launched with 128
//   shared      144 KB at head dims 64, 160 KB at 128, 208 KB at 192/128: two work tiles with their queries
//               (one at 192), three stages of K and of V, two of V^T. Rows are 128 bytes apart, also at 64
//   bytes       per KV tile: 16 KB at head dims 64, 32 KB at 128, 40 KB at 192/128
//   bound       exponentials of the softmax, which take as long as the products: 1024 cycles for 128 x 128 at
//               head dim 128
//
// Precision. P is rounded to e4m3, with a relative error of 2^-4 for normal values. P is scaled by 2^8, so
// that small values are normal too, and is relative to a row max that is stale by at most 2^0.75: it is below
// 448 / 1.04 (448 is the largest e4m3 value), normal down to 2^-14 of a row's largest value, and zero below
// 2^-18. The row sum is float32 over unrounded P, so rounding of P cancels on average. Tensor cores add e4m3
// products with about 14 bits, truncated: a sum over n keys loses at most n / 32 2^-14 of its largest part,
// about 2^-10 if signs differ. In comparison, rounding P loses 2^-4 / sqrt(n). FlashAttention-3 does the
// same.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include "attend/kernels/attention/cuda/common/head_scales.cuh"
#include "attend/kernels/attention/cuda/common/row_state.cuh"
#include "attend/kernels/attention/cuda/common/warp_rows.cuh"
#include "attend/kernels/attention/cuda/sm90/prefill/prefill_loads.cuh"
#include "attend/kernels/attention/cuda/sm90/prefill/prefill_softmax.cuh"
#include "attend/kernels/attention/cuda/sm90/prefill/prefill_stages.cuh"
#include "attend/kernels/attention/cuda/sm90/prefill_e4m3/prefill_e4m3_layout.h"
#include "attend/kernels/common/cuda/ptx/copy.cuh"
#include "attend/kernels/common/cuda/ptx/fp8.cuh"
#include "attend/kernels/common/cuda/ptx/mbarrier.cuh"
#include "attend/kernels/common/cuda/ptx/mma.cuh"
#include "attend/kernels/common/cuda/ptx/thread.cuh"
#include "attend/kernels/common/cuda/ptx/warpgroup.cuh"
#include "attend/kernels/common/cuda/ptx/wgmma.cuh"
#include "attend/kernels/common/cuda/sm90/pipeline_state.cuh"
#include "attend_generated/wgmma_e4m3_products.cuh"

namespace attend::kernels::cuda::sm90 {

// Tile of prefill in e4m3: shape, warps, registers and layout of shared memory.

// Shape, warps and registers of the tile.
template <int kQk, int kV>
struct PrefillE4m3Tile {
  static constexpr int kHeadDimQk = kQk, kHeadDimV = kV;
  static constexpr int kElementBytes = 1, kRows = kPrefillRows;
  static constexpr bool kSupportsInlinePlan = false, kVerifies = false, kPingPong = true;
  static constexpr int kCtasPerWorkTile = 1;
  static constexpr int kKeys = kPanelRowBytes;  // the bytes of a row of V^T
  static constexpr int kPartsPerTile = 1;
  static constexpr int kMaxBoxRows = kMaxFp8BoxRows;
  static constexpr int kStages = 3, kKeyStages = kStages;  // stages of V before transposition, and of K
  static constexpr int kTransposedStages = 2;              // stages of V^T
  static constexpr bool kStoresOutWithTma = false, kHasHeadDescales = false, kSeparateQueryWarp = false;
  static constexpr bool kProducerZeroesValues = false;  // the transposing warps do
  static constexpr int kWorkTileStages = 2, kQueryStages = kHeadDimQk > 128 ? 1 : 2;
  static constexpr int kQkPanels = (kHeadDimQk + kPanelRowBytes - 1) / kPanelRowBytes;
  static constexpr int kVPanels = (kHeadDimV + kPanelRowBytes - 1) / kPanelRowBytes;

  static constexpr int kQueryPanelBytes = kRows * kPanelRowBytes;
  static constexpr int kKeyPanelBytes = kKeys * kPanelRowBytes;
  static constexpr int kQueryBytes = kQkPanels * kQueryPanelBytes;
  static constexpr int kKeyBytes = kQkPanels * kKeyPanelBytes;
  static constexpr int kValueBytes = kVPanels * kKeyPanelBytes;
  static constexpr int kTransposedBytes = kHeadDimV * kPanelRowBytes;
  // Contents of PrefillE4m3Shared in addition to PrefillStages.
  static constexpr int kAddedBytes = kTransposedStages * kTransposedBytes, kAddedWorkTileBytes = 0;
  static constexpr int kAddedBarriers = 2 * kTransposedStages;

  // Warps by role; each consumer warpgroup has a warp that loads its queries.
  static constexpr int kConsumers = 2, kConsumerWarps = 4 * kConsumers;
  static constexpr int kConsumerRows = kRows / kConsumers;
  // The consumer arrives at the other's scheduler barrier during its exponentials, when this number of P's
  // kKeys / 8 registers is packed. Exponentials take as long as products, so those of both consumers must not
  // overlap. In work tiles of few KV tiles this would delay the other consumer's first product; there it
  // arrives as soon as its products are issued.
  static constexpr int kPackedBeforeArrive = 4, kMaxTilesForEarlyArrive = 4;
  static constexpr int kLoadWarps = 2;      // for keys, and for values
  static constexpr int kProducerWarps = 4;  // those and two for queries
  static constexpr int kTransposeWarps = 4;
  static constexpr int kFirstConsumerWarp = kProducerWarps + kTransposeWarps;
  static constexpr int kThreads = 32 * (kFirstConsumerWarp + kConsumerWarps);

  // See PrefillTile.
  static constexpr int kProducerRegisters = 64, kTransposeRegisters = 48, kConsumerRegisters = 200;
  static_assert(32 * (kProducerWarps * kProducerRegisters + kTransposeWarps * kTransposeRegisters +
                      kConsumerWarps * kConsumerRegisters) <=
                65536 / kThreads / 8 * 8 * kThreads);
  static_assert(kHeadDimV <= kHeadDimQk && kKeys % kMaxBoxRows == 0 && kHeadDimV % 64 == 0 &&
                kHeadDimQk % 32 == 0);
};

template <class Tile>
struct PrefillE4m3Shared : PrefillStages<Tile> {
  using Stages = PrefillStages<Tile>;

  __device__ explicit PrefillE4m3Shared(char* memory) : Stages(memory) {}

  __device__ uint32_t transposed(int stage) const {
    return this->shared + Stages::kAddedAt + stage * Tile::kTransposedBytes;
  }
  __device__ uint32_t transposed_full(int stage) const { return this->added_barrier(stage); }
  __device__ uint32_t transposed_empty(int stage) const {
    return transposed_full(Tile::kTransposedStages + stage);
  }

  // Called by one thread.
  __device__ void init_barriers() const {
    this->init_work_tile_barriers(Tile::kConsumerWarps + Tile::kLoadWarps + Tile::kTransposeWarps);
    for (int stage = 0; stage < Tile::kStages; ++stage) {
      ptx::mbarrier_init(this->keys_full(stage), 1);
      ptx::mbarrier_init(this->values_full(stage), 1);
      ptx::mbarrier_init(this->keys_empty(stage), Tile::kConsumerWarps);
      ptx::mbarrier_init(this->values_empty(stage), Tile::kTransposeWarps);
    }
    for (int stage = 0; stage < Tile::kTransposedStages; ++stage) {
      ptx::mbarrier_init(transposed_full(stage), Tile::kTransposeWarps);
      ptx::mbarrier_init(transposed_empty(stage), Tile::kConsumerWarps);
    }
    ptx::fence_mbarrier_init();
  }
};

// Register state of a consumer warpgroup of prefill_e4m3.cuh: products, softmax, P in e4m3.

struct PrefillE4m3Precision {
  static constexpr float kSlack = 0.75f, kOffset = 8.0f;
};

// A consumer warpgroup's 64 rows in registers, with P. prefill_e4m3_layout.h defines the column of each
// element of out.
template <class Tile>
struct PrefillE4m3Rows : PrefillSoftmax<Tile::kKeys, Tile::kHeadDimV, PrefillE4m3Precision> {
  using Softmax = PrefillSoftmax<Tile::kKeys, Tile::kHeadDimV, PrefillE4m3Precision>;
  using Softmax::scores, Softmax::out, Softmax::row_max, Softmax::row_sum, Softmax::rescale, Softmax::shifts,
      Softmax::rescales;

  static constexpr int kKeys = Tile::kKeys, kSteps = kKeys / 32, kStepBytes = 32;
  static constexpr float kUnscale = 0x1p-8f;  // 2^-kOffset

  uint32_t p[kSteps][4];  // operand A of wgmma with V^T

  // Issues scores = q k^T. `q`: the warpgroup's first row; `k`: the tile.
  __device__ __forceinline__ void multiply_keys(uint32_t q, uint32_t k) {
    constexpr int kStepsPerPanel = kPanelRowBytes / kStepBytes;
    const uint64_t a = ptx::smem_descriptor(q), b = ptx::smem_descriptor(k);
#pragma unroll
    for (int i = 0; i < Tile::kHeadDimQk / kStepBytes; ++i) {
      const int panel = i / kStepsPerPanel, in_panel = i % kStepsPerPanel * kStepBytes;
      ptx::wgmma_mma_async(scores, a + (panel * Tile::kQueryPanelBytes + in_panel) / 16,
                           b + (panel * Tile::kKeyPanelBytes + in_panel) / 16, i > 0, __nv_fp8_e4m3());
    }
    ptx::wgmma_commit_group();
  }

  // Issues out += P v over all keys of the tile. Keys outside of the work tile are zeros in P and v: with
  // branches around them ptxas serializes the products (its note C7520). `v`: transposed.
  __device__ __forceinline__ void multiply_values(uint32_t v) {
    const uint64_t b = ptx::smem_descriptor(v);
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
      ptx::wgmma_mma_async_rs(out, p[step], b + step * kStepBytes / 16, true, __nv_fp8_e4m3());
    ptx::wgmma_commit_group();
  }

  // Second half of the softmax, called when PV of the previous KV tile has ended: P = 2^(kOffset +
  // softmax_scale_log2 (score - row_max)). The unit for exponentials works in parallel with packing and sums.
  // `arrive_next`: called once between exponentials.
  template <class ArriveNext>
  __device__ __forceinline__ void make_p(float softmax_scale_log2, const ArriveNext& arrive_next) {
    float sums[2][2] = {};
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
#pragma unroll
      for (int reg = 0; reg < 4; ++reg) {
        if (4 * step + reg == Tile::kPackedBeforeArrive) arrive_next();
        const int half = reg % 2;
        float p_values[4];
#pragma unroll
        for (int byte = 0; byte < 4; ++byte) {
          const float score = scores[e4m3::score_for_byte(step, reg, byte)];
          p_values[byte] = ptx::ex2_approx(score * softmax_scale_log2 - shifts[half]);
          sums[half][byte % 2] += p_values[byte];
        }
        p[step][reg] = ptx::cvt_e4m3x4(p_values[0], p_values[1], p_values[2], p_values[3]);
      }
#pragma unroll
    for (int half = 0; half < 2; ++half)
      row_sum[half] = row_sum[half] * rescale[half] + (sums[half][0] + sums[half][1]);
    if (rescales) {
#pragma unroll
      for (int i = 0; i < Tile::kHeadDimV / 2; ++i) out[i] *= rescale[i / 2 % 2];
    }
  }

  // Sums row sums over all columns and removes the factor 2^kOffset of P. Called once, after the last tile.
  __device__ __forceinline__ void finish_sums() {
#pragma unroll
    for (float& s : row_sum) s = quad_sum(s) * kUnscale;
  }
};

// Warpgroup of prefill_e4m3.cuh that transposes e4m3 values in shared memory, as wgmma requires them.

// Transposes values. Values that are multiplied by P = 0 must not be NaN, and rows that were not loaded may
// contain data of an earlier tile, so keys outside of the work tile become zero here.
template <class Tile>
class PrefillTransposer {
  using Shared = PrefillE4m3Shared<Tile>;
  static constexpr int kColumnGroups = Tile::kHeadDimV / e4m3::kColumnsAtOnce;
  // Loaded before the first is stored, so that latencies overlap.
  static constexpr int kBatch = 4;
  static_assert(Tile::kTransposeWarps * e4m3::kKeysAtOnce == Tile::kKeys && kColumnGroups % kBatch == 0 &&
                Tile::kVPanels == 1);

 public:
  // `warp`: index among the transposing warps.
  __device__ PrefillTransposer(const Shared& shared, int warp)
      : shared_(shared), first_in_tile_(warp * e4m3::kKeysAtOnce) {}

  // Transposes values of all work tiles.
  __device__ void run() {
    for (PipelineState state;; state.advance(Tile::kWorkTileStages)) {
      ptx::mbarrier_wait(shared_.work_tile_full(state.stage), state.parity);
      const PrefillWorkTile& work_tile = shared_.work_tile(state.stage);
      const int num_tiles = work_tile.num_tiles;
      if (num_tiles < 0) return;
      // Relative to the warp's first key.
      int begin = work_tile.tile.kv_begin - work_tile.first_key - first_in_tile_;
      int end = work_tile.tile.kv_end - work_tile.first_key - first_in_tile_;
      for (int i = 0; i < num_tiles; ++i, begin -= Tile::kKeys, end -= Tile::kKeys) {
        ptx::mbarrier_wait(shared_.values_full(values_.stage), values_.parity);
        ptx::mbarrier_wait(shared_.transposed_empty(transposed_.stage), transposed_.parity ^ 1);
        transpose(begin, end);
        ptx::fence_proxy_async();
        __syncwarp();
        if (lane_ == 0) {
          ptx::mbarrier_arrive(shared_.transposed_full(transposed_.stage));
          ptx::mbarrier_arrive(shared_.values_empty(values_.stage));
        }
        values_.advance(Tile::kStages);
        transposed_.advance(Tile::kTransposedStages);
      }
      __syncwarp();
      if (lane_ == 0) ptx::mbarrier_arrive(shared_.work_tile_empty(state.stage));
    }
  }

 private:
  // Transposes the warp's keys of a tile; keys outside of [begin, end) become zero.
  __device__ void transpose(int begin, int end) const {
    // Masks double the number of instructions, and are needed in few tiles.
    const bool all = ptx::warp_uniform(static_cast<int>(begin <= 0 && end >= e4m3::kKeysAtOnce)) != 0;
    uint32_t key_masks[2] = {};
    if (!all) {
#pragma unroll
      for (int piece = 0; piece < 2; ++piece)
        key_masks[piece] = e4m3::key_byte_mask(lane_, piece, begin, end);
    }
    const uint32_t from = shared_.values(values_.stage);
    const int piece = first_in_tile_ / e4m3::kPieceBytes + e4m3::transposed_piece(lane_);
    // Groups of 16 columns have the same swizzle, so their addresses differ by a constant.
    const uint32_t to = shared_.transposed(transposed_.stage) +
                        static_cast<uint32_t>(e4m3::piece_offset(e4m3::transposed_row(lane_), piece));
#pragma unroll
    for (int first = 0; first < kColumnGroups; first += kBatch) {
      uint32_t columns[kBatch][4];
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const int at = e4m3::piece_offset(first_in_tile_ + lane_, first + i);
        ptx::ldmatrix_x4_trans(columns[i], from + static_cast<uint32_t>(at));
      }
      uint32_t rows[kBatch][4];
#pragma unroll
      for (int i = 0; i < kBatch; ++i)
#pragma unroll
        for (int result = 0; result < 4; ++result) {
          const int reg = e4m3::first_register(result);
          rows[i][result] = __byte_perm(columns[i][reg], columns[i][reg + 1], e4m3::selector(result));
        }
      if (!all) {
#pragma unroll
        for (int i = 0; i < kBatch; ++i)
#pragma unroll
          for (int result = 0; result < 4; ++result) rows[i][result] &= key_masks[result / 2];
      }
#pragma unroll
      for (int i = 0; i < kBatch; ++i)
        ptx::stmatrix_x4(to + static_cast<uint32_t>((first + i) * e4m3::kColumnsAtOnce * kPanelRowBytes),
                         rows[i]);
    }
  }

  const Shared& shared_;
  const int lane_ = static_cast<int>(threadIdx.x) % 32;
  const int first_in_tile_;  // first of the warp's 32 keys
  PipelineState values_, transposed_;
};

// Epilogue of a work tile of prefill_e4m3.cuh: output or partial results, and LSE.

template <class Tile>
class PrefillE4m3Epilogue : PrefillResults {
  using Rows = PrefillE4m3Rows<Tile>;
  static constexpr int kColumnGroups = Tile::kHeadDimV / 16;

 public:
  __device__ PrefillE4m3Epilogue(const AttentionParams& params, const WorkTileRows& rows, int warpgroup)
      : PrefillResults(params, rows, prefill_row<Tile>(warpgroup)) {}

  // Called after finish_sums() by all threads of a warp. `partial_idx`: partial result of the plan; -1: the
  // output.
  __device__ __forceinline__ void write(const Rows& rows, float softmax_scale_log2,
                                        const HeadDescales& descales, int partial_idx) const {
    if (partial_idx >= 0) return write_partial(rows, descales, partial_idx);
    write_lse(rows, softmax_scale_log2);
    float out_scale[2];
#pragma unroll
    for (int half = 0; half < 2; ++half)
      out_scale[half] = load_head_scale(rows, half, softmax_scale_log2) * (Rows::kUnscale * descales.out);
    if (params_.out_element == Element::kF32)
      write_wide(rows, out_scale);
    else if (params_.out_element == Element::kBF16)
      write_narrow<__nv_bfloat16>(rows, out_scale);
    else
      write_narrow<__half>(rows, out_scale);
  }

 private:
  __device__ __forceinline__ void write_wide(const Rows& rows, const float (&out_scale)[2]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int tile_row = first_row_ + 8 * half;
      if (tile_row >= rows_.num_rows) continue;
      write_floats(rows, half, out_scale[half], reinterpret_cast<float*>(out_row(tile_row, sizeof(float))));
    }
  }

  // Writes row maxima in units common to all work tiles: merge kernels do not apply descales per head.
  __device__ __forceinline__ void write_partial(const Rows& rows, const HeadDescales& descales,
                                                int partial_idx) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int tile_row = first_row_ + 8 * half;
      if (tile_row >= rows_.num_rows) continue;
      const int64_t partial_row = int64_t{partial_idx} * params_.plan.partial_rows + tile_row;
      const float to_shared_units = params_.logit_cap > 0.0f ? 1.0f : descales.scores;
      if (lane_ % 4 == 0)
        params_.plan.partial_state[partial_row] =
            make_float2(rows.row_max[half] * to_shared_units, rows.row_sum[half]);
      write_floats(rows, half, Rows::kUnscale * descales.out,
                   params_.plan.partial_out + partial_row * params_.head_dim_v);
    }
  }

  // A lane holds four columns of each group of 16.
  __device__ __forceinline__ void write_floats(const Rows& rows, int half, float scale, float* to) const {
#pragma unroll
    for (int column_group = 0; column_group < kColumnGroups; ++column_group) {
      const int column = 16 * column_group + e4m3::lane_first_column(lane_);
      if (column < params_.head_dim_v)
        *reinterpret_cast<float4*>(to + column) = make_float4(
            element(rows, column_group, half, 0) * scale, element(rows, column_group, half, 1) * scale,
            element(rows, column_group, half, 2) * scale, element(rows, column_group, half, 3) * scale);
    }
  }

  // The four lanes of a row transpose their parts of four groups of 16 columns, so that each writes a whole
  // group and four lanes write 128 bytes.
  template <class T>
  __device__ __forceinline__ void write_narrow(const Rows& rows, const float (&out_scale)[2]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int tile_row = first_row_ + 8 * half;
      const bool valid = tile_row < rows_.num_rows;
      auto* const to = reinterpret_cast<uint4*>(out_row(valid ? tile_row : 0, 2));
#pragma unroll
      for (int first = 0; first < kColumnGroups; first += 4) {
        uint32_t low[4], high[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          low[i] = pack(element(rows, first + i, half, 0) * out_scale[half],
                        element(rows, first + i, half, 1) * out_scale[half], T());
          high[i] = pack(element(rows, first + i, half, 2) * out_scale[half],
                         element(rows, first + i, half, 3) * out_scale[half], T());
        }
        quad_transpose(low, lane_);
        quad_transpose(high, lane_);
        const int column_group = first + lane_ % 4;
        if (valid && column_group * 16 < params_.head_dim_v) {
          to[2 * column_group] = make_uint4(low[0], high[0], low[1], high[1]);
          to[2 * column_group + 1] = make_uint4(low[2], high[2], low[3], high[3]);
        }
      }
    }
  }

  __device__ __forceinline__ static float element(const Rows& rows, int column_group, int half, int column) {
    return rows.out[e4m3::element_for_column(column_group, half, column)];
  }
};

// Consumer: one warpgroup, for all work tiles of the CTA. Like PrefillConsumer, with transposed values.
template <class Tile>
class PrefillE4m3Consumer : PrefillConsumerBase<Tile, PrefillE4m3Shared<Tile>> {
  using Shared = PrefillE4m3Shared<Tile>;
  using Base = PrefillConsumerBase<Tile, Shared>;
  using Base::kWarpgroupBarrier, Base::params_, Base::shared_, Base::warpgroup_, Base::queries_at,
      Base::release, Base::scheduler_barrier_arrive, Base::scheduler_barrier_sync, Base::work_tile_rows;
  using Rows = PrefillE4m3Rows<Tile>;

 public:
  // `warpgroup`: index among the consumers.
  __device__ PrefillE4m3Consumer(const PrefillParams& params, const Shared& shared, int warpgroup)
      : Base(params, shared, warpgroup),
        cp_async_rows_(params.box_rows == 0),
        cp_async_queries_(params.box_tokens == 0) {}

  __device__ void run() {
    if (warpgroup_ == 1) scheduler_barrier_arrive();
    for (PipelineState state;; state.advance(Tile::kWorkTileStages)) {
      ptx::mbarrier_wait(shared_.work_tile_full(state.stage), state.parity);
      const PrefillWorkTile& work_tile = shared_.work_tile(state.stage);
      if (work_tile.num_tiles < 0) return;
      const HeadDescales descales = load_descales(params_, work_tile.tile.request, work_tile.head);
      ptx::mbarrier_wait(shared_.queries_full(queries_.stage, warpgroup_), queries_.parity);
      if (cp_async_queries_) ptx::fence_proxy_async();
      attend(work_tile, descales);
      release(shared_.work_tile_empty(state.stage));
    }
  }

 private:
  // scale log2(e), for exp2; capped scores are already scaled.
  __device__ __forceinline__ float get_softmax_scale_log2(const HeadDescales& descales) const {
    return cuda::get_softmax_scale_log2(params_) * (params_.logit_cap > 0.0f ? 1.0f : descales.scores);
  }

  __device__ __forceinline__ void attend(const PrefillWorkTile& work_tile, const HeadDescales& descales) {
    const uint32_t q = queries_at(queries_.stage);
    const int num_tiles = ptx::warp_uniform(work_tile.num_tiles);
    const KeyRange full{ptx::warp_uniform(work_tile.full.begin), ptx::warp_uniform(work_tile.full.end)};
    int first_key = ptx::warp_uniform(work_tile.first_key);
    Rows rows;
    rows.clear();
    if (num_tiles == 0) {
      release_queries();
    } else {
      wait_for_keys();
      ptx::wgmma_fence();
      rows.multiply_keys(q, shared_.keys(keys_.stage));
      ptx::wgmma_wait_group<0>();
      score<false>(rows, work_tile, descales, first_key);
      rows.make_p(get_softmax_scale_log2(descales), [] {});
      wait_for_keys_or_end(num_tiles > 1);
      // See PrefillConsumer::add_tiles().
      for (int i = 1; i < num_tiles;) {
#pragma unroll 1
        for (; i < num_tiles && is_plain(full, first_key + Tile::kKeys); ++i)
          add_tile<true>(rows, work_tile, descales, q, first_key += Tile::kKeys, i, num_tiles);
#pragma unroll 1
        for (; i < num_tiles && !is_plain(full, first_key + Tile::kKeys); ++i)
          add_tile<false>(rows, work_tile, descales, q, first_key += Tile::kKeys, i, num_tiles);
      }
      wait_for_values();
      ptx::wgmma_fence();
      rows.multiply_values(shared_.transposed(values_.stage));
      ptx::wgmma_wait_group<0>();
      ptx::fence_operand(rows.out);
      release_values();
    }
    rows.finish_sums();
    // Without this barrier the compiler assumes that the warps of a warpgroup diverge and serializes every
    // wgmma.
    ptx::barrier_sync(kWarpgroupBarrier + warpgroup_, 128);
    PrefillE4m3Epilogue<Tile>(params_, work_tile_rows(work_tile), warpgroup_)
        .write(rows, get_softmax_scale_log2(descales), descales, work_tile.partial_idx);
  }

  // QK^T of KV tile `i` of num_tiles, which begins at `first_key`, and P V of the previous one.
  template <bool kPlain>
  __device__ __forceinline__ void add_tile(Rows& rows, const PrefillWorkTile& work_tile,
                                           const HeadDescales& descales, uint32_t q, int first_key, int i,
                                           int num_tiles) {
    const bool arrives_late = num_tiles > Tile::kMaxTilesForEarlyArrive;
    scheduler_barrier_sync();
    ptx::wgmma_fence();
    rows.multiply_keys(q, shared_.keys(keys_.stage));
    wait_for_values();
    rows.multiply_values(shared_.transposed(values_.stage));
    if (!arrives_late) scheduler_barrier_arrive();
    ptx::wgmma_wait_group<1>();
    score<kPlain>(rows, work_tile, descales, first_key);
    ptx::wgmma_wait_group<0>();
    ptx::fence_operand(rows.out);
    release_values();
    rows.make_p(get_softmax_scale_log2(descales), [&] { arrive_next_if(arrives_late); });
    wait_for_keys_or_end(i + 1 < num_tiles);
  }

  // Returns true for a KV tile without logit cap and mask.
  __device__ __forceinline__ bool is_plain(const KeyRange& full, int first_key) const {
    return params_.logit_cap <= 0.0f && first_key >= full.begin && first_key + Tile::kKeys <= full.end;
  }

  // Releases the stage of K; applies cap and mask and updates the row max.
  template <bool kPlain>
  __device__ __forceinline__ void score(Rows& rows, const PrefillWorkTile& work_tile,
                                        const HeadDescales& descales, int first_key) {
    ptx::fence_operand(rows.scores);
    release(shared_.keys_empty(keys_.stage));
    keys_.advance(Tile::kStages);
    if (!kPlain && params_.logit_cap > 0.0f) {
      ScoreCap cap(params_);
      cap.to_exponent *= descales.scores;
#pragma unroll
      for (float& score : rows.scores) score = cap(score);
    }
    if (!kPlain && (first_key < work_tile.full.begin || first_key + Tile::kKeys > work_tile.full.end))
      rows.mask_scores(Rows::score_mask(params_, work_tile_rows(work_tile), prefill_row<Tile>(warpgroup_),
                                        first_key, {work_tile.tile.kv_begin, work_tile.tile.kv_end}));
    rows.raise_max(get_softmax_scale_log2(descales));
  }

  __device__ __forceinline__ void wait_for_keys() const {
    ptx::mbarrier_wait(shared_.keys_full(keys_.stage), keys_.parity);
    if (cp_async_rows_) ptx::fence_proxy_async();
  }
  // Waits for the next K; after the last one, releases the queries.
  __device__ __forceinline__ void wait_for_keys_or_end(bool more) {
    if (more)
      wait_for_keys();
    else
      release_queries();
  }
  __device__ __forceinline__ void wait_for_values() const {
    ptx::mbarrier_wait(shared_.transposed_full(values_.stage), values_.parity);
  }
  __device__ __forceinline__ void release_values() {
    release(shared_.transposed_empty(values_.stage));
    values_.advance(Tile::kTransposedStages);
  }
  __device__ __forceinline__ void release_queries() {
    release(shared_.queries_empty(queries_.stage, warpgroup_));
    queries_.advance(Tile::kQueryStages);
  }
  // Arrives in a loop of one iteration, which the compiler cannot prove: it moves neither exponentials nor
  // the barrier across a loop.
  __device__ __forceinline__ void arrive_next_if(bool arrives) const {
    int again = params_.num_kv_heads >> 31;
    asm volatile("" : "+r"(again));
    do {
      if (arrives) scheduler_barrier_arrive();
    } while (again != 0);
  }

  const bool cp_async_rows_, cp_async_queries_;
  PipelineState queries_, keys_, values_;  // values_: stages of V^T
};

template <class Tile>
__global__ void __launch_bounds__(Tile::kThreads, 1)
    prefill_e4m3_kernel(const __grid_constant__ PrefillParams params) {
  using Shared = PrefillE4m3Shared<Tile>;
  extern __shared__ __align__(kSwizzleAtom) char memory[];
  const Shared shared(memory);
  if (threadIdx.x == 0) shared.init_barriers();
  const int warp = begin_roles<Tile>(params.attention);
  if (warp < Tile::kProducerWarps) {
    ptx::setmaxnreg_dec<Tile::kProducerRegisters>();
    if (warp == 0)
      PrefillProducer<Tile, Shared, false>(params, shared).run();
    else if (warp == 1)
      PrefillProducer<Tile, Shared, true>(params, shared).run();
    else
      PrefillScheduler<Tile, Shared>(params, shared, warp - Tile::kLoadWarps, 2).run();
  } else if (warp < Tile::kFirstConsumerWarp) {
    ptx::setmaxnreg_dec<Tile::kTransposeRegisters>();
    PrefillTransposer<Tile>(shared, warp - Tile::kProducerWarps).run();
  } else {
    ptx::setmaxnreg_inc<Tile::kConsumerRegisters>();
    PrefillE4m3Consumer<Tile>(params, shared, (warp - Tile::kFirstConsumerWarp) / 4).run();
  }
}

template <int kHeadDimQk, int kHeadDimV>
void launch_prefill_e4m3(const PrefillParams& params, int num_ctas, void* stream) {
  using Tile = PrefillE4m3Tile<kHeadDimQk, kHeadDimV>;
  launch_prefill_kernel<prefill_e4m3_kernel<Tile>, Tile, PrefillE4m3Shared<Tile>>(params, num_ctas, stream);
}

}  // namespace attend::kernels::cuda::sm90
