// Shapes of stored tensors, for comparisons and messages. Internal to the model floor.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "attend/tensor/tensor.h"

namespace attend {

using Shape = std::vector<int64_t>;

inline Shape view_shape(const TensorView& view) {
  return {view.shape.begin(), view.shape.begin() + view.rank};
}

// "[2, 32]"
inline std::string shape_string(std::span<const int64_t> shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

}  // namespace attend
