// How the batch-invariant GEMM of sm_90a divides a layer.
#pragma once

#include <cstdint>

#include "attend/base/math.h"

namespace attend::kernels::cuda::sm90 {

// Tiles of the output: kLargeTile, which reads less, where there is one for each SM.
struct BatchInvariantGemmTile {
  int rows, features;
};
inline constexpr BatchInvariantGemmTile kLargeTile{192, 128}, kSmallTile{128, 64};

inline int64_t num_large_tiles(int64_t num_rows, int64_t num_features) {
  return ceil_div<int64_t>(num_rows, kLargeTile.rows) * ceil_div<int64_t>(num_features, kLargeTile.features);
}

}  // namespace attend::kernels::cuda::sm90
