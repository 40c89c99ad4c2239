// Copies the tokens of a chunk to shared memory.
#pragma once

#include "attend/kernels/common/cuda/params.h"
#include "attend/kernels/common/cuda/ptx/copy.cuh"
#include "attend/kernels/recurrent/cuda/common/delta_chunks.cuh"
#include "attend/kernels/recurrent/cuda/sm80/delta_tiles.cuh"

namespace attend::kernels::cuda::sm80 {

// Starts to copy the rows of a head to shared memory; rows without a token become 0. Called by `num_threads`
// threads.
template <class T, int kColumns>
__device__ inline void copy_chunk_rows(const TokenRows& rows, const DeltaChunk& chunk, int head, int column,
                                       uint32_t to_shared, int thread, int num_threads) {
  constexpr int kPieces = kColumns / 8;
  const T* const from = static_cast<const T*>(rows.data) + head * rows.head_stride + column;
  for (int piece = thread; piece < kDeltaChunk * kPieces; piece += num_threads) {
    const int i = piece / kPieces, c = piece % kPieces * 8;
    const bool valid = chunk.has(i);
    const int64_t token = valid ? chunk.first + i : chunk.begin;
    ptx::cp_async_16(to_shared + static_cast<uint32_t>((i * kPaddedColumns<kColumns> + c) * 2),
                     from + token * rows.token_stride + c, valid);
  }
}

}  // namespace attend::kernels::cuda::sm80
