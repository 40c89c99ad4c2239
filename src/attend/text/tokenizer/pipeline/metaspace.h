// Metaspace: a visible character (usually U+2581) that stands for a space in SentencePiece-like vocabularies.
// Pre-tokenizer and decoder share its description.
#pragma once

#include <string>

#include "attend/checkpoint/json.h"

namespace attend::tokenizer {

struct Metaspace {
  enum class Prepend { kFirst, kNever, kAlways };

  explicit Metaspace(const JsonNode& node);

  std::string replacement;  // one character, UTF-8
  Prepend prepend = Prepend::kAlways;
  bool split = true;
};

}  // namespace attend::tokenizer
