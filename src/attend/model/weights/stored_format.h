// StoredFormat: how weights of a model's linear layers are stored, as its files have them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>

#include "attend/model/config/quantization.h"

#pragma GCC visibility push(default)
namespace attend {

struct StoredFormat {
  // "int4 in groups of 128 by act-order", "fp8 per output", "bfloat16".
  std::string name;
  WeightStorage storage = WeightStorage::kPlain;
  int64_t num_elements = 0;
  // Of their tensors: elements, scales, zero points and orders.
  double num_bytes = 0.0;
};

inline bool has_quantised(std::span<const StoredFormat> formats) {
  return std::ranges::any_of(
      formats, [](const StoredFormat& format) { return format.storage != WeightStorage::kPlain; });
}

}  // namespace attend
#pragma GCC visibility pop
