// Producer of K, or of V, of prefill on sm_90a (prefill.cuh) where they are fp8.
#pragma once

#include "attend/kernels/attention/cuda/common/fp8_convert.cuh"
#include "attend/kernels/attention/cuda/common/warp_rows.cuh"
#include "attend/kernels/attention/cuda/sm90/prefill_tile.cuh"
#include "attend/kernels/common/cuda/ptx/copy.cuh"
#include "attend/kernels/common/cuda/ptx/integer.cuh"
#include "attend/kernels/common/cuda/ptx/mbarrier.cuh"
#include "attend/kernels/common/cuda/sm90/pipeline_state.cuh"

namespace attend::kernels::cuda::sm90 {

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

}  // namespace attend::kernels::cuda::sm90
