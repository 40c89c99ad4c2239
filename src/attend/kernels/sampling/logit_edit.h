// LogitEdit, TokenLogprob: light and plain, so that device code includes them as they are.
#pragma once

#include <cstdint>

#pragma GCC visibility push(default)
namespace attend::kernels {

// What becomes of a token's logit x: first x / repetition where x > 0, x * repetition elsewhere; then
// + offset, which may be -infinity.
struct LogitEdit {
  int32_t token_id;
  float repetition = 1.0f;
  float offset = 0.0f;
};

// A token and the logarithm of its probability.
struct TokenLogprob {
  int32_t token_id;
  float logprob;
  bool operator==(const TokenLogprob&) const = default;
};

}  // namespace attend::kernels
#pragma GCC visibility pop
