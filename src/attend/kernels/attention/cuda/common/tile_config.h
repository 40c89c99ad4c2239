// The tile shapes of the attention kernels on mma.sync, and of decode of a single request.
#pragma once

#include <array>

#include "attend/kernels/attention/cuda/common/attention_params.h"

namespace attend::kernels::cuda {

// Head dims of K and of V that a kernel has an instance for, which takes those up to these.
struct HeadDims {
  int qk = 0, v = 0;
  bool operator==(const HeadDims&) const = default;
};

// The instances of instances.cmake, of two that hold head dims the cheaper one first; each is there for K/V
// of every dtype of 16 and of 8 bits.
inline constexpr std::array kAttentionDims{HeadDims{64, 64}, HeadDims{128, 128}, HeadDims{192, 128},
                                           HeadDims{256, 256}};

// Those of decode of a single request on sm_90a, for K/V of both 16-bit dtypes.
inline constexpr std::array kSingleRequestDecodeDims{HeadDims{64, 64}, HeadDims{128, 128}};

// Rows of the lowest tiles, whose keys are the rows of the MMAs (key_major_tile.cuh).
inline constexpr int kKeyMajorRows = 8;

// CTAs of a cluster, where there are clusters.
inline constexpr int kClusterSize = 8;

// A CTA multiplies kRows query rows with kKeys keys at a time. kWarpsM warps share the rows, kWarpsN the keys
// of a tile, each warp has kRowBlocks blocks of 16 rows. kStages tiles of K and V are in shared memory.
// `kClusters`: CTAs of a cluster share the keys of a work tile.
template <int kHeadDimQk, int kHeadDimV, bool kFp8, int kTileRows, bool kClusters = false>
struct TileConfig {
  static constexpr int kRows = kTileRows;
  static constexpr bool kDecode = kRows <= 32;
  static constexpr bool kWide = kHeadDimQk > 128;
  // A KV tile is a key tile or, where what it costs besides its keys is much of the time, two.
  static constexpr bool kTwoKeyTiles = kFp8 && kRows <= 16 && !kWide && !kClusters;
  static constexpr int kKeys = kTwoKeyTiles ? 2 * kKeyTile : kKeyTile;
  // One for the widest rows, which leaves room for two CTAs. A third stage pays where tiles are small, and
  // where SMs have but one CTA.
  static constexpr int kStages = kHeadDimQk > 192 && !kDecode && !kFp8                       ? 1
                                 : kDecode && !kWide && !kTwoKeyTiles && (kFp8 || kClusters) ? 3
                                                                                             : 2;
  // A decode CTA may have but a few tiles: fill every stage at once.
  static constexpr bool kFillsAllStages = kDecode && kStages == 2 && !kTwoKeyTiles;
  // Whether a CTA may look up its keys and prefetch those of the prefix while the kernel before it ends.
  static constexpr bool kPrefetchesPrefix = kRows <= 64;
  // Key tiles of a stage: where they are small, two share a barrier.
  static constexpr int kTilesPerStage = kRows == 128 && kHeadDimQk <= 64 && !kFp8 ? 2 : 1;
  static constexpr int kWarpsN = kDecode ? 4 : 1;
  static constexpr int kRowBlocks = kRows == 32 || (kRows == 128 && !kWide) ? 2 : 1;
  static constexpr int kWarpsM = kDecode ? 1 : kRows / 16 / kRowBlocks;
  static constexpr int kThreads = 32 * kWarpsM * kWarpsN;
  static constexpr bool kConvertsFp8 = kFp8;
  // Steps of 16 elements of q that a warp has in registers: all, and they are read once for a work tile; or
  // the present one and the next.
  static constexpr int kRegisterQuerySteps = kHeadDimQk <= (kRows <= 16 ? 128 : 64) ? kHeadDimQk / 16 : 2;
  // Whether P is computed before the max of a tile is known (WarpRows::softmax_with_stale_max): what that
  // saves counts where the MMAs are short, and it takes registers.
  static constexpr bool kStaleMax = kHeadDimQk <= 64 && !kDecode && !kFp8;
  // Registers: 65,536 of an SM among so many threads.
  static constexpr int kCtasPerSm = kWide && (kRows == 128 || (kDecode && !kFp8 && kHeadDimQk > 192)) ? 1 : 2;
};

// The shared memory of a CTA: queries, stages of keys and values with the addresses of their rows, or results
// over those, and what it knows of its work tile.
template <int kHeadDimQk, int kHeadDimV, bool kFp8, int kTileRows, bool kFixedSplits, bool kClusters = false>
constexpr int config_shared_bytes() {
  using Config = TileConfig<kHeadDimQk, kHeadDimV, kFp8, kTileRows, kClusters>;
  constexpr int kAddressBytes = 16, kWorkTileBytes = 36, kScaleBytes = 4;
  constexpr int kRows = Config::kRows, kStages = Config::kStages;
  // Fixed splits may end between two key tiles.
  constexpr int kStageKeys = Config::kKeys * (kFixedSplits ? 1 : Config::kTilesPerStage);
  constexpr int kStageBytes = kStages * kStageKeys * (kHeadDimQk + kHeadDimV) * (kFp8 ? 1 : 2) +
                              (kStages == 1 ? 2 : kStages) * kStageKeys * kAddressBytes;
  // Warps that share rows merge with padding and their rows' states. CTAs of a cluster send one another as
  // much as results are, and states.
  constexpr int kResultBytes =
      (Config::kWarpsN > 1 ? Config::kWarpsN * kRows * (kHeadDimV + 6) * 4 : kRows * kHeadDimV * 2) +
      (kClusters ? kRows * (kHeadDimV * 4 + kClusterSize * 8) : 0);
  return kRows * kHeadDimQk * 2 + (kStageBytes > kResultBytes ? kStageBytes : kResultBytes) + kWorkTileBytes +
         (kFp8 ? kRows * kScaleBytes : 0);
}

// The same of a tile height that is known at run time. Tiles of 8 to 32 rows have no fixed splits.
template <int kHeadDimQk, int kHeadDimV>
constexpr int tile_shared_bytes(bool fp8, int tile_rows, bool fixed_splits) {
  const auto of_height = [&]<int kTileRows>() {
    if (fixed_splits)
      return fp8 ? config_shared_bytes<kHeadDimQk, kHeadDimV, true, kTileRows, true>()
                 : config_shared_bytes<kHeadDimQk, kHeadDimV, false, kTileRows, true>();
    return fp8 ? config_shared_bytes<kHeadDimQk, kHeadDimV, true, kTileRows, false>()
               : config_shared_bytes<kHeadDimQk, kHeadDimV, false, kTileRows, false>();
  };
  if (tile_rows == 8) return of_height.template operator()<8>();
  if (tile_rows == 16) return of_height.template operator()<16>();
  if (tile_rows == 32) return of_height.template operator()<32>();
  return tile_rows == 128 ? of_height.template operator()<128>() : of_height.template operator()<64>();
}

// The most that a CTA of MLA takes: that of 64 rows.
inline constexpr int kMlaSharedBytes = 163072;

// The tallest tile for a head dim of V; the plan chooses among 8, 16, 32, 64 and 128 rows up to it. Where
// that is 64, there are none of 32: their accumulators would not fit the registers.
constexpr int max_tile_rows(int head_dim_v) { return head_dim_v > 128 ? 64 : 128; }
constexpr bool has_tile_rows(int head_dim_v, int tile_rows) {
  return tile_rows <= max_tile_rows(head_dim_v) && (tile_rows != 32 || max_tile_rows(head_dim_v) == 128);
}

// What a CTA banks at the end of a fixed split: results of every row, and for 16 rows 4 floats of each lane,
// for the largest instance of a head dim of V and the tallest tile.
constexpr int split_accumulator_floats(int head_dim_v) {
  return max_tile_rows(head_dim_v) * ((head_dim_v > 128 ? 256 : 128) + 32 / 16 * 4);
}

}  // namespace attend::kernels::cuda
