// Helpers for streamed text: number of bytes at its end that must be held back until more text arrives.
#pragma once

#include <algorithm>
#include <string>
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

// Returns the number of bytes at the end of a text that was cut off which are the start of `marker` and
// therefore not text. The start of a marker that is a word may be text: it counts from half of the marker on.
inline size_t num_cut_marker(std::string_view text, std::string_view marker) {
  const size_t size = num_held_back(text, marker);
  const char first = marker.front();
  const bool is_word = (first >= 'a' && first <= 'z') || (first >= 'A' && first <= 'Z');
  return is_word && 2 * size < marker.size() ? 0 : size;
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

// Removes the start of one of `markers` from the end of a text that was cut off, and the spaces before it.
template <class Markers>
void remove_cut_marker(std::string& text, const Markers& markers) {
  size_t size = 0;
  for (const std::string_view marker : markers)
    if (!marker.empty()) size = std::max(size, num_cut_marker(text, marker));
  if (size > 0) text.resize(trimmed_size(text, text.size() - size));
}

}  // namespace attend::serve
