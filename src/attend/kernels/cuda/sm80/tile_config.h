// The tile shapes of the sm80 attention kernels.
#pragma once

#include "attend/kernels/cuda/attention_params.h"

namespace attend::kernels::cuda::sm80 {

// A CTA multiplies kRows query rows with kKeyTile keys at a time. kWarpsM warps share the rows, kWarpsN the
// keys of a tile, each warp has kRowBlocks blocks of 16 rows. kStages tiles of K and V are in shared memory.
template <int kHeadDimQk, int kHeadDimV, int kTileRows>
struct TileConfig {
  static constexpr int kRows = kTileRows;
  static constexpr bool kDecode = kRows == 16;
  static constexpr bool kWide = kHeadDimQk > 128;
  static constexpr int kWarpsN = kDecode ? 4 : 1;
  static constexpr int kRowBlocks = kRows == 128 && !kWide ? 2 : 1;
  static constexpr int kWarpsM = kRows / 16 / kRowBlocks;
  static constexpr int kThreads = 32 * kWarpsM * kWarpsN;
  static constexpr int kStages = kDecode && !kWide ? 3 : 2;
  // Registers: 65,536 of an SM among so many threads.
  static constexpr int kCtasPerSm = kHeadDimQk > 192 || (kWide && kRows == 128) ? 1 : 2;
};

}  // namespace attend::kernels::cuda::sm80
