// Absorbed MLA with TMA and wgmma: a work tile of 64 rows of one request (query heads packed with query
// tokens) against KV tiles of 64 latent rows, which are the keys and, in their first 512 columns, the values.
//
//   tile        64 rows x 64 keys; 576 columns of QK^T, 512 of PV
//   warps       2 producers of KV tiles, by TMA, or by cp.async where pages are small; 2 of the queries, one
//               of which schedules (rows of fp8: 4 that do all of it); 2 consumer warpgroups: one has the
//               softmax of even KV tiles, the other that of odd ones, and both multiply P of every tile with
//               their half of V
//   registers   224 a consumer thread (accumulators 128, scores 32, P 16), 56 a producer thread (setmaxnreg)
//   shared      226 KB: queries 72, two stages of 72, P 8
//   bytes       of a KV tile: 72 KB; from memory once for all heads, since CTAs of other heads run beside
//   bound       memory up to 64 rows a request; at 128 heads memory and the tensor cores (2176 cycles a tile)
//
// The order of a pair of KV tiles, of which P0 is the first warpgroup's and P1 the second's:
//   first       softmax 0, P0 V0 left, receive P1, P1 V1 left, QK 2
//   second      receive P0, P0 V0 right, softmax 1, P1 V1 right, QK 3
// A softmax so runs beside the products of the other, and parts of a stage are free as soon as those who
// multiply their columns have. A row max is replaced only when a score exceeds it by more
// than 8 powers of two, so accumulators are seldom rescaled; it crosses between the warpgroups with P.
#pragma once

#include "attend/kernels/attention/cuda/common/cta_plan.cuh"
#include "attend/kernels/attention/cuda/common/padding.cuh"
#include "attend/kernels/attention/cuda/common/plan_walk.cuh"
#include "attend/kernels/attention/cuda/common/row_state.cuh"
#include "attend/kernels/attention/cuda/common/warp_rows.cuh"
#include "attend/kernels/attention/cuda/common/work_tile_rows.cuh"
#include "attend/kernels/attention/cuda/sm90/mla_converter.cuh"
#include "attend/kernels/attention/cuda/sm90/mla_kernel.h"
#include "attend/kernels/attention/cuda/sm90/mla_partial.cuh"
#include "attend/kernels/attention/cuda/sm90/mla_schedule.cuh"
#include "attend/kernels/attention/cuda/sm90/mla_shared.cuh"
#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/common/cuda/ptx/copy.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/common/cuda/ptx/global.cuh"
#include "attend/kernels/common/cuda/ptx/integer.cuh"
#include "attend/kernels/common/cuda/ptx/mbarrier.cuh"
#include "attend/kernels/common/cuda/ptx/mma.cuh"
#include "attend/kernels/common/cuda/ptx/tensor_copy.cuh"
#include "attend/kernels/common/cuda/ptx/thread.cuh"
#include "attend/kernels/common/cuda/ptx/warpgroup.cuh"
#include "attend/kernels/common/cuda/ptx/wgmma.cuh"
#include "attend/kernels/common/cuda/sm90/pipeline_state.cuh"
#include "attend_generated/wgmma_products.cuh"

namespace attend::kernels::cuda::sm90 {

// Brings KV tiles of rows of 16 bits. Values that are not the work tile's become zero.
class MlaProducer {
  // Rows of a tile that a warp copies; as many at once: eight lanes copy 128 bytes of a row.
  static constexpr int kRows = kMlaKeys / MlaTile::kLoadWarps, kRowsAtOnce = 4;
  static_assert(kRows == 32);

 public:
  // `warp`: of those that load.
  __device__ MlaProducer(const MlaParams& params, const MlaShared& shared, int warp)
      : params_(params), shared_(shared), warp_(warp) {}

  // `is_early`: the kernel before may still run, and write keys of the new tokens.
  __device__ void run(bool is_early) {
    for (PipelineState place;; place.advance(MlaTile::kScheduleStages)) {
      ptx::mbarrier_wait(shared_.schedule_full(place.stage), place.parity);
      const MlaWorkTile& work_tile = shared_.work_tile(place.stage);
      if (work_tile.num_tiles < 0) return;
      if (params_.box_rows > 0)
        load<true>(work_tile, is_early);
      else
        load<false>(work_tile, is_early);
      is_early = false;
      arrive_as_warp(shared_.schedule_empty(place.stage));
    }
  }

 private:
  // Pages are looked up a tile ahead: that of the lane's box, or of its row.
  template <bool kByBoxes>
  __device__ void load(const MlaWorkTile& work_tile, bool is_early) {
    const int num_tiles = work_tile.num_tiles, prefix = work_tile.tile.seqlen_kv - work_tile.tile.seqlen_q;
    const int request = work_tile.tile.request;
    const KeyRange& keys = work_tile.keys;
    const bool contiguous = params_.attention.index.kind == KvIndexKind::kContiguous;
    // The lane's row of a tile, or the first one of its box.
    const int num_rows = kByBoxes ? params_.box_rows : 1;
    const int row = !kByBoxes                      ? warp_ * kRows + lane_
                    : params_.box_rows == kMlaKeys ? lane_ * kMlaKeys
                                                   : (lane_ * MlaTile::kLoadWarps + warp_) * params_.box_rows;
    const auto look_up = [&](int first) {
      const int position = first + row;
      if (row >= kMlaKeys || position + num_rows <= keys.begin || position >= keys.end) return -1;
      // A box may begin before the first key, where the index may say anything.
      return page_of(params_.attention.index, request, contiguous ? position : max(position, keys.begin));
    };
    int first_key = work_tile.first_key, next_page = look_up(first_key);
    for (int i = 0; i < num_tiles; ++i, first_key += kMlaKeys) {
      const int page = next_page;
      if (i + 1 < num_tiles) next_page = look_up(first_key + kMlaKeys);
      if (is_early && min(first_key + kMlaKeys, keys.end) > prefix) {
        ptx::griddepcontrol_wait();
        is_early = false;
      }
      if constexpr (kByBoxes)
        copy_boxes(page, first_key, row, keys);
      else
        copy_rows(page, first_key + row);
      place_.advance(MlaTile::kStages);
    }
    if (is_early) ptx::griddepcontrol_wait();
  }

  __device__ void wait_for_room(int part) const {
    ptx::mbarrier_wait(shared_.empty(place_.stage, part), place_.parity ^ 1);
  }

  // A box that has all rows of a KV tile is alone; the warps have different parts of it then.
  __device__ bool has_part(int part) const {
    return params_.box_rows < kMlaKeys || (part == MlaTile::values_part(0)) == (warp_ == 0);
  }

  // A lane with a page has a box. In a KV tile of which not all rows are the work tile's, a warp clears the
  // others of its boxes once they have come.
  __device__ void copy_boxes(int page, int first_key, int box_row, const KeyRange& keys) {
    const bool contiguous = params_.attention.index.kind == KvIndexKind::kContiguous;
    const int slot = contiguous ? page : (first_key + box_row) & (params_.attention.index.page_size - 1);
    const int page_or_none = contiguous ? 0 : page;
    const bool is_cut = first_key < keys.begin || first_key + kMlaKeys > keys.end;
    const int panel_bytes =
        __popc(__ballot_sync(0xffffffffu, page >= 0)) * params_.box_rows * kMlaPanelRowBytes;
    const uint64_t policy = ptx::createpolicy_evict_first();
    const uint32_t to = shared_.stage(place_.stage) + box_row * kMlaPanelRowBytes;
    if (is_cut && lane_ == 0) {
      int num_panels = 0;
      for (int part = 0; part < MlaTile::kParts; ++part)
        if (has_part(part)) num_panels += MlaTile::num_panels(part);
      ptx::mbarrier_arrive_expect_tx(shared_.landed(warp_), num_panels * panel_bytes);
    }
#pragma unroll 1
    for (int part = 0; part < MlaTile::kParts; ++part) {
      if (!has_part(part)) continue;
      const uint32_t barrier = is_cut ? shared_.landed(warp_) : shared_.full(place_.stage, part);
      const int first = MlaTile::first_panel(part), num_panels = MlaTile::num_panels(part);
      wait_for_room(part);
      if (!is_cut && lane_ == 0) ptx::mbarrier_arrive_expect_tx(barrier, num_panels * panel_bytes);
      __syncwarp();
      if (page < 0) continue;
      if (params_.box_rows == kMlaKeys) {
        ptx::cp_async_bulk_tensor(to + first * MlaTile::kPanelBytes,
                                  part == MlaTile::kRopePart ? &params_.latent_rope : &params_.latent, 0,
                                  page_or_none, slot, first, barrier, policy);
        continue;
      }
#pragma unroll 1
      for (int panel = first; panel < first + num_panels; ++panel)
        ptx::cp_async_bulk_tensor(to + panel * MlaTile::kPanelBytes, &params_.latent, 0, page_or_none, slot,
                                  panel, barrier, policy);
    }
    if (is_cut) clear_rows(keys.begin - first_key, keys.end - first_key);
  }

  // Values of rows outside of [begin, end) become zero: what is multiplied with a P of 0 must not be infinite
  // or NaN. Their scores are hidden.
  __device__ void clear_rows(int begin, int end) {
    __syncwarp();
    const uint32_t parity = shared_.landed_parity(warp_);
    ptx::mbarrier_wait(shared_.landed(warp_), parity);
    __syncwarp();
    if (lane_ == 0) shared_.landed_parity(warp_) = parity ^ 1;
    // The warp's half of the columns, or its boxes' rows: sizes are powers of two.
    const bool is_one = params_.box_rows == kMlaKeys;
    const uint32_t to = shared_.stage(place_.stage) + lane_ % 8 * 16 +
                        (is_one ? warp_ * MlaTile::kPanelsOfHalf * MlaTile::kPanelBytes : 0);
    const int num_panels = is_one ? MlaTile::kPanelsOfHalf : MlaTile::kValuePanels;
#pragma unroll 1
    for (int row = lane_ / 8; row < kMlaKeys; row += kRowsAtOnce) {
      if (row >= begin && row < end) continue;
      if (!is_one && ((row & params_.box_rows) != 0) != (warp_ != 0)) continue;
#pragma unroll 1
      for (int panel = 0; panel < num_panels; panel += MlaTile::kPanelsOfHalf)
#pragma unroll
        for (int i = 0; i < MlaTile::kPanelsOfHalf; ++i)
          ptx::st_shared_16(to + (panel + i) * MlaTile::kPanelBytes + row * kMlaPanelRowBytes,
                            make_uint4(0, 0, 0, 0));
    }
    ptx::fence_proxy_async();
#pragma unroll 1
    for (int part = 0; part < MlaTile::kParts; ++part)
      if (has_part(part)) arrive_as_warp(shared_.full(place_.stage, part));
  }

  // A row without a page becomes zero. `position`: of the lane's row.
  __device__ void copy_rows(int page, int position) const {
    const uint64_t lane_address = mla_row_address(params_.attention, page, position, 2);
#pragma unroll 1
    for (int third = 0; third < MlaTile::kThirds; ++third) {
      wait_for_room(MlaTile::part_of_third(third));
#pragma unroll 1
      for (int first = 0; first < kRows; first += kRowsAtOnce) {
        const int row = first + lane_ / 8;
        const uint64_t address = __shfl_sync(0xffffffffu, lane_address, row);
        copy_row(third * MlaTile::kPanelsOfThird, warp_ * kRows + row, address);
      }
      mla_arrive_after_cp_async(shared_.full(place_.stage, third));
    }
  }

  // This lane's 16 bytes of a few panels of a row.
  __device__ void copy_row(int first_panel, int row, uint64_t address) const {
    const int column = first_panel * kMlaPanelColumns + lane_ % 8 * 8;
    const char* const from = reinterpret_cast<const char*>(address) + 2 * column;
    const uint32_t to =
        shared_.stage(place_.stage) + first_panel * MlaTile::kPanelBytes + mla_swizzled(row, lane_ % 8);
#pragma unroll 1
    for (int i = 0; i < MlaTile::kPanelsOfThird; ++i) {
      const bool valid = address != 0 && column + i * kMlaPanelColumns < params_.attention.head_dim_qk;
      ptx::cp_async_16(to + i * MlaTile::kPanelBytes,
                       valid ? from + i * kMlaPanelRowBytes : params_.attention.k.data, valid);
    }
  }

  const MlaParams& params_;
  const MlaShared& shared_;
  const int warp_;
  const int lane_ = static_cast<int>(threadIdx.x) % 32;
  PipelineState place_;
};

// A thread has rows 16 w + l / 4 and 8 further (`half` 0 and 1), w its warp of the warpgroup and l its lane;
// element [4 n + 2 half + i] of scores and results is of column 8 n + 2 (l % 4) + i. So has the same thread
// of the other warpgroup, and threads hand P to one another.
template <class T>
struct MlaRowState {
  static constexpr int kSteps = kMlaKeys / 16;
  // P relative to a former row max may be up to 2^kSlack before that is replaced.
  static constexpr float kSlack = 8.0f;

  float scores[kMlaKeys / 2];
  float out[MlaTile::kColumns / 2];
  // A score, unscaled; no other exceeds it by more than kSlack once scaled.
  float row_max[2];
  float sum[2];  // of this lane's columns of the warpgroup's own KV tiles
  float rescale[2];
  bool rescales;

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (float& x : out) x = 0.0f;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      row_max[half] = -INFINITY;
      sum[half] = 0.0f;
    }
  }

  // Descriptors of operands in uniform registers: products of 64 columns follow one another faster than
  // others could be made. `lane_0`: what lane 0 has, which all have.
  __device__ __forceinline__ static uint32_t lane_0(uint32_t x) { return __shfl_sync(0xffffffffu, x, 0); }
  // `first`: of the beginning of the tile; addresses do not carry over into other fields.
  __device__ __forceinline__ static uint64_t further(uint64_t first, int bytes) {
    return (first & 0xffffffff00000000) | (static_cast<uint32_t>(first) + static_cast<uint32_t>(bytes / 16));
  }

  // Starts a panel's part of scores = q k^T. `q`, `k`: descriptors of the first panels.
  __device__ __forceinline__ void multiply_keys(uint64_t q, uint64_t k, int panel, bool add) {
    constexpr int kStepBytes = 32;
#pragma unroll
    for (int i = 0; i < kMlaPanelColumns / 16; ++i) {
      const int bytes = panel * MlaTile::kPanelBytes + i * kStepBytes;
      ptx::wgmma_mma_async(scores, further(q, bytes), further(k, bytes), add || i > 0, T());
    }
  }

  // Starts out += P v.
  __device__ __forceinline__ void multiply_values(const uint32_t (&p)[kSteps][4], uint32_t v) {
    constexpr int kStepBytes = 16 * kMlaPanelRowBytes;
    const uint64_t b = ptx::smem_descriptor_mn_major(lane_0(v), MlaTile::kPanelBytes);
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
      ptx::wgmma_mma_async_rs(out, p[step], further(b, step * kStepBytes), true, T());
    ptx::wgmma_commit_group();
  }

  // Scores of the KV tile from `first_key` on that a row does not see become -inf. `first_row`: the thread's.
  __device__ __forceinline__ void mask(const AttentionParams& params, const sm80::WorkTileRows& rows,
                                       int first_row, int first_key) {
    const int to_lane = static_cast<int>(threadIdx.x) % 4 * 2;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint64_t visible =
          sm80::visible_keys<kMlaKeys>(params, rows, first_row + 8 * half, first_key) >> to_lane;
#pragma unroll
      for (int n = 0; n < kMlaKeys / 8; ++n)
#pragma unroll
        for (int i = 0; i < 2; ++i)
          if ((visible >> (8 * n + i) & 1) == 0) scores[4 * n + 2 * half + i] = -INFINITY;
    }
  }

  // scores become P = 2^(scale_log2 (score - row_max)), and `rescale` what results and sums so far are to be
  // multiplied with. A row's own scores decide whether they are.
  __device__ __forceinline__ void softmax(float scale_log2) {
    bool changed = false;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float highest = row_max[half];
#pragma unroll
      for (int n = 0; n < kMlaKeys / 8; ++n)
        highest = fmaxf(highest, fmaxf(scores[4 * n + 2 * half], scores[4 * n + 2 * half + 1]));
      highest = sm80::quad_max(highest);
      if (!((highest - row_max[half]) * scale_log2 > kSlack)) highest = row_max[half];
      const float shift = raise(half, highest, scale_log2, changed);
      float sums[2] = {};
#pragma unroll
      for (int n = 0; n < kMlaKeys / 8; ++n)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float& score = scores[4 * n + 2 * half + i];
          score = ptx::ex2_approx(score * scale_log2 - shift);
          sums[i] += score;
        }
      sum[half] += sums[0] + sums[1];
    }
    rescales = __any_sync(0xffffffffu, changed);
  }

  // P as the left operand of the product with the values.
  __device__ __forceinline__ void pack(uint32_t (&p)[kSteps][4]) const {
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        p[step][i] = sm80::pack(scores[8 * step + 2 * i], scores[8 * step + 2 * i + 1], T());
  }

  // Hands P and the row max to the other warpgroup. `thread`: of the warpgroup.
  __device__ __forceinline__ void publish(const MlaShared& shared, const uint32_t (&p)[kSteps][4], int thread,
                                          int first_row) const {
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
      ptx::st_shared_16(cell(shared, step, thread),
                        make_uint4(p[step][0], p[step][1], p[step][2], p[step][3]));
    if (thread % 4 == 0) {
      shared.row_max()[first_row] = row_max[0];
      shared.row_max()[first_row + 8] = row_max[1];
    }
  }
  // Takes what the other published.
  __device__ __forceinline__ void receive(const MlaShared& shared, uint32_t (&p)[kSteps][4], int thread,
                                          int first_row, float scale_log2) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const uint4 four = ptx::ld_shared_16(cell(shared, step, thread));
      p[step][0] = four.x;
      p[step][1] = four.y;
      p[step][2] = four.z;
      p[step][3] = four.w;
    }
    const float highest[2] = {shared.row_max()[first_row], shared.row_max()[first_row + 8]};
    bool changed = highest[0] != row_max[0] || highest[1] != row_max[1];
    rescales = __any_sync(0xffffffffu, changed);
    if (!rescales) return;
#pragma unroll
    for (int half = 0; half < 2; ++half) raise(half, highest[half], scale_log2, changed);
  }

  // When no product is under way.
  __device__ __forceinline__ void rescale_results() {
    if (!rescales) return;
#pragma unroll
    for (int i = 0; i < MlaTile::kColumns / 2; ++i) out[i] *= rescale[i / 2 % 2];
  }

 private:
  __device__ __forceinline__ static uint32_t cell(const MlaShared& shared, int step, int thread) {
    return shared.p() + step * 128 * 16 + thread * 16;
  }

  // Takes another row max; what P is relative to.
  __device__ __forceinline__ float raise(int half, float highest, float scale_log2, bool& changed) {
    const float shift = highest == -INFINITY ? 0.0f : __fmul_rn(highest, scale_log2);
    // The product rounded by itself: exactly 1 for a row whose max stays.
    rescale[half] = ptx::ex2_approx(__fmul_rn(row_max[half], scale_log2) - shift);
    changed |= highest != row_max[half];
    row_max[half] = highest;
    sum[half] *= rescale[half];
    return shift;
  }
};

template <class T>
class MlaEpilogue {
  static constexpr int kGroups = MlaTile::kColumns / 8;  // of eight columns

 public:
  // `first_row`: of the tile, the thread's.
  __device__ MlaEpilogue(const AttentionParams& params, const MlaWorkTile& work_tile, int warpgroup,
                         int first_row)
      : params_(params),
        rows_(params, work_tile.tile, work_tile.head, params.plan.tile_rows),
        partial_idx_(work_tile.partial_idx),
        first_column_(warpgroup * MlaTile::kColumns),
        first_row_(first_row) {}

  // `sum`: of both warpgroups and all columns. By all threads of a warp.
  __device__ __forceinline__ void write(const MlaRowState<T>& rows, const float (&sum)[2],
                                        float scale_log2) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int tile_row = first_row_ + 8 * half;
      const bool valid = tile_row < rows_.num_rows;
      const sm80::TileRow row = rows_.at(params_, valid ? tile_row : 0);
      const bool writes_state = valid && lane_ % 4 == 0 && first_column_ == 0;
      if (partial_idx_ >= 0) {
        const int64_t slot_row = int64_t{partial_idx_} * params_.plan.partial_rows + tile_row;
        if (writes_state) params_.plan.partial_state[slot_row] = make_float2(rows.row_max[half], sum[half]);
        if (valid)
          write_partial(rows, half,
                        params_.plan.partial_out + slot_row * mla_partial_stride(params_.head_dim_v));
        continue;
      }
      const int64_t token = rows_.span.first_token + row.query;
      const sm80::RowResult result =
          sm80::finish_row(params_, rows.row_max[half], sum[half], scale_log2, row.head);
      if (writes_state && params_.lse != nullptr)
        params_.lse[token * params_.lse_token_stride + row.head * params_.lse_head_stride] = result.lse;
      const int64_t to = token * params_.out.token_stride + row.head * params_.out.head_stride;
      if (params_.out_element != Element::kF32)
        write_narrow(rows, half, result.out_scale, valid, static_cast<T*>(params_.out.data) + to);
      else if (valid)
        write_wide(rows, half, result.out_scale, static_cast<float*>(params_.out.data) + to);
    }
  }

 private:
  // Four lanes write 32 bytes.
  __device__ __forceinline__ void write_wide(const MlaRowState<T>& rows, int half, float scale_log2,
                                             float* to) const {
#pragma unroll
    for (int n = 0; n < kGroups; ++n) {
      const int column = first_column_ + 8 * n + lane_ % 4 * 2;
      if (column < params_.head_dim_v)
        *reinterpret_cast<float2*>(to + column) =
            make_float2(rows.out[4 * n + 2 * half] * scale_log2, rows.out[4 * n + 2 * half + 1] * scale_log2);
    }
  }

  // In the order of mla_partial_stride(): four lanes write 64 bytes.
  __device__ __forceinline__ void write_partial(const MlaRowState<T>& rows, int half, float* to) const {
#pragma unroll
    for (int n = 0; n < kGroups; n += 2) {
      const int position = first_column_ + 8 * n;
      if (position < params_.head_dim_v)
        ptx::st_global_16(to + position + lane_ % 4 * 4, rows.out[4 * n + 2 * half],
                          rows.out[4 * n + 2 * half + 1], rows.out[4 * (n + 1) + 2 * half],
                          rows.out[4 * (n + 1) + 2 * half + 1]);
    }
  }

  // Of two groups, neighbouring lanes give each other what makes 8 bytes of one: four lanes write 32 bytes.
  __device__ __forceinline__ void write_narrow(const MlaRowState<T>& rows, int half, float scale_log2,
                                               bool valid, T* to) const {
    const bool odd = lane_ % 2 != 0;
    T* const to_lane = to + first_column_ + (odd ? 8 : 0) + lane_ / 2 % 2 * 4;
#pragma unroll
    for (int n = 0; n < kGroups; n += 2) {
      const uint32_t even_group = sm80::pack(rows.out[4 * n + 2 * half] * scale_log2,
                                             rows.out[4 * n + 2 * half + 1] * scale_log2, T());
      const uint32_t odd_group = sm80::pack(rows.out[4 * (n + 1) + 2 * half] * scale_log2,
                                            rows.out[4 * (n + 1) + 2 * half + 1] * scale_log2, T());
      const uint32_t got = __shfl_xor_sync(0xffffffffu, odd ? even_group : odd_group, 1);
      if (valid && first_column_ + 8 * n + (odd ? 8 : 0) < params_.head_dim_v)
        *reinterpret_cast<uint2*>(to_lane + 8 * n) =
            odd ? make_uint2(got, odd_group) : make_uint2(even_group, got);
    }
  }

  const AttentionParams& params_;
  const sm80::WorkTileRows rows_;
  const int partial_idx_, first_column_, first_row_;
  const int lane_ = static_cast<int>(threadIdx.x) % 32;
};

// A math warpgroup's part. `kFp8`: latent rows come from MlaConverter.
template <class T, bool kFp8>
class MlaConsumer {
  using Rows = MlaRowState<T>;
  using Probabilities = uint32_t[Rows::kSteps][4];
  static constexpr int kSumsBarrier = 1;  // named, of the math warpgroups

 public:
  __device__ MlaConsumer(const MlaParams& params, const MlaShared& shared)
      : params_(params), shared_(shared), scale_log2_(sm80::softmax_scale_log2_of(params.attention)) {}

  __device__ void run() {
    // Registers are short: stages and parities of pipelines follow from counts.
#pragma unroll 1
    for (int num_work_tiles = 0;; ++num_work_tiles) {
      const int stage = num_work_tiles % MlaTile::kScheduleStages;
      ptx::mbarrier_wait(shared_.schedule_full(stage), num_work_tiles / MlaTile::kScheduleStages & 1);
      const MlaWorkTile& work_tile = shared_.work_tile(stage);
      if (work_tile.num_tiles < 0) return;
      ptx::mbarrier_wait(shared_.queries_full(), num_work_tiles & 1);
      ptx::fence_proxy_async();
      Rows rows;
      rows.clear();
      if (warpgroup() == 0)
        attend_even(rows, work_tile);
      else
        attend_odd(rows, work_tile);
      num_tiles_before_ += work_tile.num_tiles;
      // Code that both warpgroups run.
      finish(rows, work_tile, num_work_tiles & 1);
      arrive_as_warp(shared_.schedule_empty(stage));
    }
  }

 private:
  // With the softmax of even KV tiles; no product is under way from one turn to the next, for which the
  // compiler would wait.
  __device__ __forceinline__ void attend_even(Rows& rows, const MlaWorkTile& work_tile) {
    const int num_tiles = work_tile.num_tiles;
    if (num_tiles <= 0) release_queries();
#pragma unroll 1
    for (int tile = 0; tile < num_tiles; tile += 2) {
      multiply_keys(rows, tile);
      wait_for_scores(rows, tile);
      if (tile + 2 >= num_tiles) release_queries();
      own_tile<0>(rows, work_tile, tile);
      release_last<0>(rows, tile);
      if (tile + 1 < num_tiles) {
        other_tile<0>(rows, work_tile, tile + 1);
        release_last<0>(rows, tile + 1);
      }
    }
  }
  // With the softmax of odd ones.
  __device__ __forceinline__ void attend_odd(Rows& rows, const MlaWorkTile& work_tile) {
    const int num_tiles = work_tile.num_tiles;
    if (num_tiles <= 1) release_queries();
    int tile = 0;
#pragma unroll 1
    for (; tile + 1 < num_tiles; tile += 2) {
      multiply_keys(rows, tile + 1);
      wait_for_scores(rows, tile + 1);
      if (tile + 3 >= num_tiles) release_queries();
      other_tile<1>(rows, work_tile, tile);
      own_tile<1>(rows, work_tile, tile + 1);
      release_last<1>(rows, tile + 1);
    }
    if (tile < num_tiles) {
      other_tile<1>(rows, work_tile, tile);
      release_last<1>(rows, tile);
    }
  }

  // Starts the scores of a tile, part by part (rows that were converted: third by third) as they come.
  __device__ __forceinline__ void multiply_keys(Rows& rows, int tile) {
    const int stage = stage_of(tile);
    const uint32_t parity = parity_of(tile);
    if (copied_by_threads()) {
      for (int third = 0; third < MlaTile::kThirds; ++third)
        ptx::mbarrier_wait(shared_.full(stage, third), parity);
      ptx::fence_proxy_async();
    }
    const uint64_t q = ptx::smem_descriptor(Rows::lane_0(shared_.queries()));
    const uint64_t k = ptx::smem_descriptor(Rows::lane_0(shared_.stage(stage)));
#pragma unroll
    for (int i = 0; i < MlaTile::kParts; ++i) {
      const int first = kFp8 ? i * MlaTile::kPanelsOfThird : MlaTile::first_panel(i);
      const int num_panels = kFp8 ? MlaTile::kPanelsOfThird : MlaTile::num_panels(i);
      ptx::mbarrier_wait(shared_.full(stage, i), parity);
      ptx::wgmma_fence();
#pragma unroll
      for (int n = 0; n < num_panels; ++n) rows.multiply_keys(q, k, first + n, i + n > 0);
    }
    ptx::wgmma_commit_group();
  }
  __device__ __forceinline__ bool copied_by_threads() const { return !kFp8 && params_.box_rows == 0; }

  // Waits for the scores; what is of keys alone is free then.
  __device__ __forceinline__ void wait_for_scores(Rows& rows, int tile) {
    ptx::wgmma_wait_group<0>();
    ptx::fence_operand(rows.scores);
    arrive_as_warp(shared_.empty(stage_of(tile), MlaTile::kRopePart));
  }

  // Scores of this warpgroup's own tile, which have come, become P, which both warpgroups multiply with the
  // values. In the second warpgroup the product of the tile before is under way.
  template <int kWarpgroup>
  __device__ __forceinline__ void own_tile(Rows& rows, const MlaWorkTile& work_tile, int tile) {
    if (params_.attention.logit_cap > 0.0f) {
      const sm80::ScoreCap cap(params_.attention);
#pragma unroll
      for (float& score : rows.scores) score = cap(score);
    }
    if (tile < work_tile.full.begin || tile >= work_tile.full.end)
      rows.mask(params_.attention,
                sm80::WorkTileRows(params_.attention, work_tile.tile, work_tile.head,
                                   params_.attention.plan.tile_rows),
                first_row(), work_tile.first_key + tile * kMlaKeys);
    rows.softmax(scale_log2_);
    Probabilities p;
    rows.pack(p);
    rows.publish(shared_, p, thread_, first_row());
    arrive_as_warp(shared_.p_full(kWarpgroup, thread_ / 32));
    if constexpr (kWarpgroup == 1) release_last<kWarpgroup>(rows, tile - 1);
    multiply_values<kWarpgroup>(rows, p, tile);
  }

  // The same with P of the other warpgroup.
  template <int kWarpgroup>
  __device__ __forceinline__ void other_tile(Rows& rows, const MlaWorkTile& work_tile, int tile) {
    ptx::mbarrier_wait(shared_.p_full(1 - kWarpgroup, thread_ / 32), p_parity_);
    p_parity_ ^= 1;
    // The other warpgroup has waited for the tile.
    if (copied_by_threads()) ptx::fence_proxy_async();
    Probabilities p;
    rows.receive(shared_, p, thread_, first_row(), scale_log2_);
    multiply_values<kWarpgroup>(rows, p, tile);
  }

  template <int kWarpgroup>
  __device__ __forceinline__ void multiply_values(Rows& rows, const Probabilities& p, int tile) {
    rows.rescale_results();
    ptx::wgmma_fence();
    rows.multiply_values(
        p, shared_.stage(stage_of(tile)) + kWarpgroup * MlaTile::kPanelsOfHalf * MlaTile::kPanelBytes);
  }

  // Waits for the product with the values of a tile; its columns of the stage are free then.
  template <int kWarpgroup>
  __device__ __forceinline__ void release_last(Rows& rows, int tile) {
    ptx::wgmma_wait_group<0>();
    ptx::fence_operand(rows.out);
    arrive_as_warp(shared_.empty(stage_of(tile), MlaTile::values_part(kWarpgroup)));
  }
  __device__ __forceinline__ void release_queries() { arrive_as_warp(shared_.queries_empty()); }

  // The sums of both warpgroups' tiles; then the results.
  __device__ __forceinline__ void finish(Rows& rows, const MlaWorkTile& work_tile, int work_tile_parity) {
    const int row = first_row_of(math_thread() % 128), warpgroup = this->warpgroup();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      rows.sum[half] = sm80::quad_sum(rows.sum[half]);
      if (thread_ % 4 == 0) shared_.sums(work_tile_parity, warpgroup)[row + 8 * half] = rows.sum[half];
    }
    ptx::barrier_sync(kSumsBarrier, 32 * MlaTile::kMathWarps);
    float sum[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      // The same order in both warpgroups.
      const float other = shared_.sums(work_tile_parity, 1 - warpgroup)[row + 8 * half];
      sum[half] = warpgroup == 0 ? rows.sum[half] + other : other + rows.sum[half];
    }
    MlaEpilogue<T>(params_.attention, work_tile, warpgroup, row).write(rows, sum, scale_log2_);
  }

  __device__ __forceinline__ int stage_of(int tile) const {
    return (num_tiles_before_ + tile) % MlaTile::kStages;
  }
  __device__ __forceinline__ uint32_t parity_of(int tile) const {
    return static_cast<uint32_t>((num_tiles_before_ + tile) / MlaTile::kStages & 1);
  }
  // The thread, and the warpgroup, of those that multiply.
  __device__ __forceinline__ static int math_thread() { return ptx::tid_x() - 32 * MlaTile::kProducerWarps; }
  __device__ __forceinline__ static int warpgroup() { return math_thread() / 128; }
  __device__ __forceinline__ static int first_row_of(int thread) {
    return thread / 32 * 16 + thread % 32 / 4;
  }
  __device__ __forceinline__ int first_row() const { return first_row_of(thread_); }

  const MlaParams& params_;
  const MlaShared& shared_;
  const float scale_log2_;
  const int thread_ = static_cast<int>(threadIdx.x) % 128;  // of the warpgroup
  int num_tiles_before_ = 0;
  uint32_t p_parity_ = 0;
};

// By all threads of the CTA, each when it comes to it.
__device__ inline void pad(const AttentionParams& params) {
  write_padding(params, params.batch.cu_seqlen_q[params.batch.num_reqs]);
}

template <class T, bool kFp8, bool kPlans>
__global__ void __launch_bounds__(MlaTile::kThreads, 1) mla_kernel(const __grid_constant__ MlaParams params) {
  extern __shared__ __align__(kMlaSwizzleAtom) char memory[];
  using Plan = sm80::CtaPlan<MlaTile::kThreads, kPlans, false>;
  const AttentionParams& attention = params.attention;
  const MlaShared shared(memory);
  if (threadIdx.x == 0) {
    const int num_row_warps = kFp8                          ? MlaTile::kProducerWarps
                              : params.box_rows == kMlaKeys ? 1
                                                            : MlaTile::kLoadWarps;
    shared.init_barriers(num_row_warps, kFp8 ? MlaTile::kProducerWarps : MlaTile::kQueryWarps);
    if (params.box_rows > 0) ptx::prefetch_tensormap(&params.latent);
    if (params.box_rows == kMlaKeys) ptx::prefetch_tensormap(&params.latent_rope);
    if (params.boxes_queries) {
      ptx::prefetch_tensormap(&params.q);
      ptx::prefetch_tensormap(&params.q_rope);
    }
  }
  const bool is_early = attention.prefix_ready;
  if (!is_early) ptx::griddepcontrol_wait();
  const Plan plan(attention);
  // A whole plan may have fewer row tiles than there are CTAs.
  if (attention.plan.streamed) {
    const sm80::PlanStart start = plan.start(static_cast<int>(blockIdx.x));
    if (threadIdx.x == 0) shared.walk() = start;
  } else if (threadIdx.x == 0) {
    shared.walk().header = *attention.plan.header;
  }
  __syncthreads();
  const int warp = static_cast<int>(threadIdx.x) / 32;
  if (warp < MlaTile::kProducerWarps) {
    ptx::setmaxnreg_dec<MlaTile::kProducerRegisters>();
    if constexpr (kFp8)
      MlaConverter<T, Plan>(params, shared).run(plan);
    else if (warp < MlaTile::kLoadWarps)
      MlaProducer(params, shared, warp).run(is_early);
    else
      MlaScheduler<Plan>(params, shared, warp - MlaTile::kLoadWarps).run(plan);
    ptx::griddepcontrol_wait();
    pad(attention);
  } else {
    ptx::setmaxnreg_inc<MlaTile::kMathRegisters>();
    // Before results are written. What merges them may be there when the first CTA ends.
    ptx::griddepcontrol_wait();
    ptx::launch_dependents();
    MlaConsumer<T, kFp8>(params, shared).run();
    pad(attention);
  }
}

}  // namespace attend::kernels::cuda::sm90
