// Says once when keys and values were beyond the range of an fp8 KV pool: storing cuts them to its largest
// number, which changes the model without an error.
#pragma once

#include <cstdint>

#include "attend/base/ids.h"
#include "attend/kv/kv_pool.h"
#include "attend/tensor/tensor.h"

namespace attend {

struct SaturationCount {
  int64_t num_saturated = 0, num_values = 0;
};

// The K/V of these slots in a layer: how many stand at the largest number of the pool's fp8 dtype. Where a
// cut value stands, no other is likely to. Copies whole pages from a GPU. Layers that keep slots of their own
// (windows) count as empty.
SaturationCount count_saturated(const KvPool& pool, int layer_id, View<const TokenSlot> slots);

// Looks at what the first prompts have stored, so that steps cost nothing more afterward: what overflows
// does so in a few channels of every text.
class SaturationMonitor {
 public:
  // `num_layers`: of the pool.
  explicit SaturationMonitor(int num_layers) : num_layers_(num_layers) {}

  // The slots of a prompt that is computed. Warns for the first in which values were cut; looks at no more
  // than a few.
  void look(const KvPool& pool, View<const TokenSlot> slots);

 private:
  int num_layers_;
  int num_checks_ = 0;
};

}  // namespace attend
