// The order in which GEMMs whose bits do not depend on the number of rows add up K, and the K-blocks in which
// they bring it.
#pragma once

#include <cstdint>

namespace attend::kernels::cuda {

inline constexpr int kBlockK = 64;     // inputs of a K-block
inline constexpr int kRowBytes = 128;  // of a K-block, of 16 bits: whole lines of memory
inline constexpr int kPieces = 8;      // of 16 bytes, of those

// Where in a tile of such rows a piece of one lies: the same piece of eight rows lies in eight different
// banks.
__device__ inline uint32_t swizzled_piece(int row, int piece) {
  return static_cast<uint32_t>(row * kRowBytes + (piece ^ (row & 7)) * 16);
}

// Slice w of K is its blocks w, w + 8, w + 16, ...; the partial sums of the slices are added from 0 to 7. The
// skinny GEMM has a warp for each slice (sliced-K); where rows are many, slices come one after another, or a
// few at once.
inline constexpr int kKSlices = 8;

// Goes through the K-blocks, slice after slice.
struct KBlockOrder {
  int num_k_blocks;
  int k_block = 0;

  __device__ bool ends_slice() const { return k_block + kKSlices >= num_k_blocks; }
  __device__ void advance() { k_block = ends_slice() ? k_block % kKSlices + 1 : k_block + kKSlices; }
};

}  // namespace attend::kernels::cuda
