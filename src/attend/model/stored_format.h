// StoredFormat: how weights of a model's linear layers are stored, as its files have them.
#pragma once

#include <cstdint>
#include <string>

#include "attend/model/quantization.h"

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

}  // namespace attend
#pragma GCC visibility pop
