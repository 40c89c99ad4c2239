// LogitEdit, TokenLogprob: plain structs that device code can include.
#pragma once

#include <cstdint>

#pragma GCC visibility push(default)
namespace attend::kernels {

// Change of a token's logit x: x / repetition if x > 0, otherwise x * repetition; then + offset, which may be
// -infinity.
struct LogitEdit {
  int32_t token_id;
  float repetition = 1.0f;
  float offset = 0.0f;
};

// A token and its log-probability.
struct TokenLogprob {
  int32_t token_id;
  float logprob;
  bool operator==(const TokenLogprob&) const = default;
};

}  // namespace attend::kernels
#pragma GCC visibility pop
