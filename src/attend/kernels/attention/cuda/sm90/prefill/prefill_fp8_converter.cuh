// K and V of fp8 for prefill on sm_90a (prefill.cuh): they come to shared memory as they are, and become f16
// there.
#pragma once

#include "attend/kernels/attention/cuda/common/fp8_convert.cuh"
#include "attend/kernels/attention/cuda/sm90/prefill/prefill_tile.cuh"
#include "attend/kernels/common/cuda/ptx/copy.cuh"
#include "attend/kernels/common/cuda/ptx/mbarrier.cuh"
#include "attend/kernels/common/cuda/sm90/packed_pipeline_state.h"

namespace attend::kernels::cuda::sm90 {

// K and V as they come, for PrefillProducer: rows lie 128 bytes apart, also those of 64.
template <class Tile>
struct PrefillFp8Tile : Tile {
  static constexpr int kElementBytes = 1, kQkPanels = 1, kVPanels = 1;
  static constexpr int kStages = Tile::kFp8Stages, kKeyStages = kStages;
  static constexpr int kKeys = Tile::kFp8Keys, kPartsOfTile = Tile::kKeys / kKeys;
};
template <class Tile>
struct PrefillFp8Shared : PrefillShared<Tile> {
  using Shared = PrefillShared<Tile>;
  __device__ PrefillFp8Shared(const Shared& shared) : Shared(shared) {}
  __device__ uint32_t keys(int stage) const { return Shared::fp8_keys(stage); }
  __device__ uint32_t values(int stage) const { return Shared::fp8_values(stage); }
  __device__ uint32_t keys_full(int stage) const { return Shared::fp8_keys_full(stage); }
  __device__ uint32_t keys_empty(int stage) const { return Shared::fp8_keys_empty(stage); }
  __device__ uint32_t values_full(int stage) const { return Shared::fp8_values_full(stage); }
  __device__ uint32_t values_empty(int stage) const { return Shared::fp8_values_empty(stage); }
};

// Converts K, or V. f16 holds every value of fp8.
template <Element kKv, class Tile, bool kValues>
class PrefillConverter {
  using Shared = PrefillShared<Tile>;
  static constexpr int kPieceBytes = 16, kPiecesOfPanel = kPanelColumns / kPieceBytes;
  static constexpr int kPanels = kValues ? Tile::kVPanels : Tile::kQkPanels;
  // 16 bytes a lane: rows that a warp, and the operand's warps, have at once. A lane's rows are swizzled
  // alike.
  static constexpr int kRowsOfWarp = 32 / (kPanels * kPiecesOfPanel);
  static constexpr int kRowsAtOnce = Tile::kWarpsOfOperand * kRowsOfWarp;
  static constexpr int kRounds = Tile::kFp8Keys / kRowsAtOnce;
  static constexpr int kAhead = 2;
  static_assert(kPanels <= 2 && kRowsAtOnce % 8 == 0 && kAhead <= kRounds);
  static constexpr int kParts = Tile::kKeys / Tile::kFp8Keys;

 public:
  // `warp`: of the operand's.
  __device__ PrefillConverter(const Shared& shared, int warp) : shared_(shared) {
    const int lane = static_cast<int>(threadIdx.x) % 32, eighth = lane / 8, second = lane / 4 % 2;
    // Eight lanes read, and write, 128 bytes at once, which shall lie in all banks. Four have half a row of
    // bytes (of one panel: a row of 64). Those of the `second` four have been swizzled to the other half of
    // 128 bytes, and are of a row whose number is odd where that of the first is even: f16 of the one go to
    // even pieces of 16 bytes, of the other to odd ones.
    int row, panel;
    if constexpr (kPanels == 2) {
      row = eighth / 2 * 2 + second;
      panel = eighth % 2 ^ second;
    } else {
      row = second != 0 ? eighth ^ 5 : eighth;
      panel = 0;
    }
    row += warp * kRowsOfWarp;
    const int piece = lane % kPiecesOfPanel;
    from_ =
        (kValues ? shared.fp8_values(0) : shared.fp8_keys(0)) + swizzled(row, panel * kPiecesOfPanel + piece);
    to_ = (kValues ? shared.values(0) : shared.keys(0)) +
          static_cast<uint32_t>(panel * Tile::kKeyPanelBytes) + swizzled(row, 2 * piece);
  }

  // All work tiles.
  __device__ void run() {
    for (WorkTiles state;; state.advance()) {
      ptx::mbarrier_wait(shared_.work_tile_full(state.stage()), state.parity());
      const int num_tiles = shared_.work_tile(state.stage()).num_tiles;
      if (num_tiles < 0) return;
      arrive(shared_.work_tile_empty(state.stage()));
#pragma unroll 1
      for (int i = 0; i < num_tiles; ++i, tiles_.advance()) {
#pragma unroll
        for (int part = 0; part < kParts; ++part, parts_.advance()) convert(part);
        ptx::fence_proxy_async();
        arrive(kValues ? shared_.values_full(tiles_.stage()) : shared_.keys_full(tiles_.stage()));
      }
    }
  }

 private:
  using WorkTiles = PackedPipelineState<Tile::kWorkTileStages>;

  // A part of the tile. A few pieces are read before the first is converted.
  __device__ __forceinline__ void convert(int part) const {
    ptx::mbarrier_wait(
        kValues ? shared_.fp8_values_full(parts_.stage()) : shared_.fp8_keys_full(parts_.stage()),
        parts_.parity());
    const uint32_t from = from_ + static_cast<uint32_t>(parts_.stage() * Tile::kFp8Bytes);
    const auto read = [&](int i) { return ptx::ld_shared_16(from + i * kRowsAtOnce * kPanelRowBytes); };
    uint4 pieces[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) pieces[i] = read(i);
    if (part == 0)
      ptx::mbarrier_wait(kValues ? shared_.values_empty(tiles_.stage()) : shared_.keys_empty(tiles_.stage()),
                         tiles_.parity() ^ 1);
    const uint32_t to =
        to_ + static_cast<uint32_t>(tiles_.stage() * (kValues ? Tile::kValueBytes : Tile::kKeyBytes));
    const uint32_t to_second = to ^ 16;  // the piece beside it
#pragma unroll
    for (int i = 0; i < kRounds; ++i) {
      const uint4 piece = pieces[i % kAhead];
      if (i + kAhead < kRounds) pieces[i % kAhead] = read(i + kAhead);
      const int at = (part * kRounds + i) * kRowsAtOnce * kPanelRowBytes;
      ptx::st_shared_16(to + at, widened(piece.x, piece.y));
      ptx::st_shared_16(to_second + at, widened(piece.z, piece.w));
    }
    // Not before the last piece has come: TMA would overwrite what is still on its way to registers.
    arrive(kValues ? shared_.fp8_values_empty(parts_.stage()) : shared_.fp8_keys_empty(parts_.stage()));
  }
  // As a warp.
  __device__ __forceinline__ static void arrive(uint32_t barrier) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(barrier);
  }
  __device__ __forceinline__ static uint4 widened(uint32_t low, uint32_t high) {
    return make_uint4(low_pair<kKv>(low), high_pair<kKv>(low), low_pair<kKv>(high),
                      high_pair<kKv>(high));
  }

  const Shared& shared_;
  uint32_t from_, to_;  // where the lane's first 16 bytes of a tile lie, and what they become
  PackedPipelineState<Tile::kStages> tiles_;
  PackedPipelineState<Tile::kFp8Stages> parts_;
};

}  // namespace attend::kernels::cuda::sm90
