// UTF-8: reading and writing characters, and making any bytes valid.
//
// "Valid" is the strict definition (no overlong forms, no surrogates, nothing above U+10FFFF). Everything
// past the entry of Tokenizer::encode works on valid text, and pieces are cut only between characters.
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

// The character that starts at byte `at` of valid `text`; at < text.size().
Char read_char(std::string_view text, size_t at);
// The character that ends just before byte `end` of valid `text`; end > 0.
Char read_char_before(std::string_view text, size_t end);

// Bytes of the character whose first byte is `lead`.
constexpr size_t char_bytes(char lead) {
  const auto byte = static_cast<unsigned char>(lead);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

void append_char(std::string& out, char32_t code);

bool is_valid_utf8(std::string_view text);

// Repairs a stream of bytes: valid characters pass; each maximal invalid part becomes one U+FFFD, as Python's
// bytes.decode(errors="replace") does. A character that is cut at the end of one append is completed by the
// next.
class Utf8Repair {
 public:
  // Appends what is certain so far to `out`.
  void append(std::string_view bytes, std::string& out);
  // Ends the stream: a character that was never completed becomes U+FFFD.
  void finish(std::string& out);

 private:
  std::string pending_;  // the first bytes of a character, at most three
};

}  // namespace attend::tokenizer
