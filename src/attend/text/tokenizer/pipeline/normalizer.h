// Normalizers: transformations of text before it is split into words.
//
// Supported types of tokenizer.json's `normalizer`: NFC, NFD, NFKC, NFKD, Lowercase, Strip, StripAccents,
// Replace, Prepend, BertNormalizer, Precompiled, Sequence. Other types are rejected.
#pragma once

#include <limits>
#include <memory>
#include <string>

#include "attend/checkpoint/json.h"
#include "attend/text/tokenizer/regex/regex.h"

namespace attend::tokenizer {

struct NormalizedText {
  std::string text;  // valid UTF-8
  // Number of leading bytes of `text` that come from the first character of the input. Metaspace with the
  // prepend scheme "first" requires it. Unicode normal forms count their first character only.
  size_t origin = 0;
  size_t max_bytes = std::numeric_limits<size_t>::max();  // limit of the text's size after all steps
                                                          // (growth.h)
};

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual void apply(NormalizedText& text, RegexScratch& scratch) const = 0;
};

// Throws Error(kUnsupported) for an unsupported type or pattern, Error(kCorruptFile) for a malformed node.
std::unique_ptr<Normalizer> make_normalizer(const JsonNode& node);

}  // namespace attend::tokenizer
