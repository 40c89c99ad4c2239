// Elements of any dtype, one at a time, as float64: slow, plain, and in one place.
#pragma once

#include <array>
#include <vector>

#include "attend/tensor/tensor.h"

namespace attend::kernels::reference {

// The element at offset `i` (in elements) from the view's start.
double load(const TensorView& view, int64_t i);
// `count` elements from offset `i` on, one after another.
std::vector<double> load_row(const TensorView& view, int64_t i, int64_t count);
// Rounds to the view's dtype.
void store(const TensorView& view, int64_t i, double value);

// Offset of an index, in elements.
template <class... Index>
int64_t offset(const TensorView& view, Index... index) {
  const std::array<int64_t, sizeof...(Index)> indices{static_cast<int64_t>(index)...};
  int64_t sum = 0;
  for (size_t dim = 0; dim < indices.size(); ++dim) sum += indices[dim] * view.strides[dim];
  return sum;
}

}  // namespace attend::kernels::reference
