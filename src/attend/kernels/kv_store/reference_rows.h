// Dequantized latent rows of a cache in float64, for any storage format.
#pragma once

#include <vector>

#include "attend/tensor/tensor.h"

namespace attend::kernels::reference {

// Returns `count` values from `first` of the row that starts at `offset` (in elements of the cache).
std::vector<double> load_latent(const TensorView& cache, int64_t offset, int64_t first, int64_t count);

// `values`: [kScaledRow.width()].
void store_scaled_row(const TensorView& cache, int64_t offset, const std::vector<double>& values);

}  // namespace attend::kernels::reference
