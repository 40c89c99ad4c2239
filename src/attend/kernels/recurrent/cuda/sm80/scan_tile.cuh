// Tile of scan_chunks.cuh: sizes, its layout in shared memory, and what warps exchange there.
#pragma once

#include <cstdint>

#include "attend/kernels/recurrent/cuda/common/step_request.cuh"

namespace attend::kernels::cuda::sm80 {

inline constexpr int kChunk = 64;
inline constexpr int kRoleWarps = 4, kRoleThreads = 32 * kRoleWarps;  // of each group
inline constexpr int kOutputGroups = 2;
inline constexpr int kChunkThreads = (1 + kOutputGroups) * kRoleThreads;
inline constexpr int kItemBarrier = 15;  // of all threads
inline constexpr int kPieceBytes = 16, kPieceElements = 8;

// Offset of 16 bytes of a row of a tile. Eight rows at the same piece are in different banks.
template <int kRowBytes>
__device__ inline uint32_t piece_offset(int row, int piece) {
  static_assert(kRowBytes == 64 || kRowBytes % 128 == 0);
  const int swizzle = kRowBytes == 64 ? row / 2 % 4 : row % 8;
  return static_cast<uint32_t>(row * kRowBytes + (piece ^ swizzle) * kPieceBytes);
}

// Moves an offset by this number of pieces, whose bits are 0 in the piece of `offset`.
template <int kRowBytes>
__device__ inline uint32_t move_pieces(uint32_t offset, int pieces) {
  constexpr int kSwizzled = kRowBytes == 64 ? 4 : 8;
  return (offset ^ static_cast<uint32_t>(pieces % kSwizzled * kPieceBytes)) +
         static_cast<uint32_t>(pieces / kSwizzled * kSwizzled * kPieceBytes);
}

template <int kStateDim_, int kSlice_, int kStages_>
struct ScanTile {
  static constexpr int kStateDim = kStateDim_, kSlice = kSlice_, kStages = kStages_;
  static constexpr int kStateRowBytes = 2 * kStateDim, kSliceRowBytes = 2 * kSlice;
  static constexpr int kXBytes = kChunk * kSliceRowBytes, kStateRowsBytes = kChunk * kStateRowBytes;
  static constexpr int kStageBytes = kXBytes + 2 * kStateRowsBytes;
  static constexpr int kUnroll = kSlice == 32 ? 2 : 1;  // limited by registers
  static constexpr int kCopyBytes = kSlice * kStateRowBytes;
  // State warps: 16 rows and a part of the columns.
  static constexpr int kRowBlocks = kSlice / 16, kColumnParts = kRoleWarps / kRowBlocks;
  static constexpr int kWarpColumns = kStateDim / kColumnParts, kBlocks = kWarpColumns / 8;
  static_assert(kColumnParts * kRowBlocks == kRoleWarps && kBlocks % 2 == 0);
};

// Steps of the tokens of a chunk. Tokens outside the request have step 0.
struct alignas(16) ChunkSteps {
  float sums[kChunk];  // G in units of ln 2
  float steps[kChunk];
  float weights[kChunk];  // steps times e^(G_63 - G)
  int saves[kChunk];      // slots that receive the state after the token; 0: none
  int any_saves;
};

template <class Tile>
struct ScanShared {
  alignas(128) char stages[Tile::kStages][Tile::kStageBytes];
  char states[Tile::kStages][Tile::kCopyBytes];  // [kSlice, kStateDim] in 16 bits: before the chunk
  ChunkSteps steps[Tile::kStages];
  float divided_weights[kRoleWarps][kChunk];  // of each state warp
  // In shared memory, since all registers are in use during a scan.
  StepRequest request;
  int item;
};

}  // namespace attend::kernels::cuda::sm80
