// Finds many fixed texts at once.
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
  // Adds a text, which is not empty, with a value. A text that is there already keeps its value.
  void add(std::string_view text, uint32_t value);

  struct Match {
    Span span;
    uint32_t value;
  };
  // The longest text at the first place, at or after byte `from`, where one of the texts is.
  std::optional<Match> find(std::string_view text, size_t from) const;

 private:
  static constexpr uint32_t kNoValue = UINT32_MAX;
  static uint64_t edge(uint32_t node, char byte) {
    return uint64_t{node} << 8 | static_cast<unsigned char>(byte);
  }

  std::vector<uint32_t> values_{kNoValue};           // by node; node 0 is the root
  std::unordered_map<uint64_t, uint32_t> children_;  // by edge()
  std::array<bool, 256> starts_{};                   // bytes that some text begins with
};

}  // namespace attend::tokenizer
