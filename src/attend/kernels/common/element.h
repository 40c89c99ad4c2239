// Single elements of any dtype as float64, for the reference implementations.
#pragma once

#include <array>
#include <vector>

#include "attend/tensor/tensor.h"

namespace attend::kernels::reference {

// Loads the element at offset `i` (in elements) from the view's start.
double load(const TensorView& view, int64_t i);
// Loads `count` consecutive elements from offset `i`.
std::vector<double> load_row(const TensorView& view, int64_t i, int64_t count);
// Stores a value, rounded to the view's dtype.
void store(const TensorView& view, int64_t i, double value);

// Returns the offset of an index, in elements.
template <class... Index>
int64_t offset(const TensorView& view, Index... index) {
  const std::array<int64_t, sizeof...(Index)> indices{static_cast<int64_t>(index)...};
  int64_t sum = 0;
  for (size_t dim = 0; dim < indices.size(); ++dim) sum += indices[dim] * view.strides[dim];
  return sum;
}

}  // namespace attend::kernels::reference
