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
// 0. Called by `num_threads` threads.
template <class T, int kColumns, class Rows>
__device__ inline void copy_chunk_rows(const TokenRows& rows, const DeltaChunk& chunk, int head, int column,
                                       uint32_t to_shared, int thread, int num_threads) {
  constexpr int kPieces = kColumns / 8;
  const T* const from = static_cast<const T*>(rows.data) + head * rows.head_stride + column;
  for (int piece = thread; piece < kDeltaChunk * kPieces; piece += num_threads) {
    const int i = piece / kPieces, c = piece % kPieces * 8;
    const bool valid = chunk.has(i);
    const int64_t token = valid ? chunk.first + i : chunk.begin;
    ptx::cp_async_16(to_shared + Rows::offset(i, c), from + token * rows.token_stride + c, valid);
  }
}

}  // namespace attend::kernels::cuda
