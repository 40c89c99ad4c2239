// SamplingRule: light and plain, so that device code includes it as it is.
#pragma once

#include <cstdint>

#pragma GCC visibility push(default)
namespace attend::kernels {

// The id of a row of logits without a token to choose.
constexpr int32_t kNoToken = -1;

// How one request samples. Filters apply in this order, each to what the one before left: temperature, top_k,
// top_p, min_p (as SGLang and vLLM do).
struct SamplingRule {
  float temperature = 1.0f;  // logits are divided by it; 0: greedy
  int32_t top_k = 0;         // keep the k largest; 0: all
  float top_p = 1.0f;        // keep the smallest set of largest probabilities that reaches top_p; in (0, 1]
  float min_p = 0.0f;        // keep probabilities of at least min_p times the largest; in [0, 1]
  uint64_t seed = 0;
  uint64_t step = 0;  // index of the token in its request: with the seed, the whole random state
};

}  // namespace attend::kernels
#pragma GCC visibility pop
