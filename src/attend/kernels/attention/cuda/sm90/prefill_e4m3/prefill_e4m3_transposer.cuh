// Values of e4m3 as wgmma wants them: the warpgroup of prefill_e4m3.cuh that transposes them in shared
// memory.
#pragma once

#include "attend/kernels/attention/cuda/sm90/prefill_e4m3/prefill_e4m3_layout.h"
#include "attend/kernels/attention/cuda/sm90/prefill_e4m3/prefill_e4m3_tile.cuh"
#include "attend/kernels/common/cuda/ptx/copy.cuh"
#include "attend/kernels/common/cuda/ptx/mbarrier.cuh"
#include "attend/kernels/common/cuda/ptx/stmatrix.cuh"
#include "attend/kernels/common/cuda/sm90/pipeline_state.cuh"

namespace attend::kernels::cuda::sm90 {

// Transposes values. What is multiplied with P = 0 must not be NaN, and a stage may have what an earlier tile
// left where no row was wanted, so that keys outside of the work tile's become zero here.
template <class Tile>
class PrefillTransposer {
  using Shared = PrefillE4m3Shared<Tile>;
  static constexpr int kSixteens = Tile::kHeadDimV / e4m3::kColumnsAtOnce;
  // Read before the first is written: their latencies overlap.
  static constexpr int kBatch = 4;
  static_assert(Tile::kTransposeWarps * e4m3::kKeysAtOnce == Tile::kKeys && kSixteens % kBatch == 0 &&
                Tile::kVPanels == 1);

 public:
  // `warp`: of those that transpose.
  __device__ PrefillTransposer(const Shared& shared, int warp)
      : shared_(shared), first_in_tile_(warp * e4m3::kKeysAtOnce) {}

  // All work tiles.
  __device__ void run() {
    for (PipelineState state;; state.advance(Tile::kWorkTileStages)) {
      ptx::mbarrier_wait(shared_.work_tile_full(state.stage), state.parity);
      const PrefillWorkTile& work_tile = shared_.work_tile(state.stage);
      const int num_tiles = work_tile.num_tiles;
      if (num_tiles < 0) return;
      // Of the warp's first key.
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
  // The warp's keys of a tile, of which those from `begin` to `end` are wanted.
  __device__ void transpose(int begin, int end) const {
    // Masks take as many instructions as the transposition, and few tiles want them.
    const bool all = ptx::warp_uniform(static_cast<int>(begin <= 0 && end >= e4m3::kKeysAtOnce)) != 0;
    uint32_t wanted[2] = {};
    if (!all) {
#pragma unroll
      for (int piece = 0; piece < 2; ++piece) wanted[piece] = e4m3::keys_wanted(lane_, piece, begin, end);
    }
    const uint32_t from = shared_.values(values_.stage);
    const int piece = first_in_tile_ / e4m3::kPieceBytes + e4m3::transposed_piece(lane_);
    // Sixteens are rows apart whose swizzle is the same.
    const uint32_t to = shared_.transposed(transposed_.stage) +
                        static_cast<uint32_t>(e4m3::offset_of_piece(e4m3::transposed_row(lane_), piece));
#pragma unroll
    for (int first = 0; first < kSixteens; first += kBatch) {
      uint32_t columns[kBatch][4];
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const int at = e4m3::offset_of_piece(first_in_tile_ + lane_, first + i);
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
          for (int result = 0; result < 4; ++result) rows[i][result] &= wanted[result / 2];
      }
#pragma unroll
      for (int i = 0; i < kBatch; ++i)
        ptx::stmatrix_x4(to + static_cast<uint32_t>((first + i) * e4m3::kColumnsAtOnce * kPanelRowBytes),
                         rows[i]);
    }
  }

  const Shared& shared_;
  const int lane_ = static_cast<int>(threadIdx.x) % 32;
  const int first_in_tile_;  // of the warp's 32 keys
  PipelineState values_, transposed_;
};

}  // namespace attend::kernels::cuda::sm90
