// The order in which products whose bits do not depend on the number of rows take their inputs.
#pragma once

namespace attend::kernels::cuda {

inline constexpr int kParts = 8;

// Inputs come in chunks of 64; the sum of chunks w, w + 8, w + 16, ... is part w; the parts are added from 0
// to
// 7. The few-row kernel has a warp for each part, where rows are many they come one after another: which
// chunk comes next, part after part.
struct ChunkOrder {
  int num_chunks;
  int chunk = 0;

  __device__ bool ends_part() const { return chunk + kParts >= num_chunks; }
  __device__ void advance() { chunk = ends_part() ? chunk % kParts + 1 : chunk + kParts; }
};

}  // namespace attend::kernels::cuda
