// Representation of bytes and spaces in vocabularies, shared by pre-tokenizers and decoders.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "attend/checkpoint/json.h"

namespace attend::tokenizer {

// Byte-level alphabet of GPT-2: every byte has a printable character, so that a vocabulary of text can
// represent any bytes. Printable Latin-1 bytes represent themselves; the others, in order, are U+0100 and up
// (space is U+0120). Appends the characters of the bytes of `text`.
void append_byte_level(std::string_view text, std::string& out);

// Returns the bytes that the characters of a token represent, or no value if one of them is outside the
// alphabet.
std::optional<std::string> decode_byte_level(std::string_view token);

// Returns the byte that a byte-fallback token such as "<0xE2>" represents, or -1.
int parse_byte_token(std::string_view token);

// Metaspace: visible character (usually U+2581) that represents a space in SentencePiece-like vocabularies.
// Pre-tokenizer and decoder share this description.
struct Metaspace {
  enum class Prepend { kFirst, kNever, kAlways };

  explicit Metaspace(const JsonNode& node);

  std::string replacement;  // one character in UTF-8
  Prepend prepend = Prepend::kAlways;
  bool split = true;
};

}  // namespace attend::tokenizer
