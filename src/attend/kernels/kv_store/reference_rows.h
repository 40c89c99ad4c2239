// Latent rows of a cache in float64: what a row means, whatever it is stored in.
#pragma once

#include <vector>

#include "attend/tensor/tensor.h"

namespace attend::kernels::reference {

// The `count` values from `first` on of the row that begins at `offset` (in elements of the cache).
std::vector<double> load_latent(const TensorView& cache, int64_t offset, int64_t first, int64_t count);

// `values`: [kScaledRow.width()].
void store_scaled_row(const TensorView& cache, int64_t offset, const std::vector<double>& values);

}  // namespace attend::kernels::reference
