// Tokens of a chunk in shared memory: layouts of their rows, and copies from global memory.
#pragma once

#include "attend/kernels/common/cuda/params.h"
#include "attend/kernels/common/cuda/ptx/copy.cuh"
#include "attend/kernels/recurrent/cuda/common/delta_chunks.cuh"

namespace attend::kernels::cuda {

// Layouts of the rows of a chunk, kColumns elements of 16 bits each. offset() returns the byte of a column
// that is a multiple of 8. ldmatrix has no bank conflicts in either one.

// Rows with 16 bytes between them.
template <int kColumns>
struct PaddedRows {
  static constexpr int kStride = kColumns + 8;  // elements
  static constexpr int kBytes = kDeltaChunk * kStride * 2, kAlignment = 16;
  static __device__ uint32_t offset(int row, int column) {
    return static_cast<uint32_t>((row * kStride + column) * 2);
  }
};

// Panels of 64 columns in the 128-byte swizzle of wgmma.
template <int kColumns>
struct SwizzledRows {
  static constexpr int kPanelBytes = kDeltaChunk * 128;
  static constexpr int kBytes = (kColumns + 63) / 64 * kPanelBytes, kAlignment = 1024;
  static __device__ uint32_t offset(int row, int column) {
    return static_cast<uint32_t>(column / 64 * kPanelBytes + row * 128 +
                                 ((column % 64 / 8) ^ (row % 8)) * 16);
  }
};

// Starts to copy kColumns columns of a head, from `column` on, to shared memory; rows without a token become
// 0. Called by kThreads threads. A loop that is not unrolled computes one address after another: with few
// warps, that took longer than the copies.
template <class T, int kColumns, class Rows, int kThreads>
__device__ inline void copy_chunk_rows(const TokenRows& rows, const DeltaChunk& chunk, int head, int column,
                                       uint32_t to_shared, unsigned thread) {
  constexpr unsigned kPiecesPerRow = kColumns / 8, kPieces = kDeltaChunk * kPiecesPerRow;
  // Row 0 of the chunk, which may be before the first token.
  const T* const from =
      static_cast<const T*>(rows.data) + chunk.first * rows.token_stride + head * rows.head_stride + column;
#pragma unroll
  for (unsigned first = 0; first < kPieces; first += kThreads) {
    const unsigned piece = first + thread;
    if (kPieces % kThreads != 0 && piece >= kPieces) break;
    const int i = static_cast<int>(piece / kPiecesPerRow), c = static_cast<int>(piece % kPiecesPerRow) * 8;
    ptx::cp_async_16(to_shared + Rows::offset(i, c), from + i * rows.token_stride + c, chunk.has(i));
  }
}

}  // namespace attend::kernels::cuda
