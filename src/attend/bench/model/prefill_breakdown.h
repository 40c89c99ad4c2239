// What a prefill cannot do without on a GPU, alone: its products and its attention.
#pragma once

#include "attend/engine/engine.h"

namespace attend::bench {

// Microseconds of the parts of a step that computes a prompt, all layers together.
struct PrefillBreakdown {
  double products_us = 0.0;
  double attention_us = 0.0;

  double total_us() const { return products_us + attention_us; }
};

// Times the products and the attention of one prompt of `num_tokens` tokens, with nothing stored before it,
// in the shapes, dtypes, page size and visibilities of the engine's model: the same kernels over random data
// of their own, on a stream of their own, with nothing between them. The
// products of experts are timed as dense ones of as many rows.
PrefillBreakdown time_prefill_breakdown(const Engine& engine, int num_tokens);

}  // namespace attend::bench
