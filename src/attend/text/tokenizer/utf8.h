// UTF-8: reads and writes characters, and repairs invalid bytes.
//
// "Valid" is the strict definition (no overlong forms, no surrogates, nothing above U+10FFFF). All code after
// the entry of Tokenizer::encode works on valid text and splits it only between characters.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace attend::tokenizer {

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD

struct Char {
  char32_t code = 0;
  size_t bytes = 1;
};

// Returns the character that starts at byte `at` of valid `text`; at < text.size().
Char read_char(std::string_view text, size_t at);
// Returns the character that ends just before byte `end` of valid `text`; end > 0.
Char read_char_before(std::string_view text, size_t end);

// Returns the size in bytes of the character with first byte `lead`.
constexpr size_t char_bytes(char lead) {
  const auto byte = static_cast<unsigned char>(lead);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

// Returns the number of characters of valid `text`.
size_t num_chars(std::string_view text);

void append_char(std::string& out, char32_t code);

bool is_valid_utf8(std::string_view text);

// Repairs a stream of bytes. Valid characters pass; each maximal invalid part becomes one U+FFFD, like
// Python's bytes.decode(errors="replace"). A character that is split between two append() calls is joined.
class Utf8Repair {
 public:
  // Appends the text that is certain so far to `out`.
  void append(std::string_view bytes, std::string& out);
  // Ends the stream: an incomplete character becomes U+FFFD.
  void finish(std::string& out);

 private:
  std::string pending_;  // first bytes of a character, at most three
};

}  // namespace attend::tokenizer
