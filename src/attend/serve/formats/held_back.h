// Helpers for streamed text: number of bytes at its end that must be held back until more text arrives.
#pragma once

#include <algorithm>
#include <string_view>

namespace attend::serve {

constexpr bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

// Returns the number of bytes at the end of `text` that may be the start of `marker`. `text` must not contain
// the complete `marker`.
inline size_t num_held_back(std::string_view text, std::string_view marker) {
  for (size_t size = std::min(text.size(), marker.size() - 1); size > 0; --size)
    if (marker.starts_with(text.substr(text.size() - size))) return size;
  return 0;
}

inline std::string_view trim_front(std::string_view text) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  return text;
}

// Returns the size of the first `size` bytes without their trailing spaces.
inline size_t trimmed_size(std::string_view text, size_t size) {
  while (size > 0 && is_space(text[size - 1])) --size;
  return size;
}

}  // namespace attend::serve
