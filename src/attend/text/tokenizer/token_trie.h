// TokenTrie: finds the occurrences of any of many fixed texts.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "attend/text/tokenizer/regex/regex.h"

namespace attend::tokenizer {

class TokenTrie {
 public:
  // Adds a text (not empty) with a value. If the text exists, its value is kept.
  void add(std::string_view text, uint32_t value);

  struct Match {
    Span span;
    uint32_t value;
  };
  // Returns the longest match at the leftmost position, at or after byte `from`.
  std::optional<Match> find(std::string_view text, size_t from) const;

 private:
  static constexpr uint32_t kNoValue = UINT32_MAX;
  static uint64_t edge(uint32_t node, char byte) {
    return uint64_t{node} << 8 | static_cast<unsigned char>(byte);
  }

  std::vector<uint32_t> values_{kNoValue};           // indexed by node; node 0 is the root
  std::unordered_map<uint64_t, uint32_t> children_;  // indexed by edge()
  std::array<bool, 256> starts_{};                   // first bytes of all texts
};

}  // namespace attend::tokenizer
