// How vocabularies spell bytes and spaces. Pre-tokenizers and decoders share this.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "attend/checkpoint/json.h"

namespace attend::tokenizer {

// The byte-level alphabet of GPT-2: every byte has a printable character, so that a vocabulary of text can
// hold any bytes. Printable Latin-1 bytes stand for themselves; the others, in order, for U+0100 and up
// (space is U+0120). Appends the characters of the bytes of `text`.
void append_byte_level(std::string_view text, std::string& out);

// The bytes that the characters of a token stand for; nothing if one of them is outside the alphabet.
std::optional<std::string> decode_byte_level(std::string_view token);

// Metaspace: a visible character (usually U+2581) that stands for a space in SentencePiece-like vocabularies.
// Pre-tokenizer and decoder share its description.
struct Metaspace {
  enum class Prepend { kFirst, kNever, kAlways };

  explicit Metaspace(const JsonNode& node);

  std::string replacement;  // one character, UTF-8
  Prepend prepend = Prepend::kAlways;
  bool split = true;
};

}  // namespace attend::tokenizer
