// NextTokenKeys: keys of the prefix cache for K/V that depend on the token after their position.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "attend/engine/request.h"

namespace attend {

// K/V of a draft head at position i depend on token i + 1. Within a page this is one of the page's tokens,
// but not for its last position. The key of that position therefore stands for both tokens, so that
// requests share a page only if they also continue with the same token. Other keys are those of
// prefix_keys().
class NextTokenKeys {
 public:
  explicit NextTokenKeys(int page_size) : page_size_(static_cast<size_t>(page_size)) {}

  // Returns one key per token of the request, without the last one if it ends a page, since its next token is
  // unknown. Valid until the next call.
  View<const int32_t> keys(const Request& request);

 private:
  size_t page_size_;
  std::unordered_map<uint64_t, int32_t> pairs_;  // of a token and the next one: a key below 0
  std::vector<int32_t> keys_;
};

}  // namespace attend
