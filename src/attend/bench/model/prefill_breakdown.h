// Times the GEMMs, attention and recurrent kernels of a prefill on a GPU separately, as its lower bound.
#pragma once

#include "attend/engine/engine.h"

namespace attend::bench {

// Microseconds of the parts of a step that computes a prompt, summed over layers.
struct PrefillBreakdown {
  double products_us = 0.0;
  double attention_us = 0.0;
  double recurrent_us = 0.0;  // convolutions, recurrences and their norms

  double total_us() const { return products_us + attention_us + recurrent_us; }
};

// Times the GEMMs, attention and recurrent kernels of one prompt of `num_tokens` tokens without cached
// tokens, with the shapes, dtypes, page size and masks of the engine's model. It runs the same kernels back
// to back on separate random data and a separate stream. GEMMs of experts are timed as dense ones with the
// same number of rows.
PrefillBreakdown time_prefill_breakdown(const Engine& engine, int num_tokens);

}  // namespace attend::bench
