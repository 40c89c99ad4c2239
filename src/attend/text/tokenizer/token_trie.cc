#include "attend/text/tokenizer/token_trie.h"

namespace attend::tokenizer {

void TokenTrie::add(std::string_view text, uint32_t value) {
  uint32_t node = 0;
  for (const char byte : text) {
    const auto [child, is_new] =
        children_.try_emplace(edge(node, byte), static_cast<uint32_t>(values_.size()));
    if (is_new) values_.push_back(kNoValue);
    node = child->second;
  }
  if (values_[node] == kNoValue) values_[node] = value;
  starts_[static_cast<unsigned char>(text[0])] = true;
}

std::optional<TokenTrie::Match> TokenTrie::find(std::string_view text, size_t from) const {
  for (size_t begin = from; begin < text.size(); ++begin) {
    if (!starts_[static_cast<unsigned char>(text[begin])]) continue;
    std::optional<Match> longest;
    uint32_t node = 0;
    for (size_t at = begin; at < text.size(); ++at) {
      const auto child = children_.find(edge(node, text[at]));
      if (child == children_.end()) break;
      node = child->second;
      if (values_[node] != kNoValue) longest = Match{{begin, at + 1}, values_[node]};
    }
    if (longest) return longest;
  }
  return std::nullopt;
}

}  // namespace attend::tokenizer
