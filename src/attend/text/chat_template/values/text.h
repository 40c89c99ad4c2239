// Text with the origin (template or user) of each byte, preserved through all operations.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "attend/text/chat_template/values/read_budget.h"

namespace attend::chat_template {

// Always valid UTF-8.
class Text {
 public:
  enum class From : char { kTemplate, kUser };

  Text() = default;
  explicit Text(std::string bytes, From from = From::kTemplate)
      : bytes_(std::move(bytes)), marks_(bytes_.size(), static_cast<char>(from)) {}
  explicit Text(std::string_view bytes, From from = From::kTemplate) : Text(std::string(bytes), from) {}
  explicit Text(const char* bytes) : Text(std::string(bytes)) {}

  const std::string& bytes() const { return bytes_; }
  size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  From from(size_t byte) const { return static_cast<From>(marks_[byte]); }

  // Returns bytes [begin, end).
  Text part(size_t begin, size_t end) const;
  void append(const Text& other);
  void append(std::string_view bytes, From from = From::kTemplate);

  // Compares bytes only, not their origin.
  bool operator==(const Text& other) const {
    if (size() == other.size()) ReadBudget::charge(size());
    return bytes_ == other.bytes_;
  }

 private:
  std::string bytes_;
  std::string marks_;  // a From per byte
};

// Functions of Python's str, in units of characters.

// Returns the start offset of each character, and the end offset.
std::vector<size_t> char_offsets(const Text& text);
size_t count_chars(std::string_view text);
// Returns the offset of the first occurrence, or npos.
size_t find(const Text& text, std::string_view part, size_t begin = 0);

enum class Sides { kLeft, kRight, kBoth };
// `chars`: characters to strip; null for white space.
Text strip(const Text& text, const std::string* chars, Sides sides);

// `max_splits` below 0: no limit. `separator` must not be empty.
std::vector<Text> split(const Text& text, std::string_view separator, int64_t max_splits);
std::vector<Text> split_from_right(const Text& text, std::string_view separator, int64_t max_splits);
std::vector<Text> split_at_white_space(const Text& text, int64_t max_splits);
std::vector<Text> split_lines(const Text& text);

// `count` below 0: no limit.
Text replace(const Text& text, std::string_view old, const Text& with, int64_t count);

enum class Case { kLower, kUpper, kTitle, kCapitalized };
Text to_case(const Text& text, Case to);

}  // namespace attend::chat_template
