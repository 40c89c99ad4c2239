// Warns once if keys and values exceeded the range of an fp8 KV pool. A store clamps them to the largest
// finite value, which changes the model's output without an error.
#pragma once

#include <cstdint>

#include "attend/base/ids.h"
#include "attend/kv/kv_pool.h"
#include "attend/tensor/tensor.h"

namespace attend {

struct SaturationCount {
  int64_t num_saturated = 0, num_values = 0;
};

// Counts the K/V values of these slots in a layer that equal the largest finite value of the pool's fp8
// dtype. Values that were not clamped rarely equal it. Copies whole pages from a GPU. Layers with their own
// slots (sliding windows) count as empty.
SaturationCount count_saturated(const KvPool& pool, int layer_id, View<const TokenSlot> slots);

// Checks the stored K/V of the first prompts only, so that later steps cost nothing: values that overflow are
// in a few channels, for every text.
class SaturationMonitor {
 public:
  // `num_layers`: of the pool.
  explicit SaturationMonitor(int num_layers) : num_layers_(num_layers) {}

  // Checks the slots of a computed prompt. Warns about the first prompt with clamped values, and checks only
  // a few prompts.
  void check(const KvPool& pool, View<const TokenSlot> slots);

 private:
  int num_layers_;
  int num_checks_ = 0;
};

}  // namespace attend
