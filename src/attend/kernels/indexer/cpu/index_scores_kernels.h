// Scores of index heads for one instruction set.
#pragma once

#include <cstdint>

#include "attend/kernels/common/cpu/isa.h"
#include "attend/tensor/dtype.h"

namespace attend::kernels::cpu {

// Largest number of keys of a tile for any instruction set.
inline constexpr int kMaxTileKeys = 64;

struct IndexScoreKernels {
  int tile_keys = 0;  // a divisor of kMaxTileKeys
  // Converts tile_keys rows of `head_dim` elements (f32, f16 or bf16) to keys: f32 [head_dim, tile_keys].
  void (*transpose)(const void* const* rows, DType dtype, int64_t head_dim, float* keys) = nullptr;
  // scores[t] = sum over heads h of weights[h] * max(0, q_h . k_t) for the keys of a tile. q: [num_heads,
  // head_dim] with head_stride. The order of additions is the same for every key.
  void (*score)(const float* q, int64_t head_stride, const float* weights, int64_t num_heads,
                int64_t head_dim, const float* keys, float* scores) = nullptr;
};

IndexScoreKernels index_score_kernels_portable();
IndexScoreKernels index_score_kernels_avx2();
IndexScoreKernels index_score_kernels_avx512();

IndexScoreKernels index_score_kernels(Isa isa);

}  // namespace attend::kernels::cpu
