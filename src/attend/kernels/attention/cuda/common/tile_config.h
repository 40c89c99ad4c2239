// Tile shapes of the attention kernels on mma.sync, and of single-request decode.
#pragma once

#include <array>

#include "attend/kernels/attention/cuda/common/attention_params.h"

namespace attend::kernels::cuda {

// Head dims of K and of V of an instance, which supports head dims up to these.
struct HeadDims {
  int qk = 0, v = 0;
  bool operator==(const HeadDims&) const = default;
};

// Instances of instances.cmake for K/V of every 16-bit and 8-bit dtype. Of two that support a problem, the
// cheaper one is first.
inline constexpr std::array kAttentionDims{HeadDims{64, 64}, HeadDims{128, 128}, HeadDims{192, 128},
                                           HeadDims{256, 256}};

// Instances of single-request decode on sm_90a, for K/V of both 16-bit dtypes.
inline constexpr std::array kSingleRequestDecodeDims{HeadDims{64, 64}, HeadDims{128, 128}};

// Rows of the smallest tiles, where keys are the rows of the MMAs (key_major_tile.cuh).
inline constexpr int kKeyMajorRows = 8;

// CTAs per cluster, if clusters are used.
inline constexpr int kClusterSize = 8;

// A CTA multiplies kRows query rows by kKeys keys per iteration. kWarpsM warps share the rows, kWarpsN the
// keys of a tile, and each warp has kRowBlocks blocks of 16 rows. kStages tiles of K and V are in shared
// memory. `kClusters`: CTAs of a cluster share the keys of a work tile.
template <int kHeadDimQk, int kHeadDimV, bool kFp8, int kTileRows, bool kClusters = false>
struct TileConfig {
  static constexpr int kRows = kTileRows;
  static constexpr bool kDecode = kRows <= 32;
  static constexpr bool kWide = kHeadDimQk > 128;
  // A KV tile is one key tile, or two if the fixed cost per tile is significant.
  static constexpr bool kTwoKeyTiles = kFp8 && kRows <= 16 && !kWide && !kClusters;
  static constexpr int kKeys = kTwoKeyTiles ? 2 * kKeyTile : kKeyTile;
  // One stage for the widest rows, so that two CTAs fit. A third stage helps if tiles are small, and if SMs
  // have only one CTA.
  static constexpr int kStages = kHeadDimQk > 192 && !kDecode && !kFp8                       ? 1
                                 : kDecode && !kWide && !kTwoKeyTiles && (kFp8 || kClusters) ? 3
                                                                                             : 2;
  // A decode CTA may have only a few tiles: fills every stage in the prologue.
  static constexpr bool kFillsAllStages = kDecode && kStages == 2 && !kTwoKeyTiles;
  // True if a CTA may look up its keys and prefetch those of the prefix before the previous kernel has
  // finished.
  static constexpr bool kPrefetchesPrefix = kRows <= 64;
  // Key tiles per stage: if they are small, two share a barrier.
  static constexpr int kTilesPerStage = kRows == 128 && kHeadDimQk <= 64 && !kFp8 ? 2 : 1;
  static constexpr int kWarpsN = kDecode ? 4 : 1;
  static constexpr int kRowBlocks = kRows == 32 || (kRows == 128 && !kWide) ? 2 : 1;
  static constexpr int kWarpsM = kDecode ? 1 : kRows / 16 / kRowBlocks;
  static constexpr int kThreads = 32 * kWarpsM * kWarpsN;
  static constexpr bool kConvertsFp8 = kFp8;
  // Steps of 16 elements of q that a warp keeps in registers: all, loaded once per work tile; or the current
  // and the next one.
  static constexpr int kRegisterQuerySteps = kHeadDimQk <= (kRows <= 16 ? 128 : 64) ? kHeadDimQk / 16 : 2;
  // True if P is computed before the max of a tile is available (WarpRows::softmax_with_stale_max). The
  // saving matters if the MMAs are short, and it needs registers.
  static constexpr bool kStaleMax = kHeadDimQk <= 64 && !kDecode && !kFp8;
  // Limits registers: an SM's 65,536 are shared by all threads of these CTAs.
  static constexpr int kCtasPerSm = kWide && (kRows == 128 || (kDecode && !kFp8 && kHeadDimQk > 192)) ? 1 : 2;
};

// Shared memory of a CTA: queries; stages of keys and values with the addresses of their rows, which results
// overlay; and the state of its work tile.
template <int kHeadDimQk, int kHeadDimV, bool kFp8, int kTileRows, bool kFixedSplits, bool kClusters = false>
constexpr int config_shared_bytes() {
  using Config = TileConfig<kHeadDimQk, kHeadDimV, kFp8, kTileRows, kClusters>;
  constexpr int kAddressBytes = 16, kWorkTileBytes = 36, kScaleBytes = 4;
  constexpr int kRows = Config::kRows, kStages = Config::kStages;
  // Fixed splits may end between two key tiles.
  constexpr int kStageKeys = Config::kKeys * (kFixedSplits ? 1 : Config::kTilesPerStage);
  constexpr int kStageBytes = kStages * kStageKeys * (kHeadDimQk + kHeadDimV) * (kFp8 ? 1 : 2) +
                              (kStages == 1 ? 2 : kStages) * kStageKeys * kAddressBytes;
  // Warps that share rows merge with padding and their rows' states. CTAs of a cluster send data of the size
  // of the results, and states.
  constexpr int kResultBytes =
      (Config::kWarpsN > 1 ? Config::kWarpsN * kRows * (kHeadDimV + 6) * 4 : kRows * kHeadDimV * 2) +
      (kClusters ? kRows * (kHeadDimV * 4 + kClusterSize * 8) : 0);
  return kRows * kHeadDimQk * 2 + (kStageBytes > kResultBytes ? kStageBytes : kResultBytes) + kWorkTileBytes +
         (kFp8 ? kRows * kScaleBytes : 0);
}

// Same, for a tile height that is only known at run time. Tiles of 8 to 32 rows have no fixed splits.
template <int kHeadDimQk, int kHeadDimV>
constexpr int tile_shared_bytes(bool fp8, int tile_rows, bool fixed_splits) {
  const auto visit_height = [&]<int kTileRows>() {
    if (fixed_splits)
      return fp8 ? config_shared_bytes<kHeadDimQk, kHeadDimV, true, kTileRows, true>()
                 : config_shared_bytes<kHeadDimQk, kHeadDimV, false, kTileRows, true>();
    return fp8 ? config_shared_bytes<kHeadDimQk, kHeadDimV, true, kTileRows, false>()
               : config_shared_bytes<kHeadDimQk, kHeadDimV, false, kTileRows, false>();
  };
  if (tile_rows == 8) return visit_height.template operator()<8>();
  if (tile_rows == 16) return visit_height.template operator()<16>();
  if (tile_rows == 32) return visit_height.template operator()<32>();
  return tile_rows == 128 ? visit_height.template operator()<128>() : visit_height.template operator()<64>();
}

// Maximum shared memory of a CTA of MLA, with 64 rows.
inline constexpr int kMlaSharedBytes = 163072;

// Tallest tile for a head dim of V; the plan selects 8, 16, 32, 64 or 128 rows up to it. If it is 64, there
// are no tiles of 32 rows: their accumulators would not fit into registers.
constexpr int max_tile_rows(int head_dim_v) { return head_dim_v > 128 ? 64 : 128; }
constexpr bool has_tile_rows(int head_dim_v, int tile_rows) {
  return tile_rows <= max_tile_rows(head_dim_v) && (tile_rows != 32 || max_tile_rows(head_dim_v) == 128);
}

// Floats that a CTA saves at the end of a fixed split: results of every row, and 4 floats of each lane per 16
// rows, for the largest instance of a head dim of V and the tallest tile.
constexpr int split_accumulator_floats(int head_dim_v) {
  return max_tile_rows(head_dim_v) * ((head_dim_v > 128 ? 256 : 128) + 32 / 16 * 4);
}

}  // namespace attend::kernels::cuda
