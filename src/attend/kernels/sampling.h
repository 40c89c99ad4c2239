// Choosing the next token of each request from its logits.
#pragma once

#include <cstdint>

#include "attend/tensor/stream.h"
#include "attend/tensor/tensor.h"

namespace attend::kernels {

// How one request samples. Filters apply in this order: temperature, top_k, top_p, min_p (as SGLang and vLLM
// do).
struct SamplingRule {
  float temperature = 1.0f;  // 0: greedy
  int32_t top_k = 0;         // keep the k largest; 0: all
  float top_p = 1.0f;        // keep the smallest set of largest probabilities that reaches top_p; in (0, 1]
  float min_p = 0.0f;        // keep probabilities of at least min_p times the largest; in [0, 1]
  uint64_t seed = 0;
  uint64_t step = 0;  // index of the token in its request: with the seed, the whole random state
};

// ids[i] = index of the largest logit of row i; the lowest index of equals. logits: f32 [num_rows,
// vocab_size].
void argmax(const TensorView& logits, View<int32_t> ids, Stream& stream);

// ids[i] sampled from row i by rules[i]. The draw is a counter-based hash of (seed, step), so a request's
// tokens do not depend on what it is batched with.
void sample(const TensorView& logits, View<const SamplingRule> rules, View<int32_t> ids, Stream& stream);

}  // namespace attend::kernels
