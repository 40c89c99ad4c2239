#include "attend/engine/schedule/next_token_keys.h"

namespace attend {

View<const int32_t> NextTokenKeys::keys(const Request& request) {
  const View<const int32_t> tokens = prefix_keys(request);
  keys_.assign(tokens.begin(), tokens.end());
  for (size_t end = page_size_; end < tokens.size(); end += page_size_) {
    const auto pair = static_cast<uint64_t>(static_cast<uint32_t>(tokens[end - 1])) << 32 |
                      static_cast<uint32_t>(tokens[end]);
    keys_[end - 1] = pairs_.try_emplace(pair, -1 - static_cast<int32_t>(pairs_.size())).first->second;
  }
  if (keys_.size() % page_size_ == 0 && !keys_.empty()) keys_.pop_back();
  return keys_;
}

}  // namespace attend
