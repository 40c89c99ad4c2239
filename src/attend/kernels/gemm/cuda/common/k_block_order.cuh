// Summation order over K of batch-invariant GEMMs, and the K-blocks in which they load it.
#pragma once

#include <cstdint>

namespace attend::kernels::cuda {

inline constexpr int kBlockK = 64;     // inputs per K-block
inline constexpr int kRowBytes = 128;  // bytes per K-block row of 16-bit elements: whole cache lines
inline constexpr int kPieces = 8;      // pieces of 16 bytes per row

// Offset of a row's piece in a swizzled tile: the same piece of eight rows is in eight different banks.
__device__ inline uint32_t swizzled_piece(int row, int piece) {
  return static_cast<uint32_t>(row * kRowBytes + (piece ^ (row & 7)) * 16);
}

// Slice w of K consists of blocks w, w + 8, w + 16, ...; the partial sums of the slices are added from 0 to
// 7. The skinny GEMM has a warp per slice (sliced-K). Kernels for many rows compute slices one after another,
// or a few together.
inline constexpr int kKSlices = 8;

// Iterates over the K-blocks, slice after slice.
struct KBlockOrder {
  int num_k_blocks;
  int k_block = 0;

  __device__ bool ends_slice() const { return k_block + kKSlices >= num_k_blocks; }
  __device__ void advance() { k_block = ends_slice() ? k_block % kKSlices + 1 : k_block + kKSlices; }
};

}  // namespace attend::kernels::cuda
