// Normalizers: what happens to text before it is cut into words.
//
// tokenizer.json `normalizer`: NFC, NFD, NFKC, NFKD, Lowercase, Strip, StripAccents, Replace, Prepend,
// BertNormalizer, Sequence. Others are refused by name.
#pragma once

#include <limits>
#include <memory>
#include <string>

#include "attend/checkpoint/json.h"
#include "attend/text/tokenizer/regex/regex.h"

namespace attend::tokenizer {

struct NormalizedText {
  std::string text;  // valid UTF-8
  // Leading bytes of `text` that stand for the first character of the whole input. Metaspace with the prepend
  // scheme "first" asks whether a piece begins there. Unicode forms count their first character only.
  size_t origin = 0;
  size_t max_bytes = std::numeric_limits<size_t>::max();  // that steps may make of it (growth.h)
};

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual void apply(NormalizedText& text, RegexScratch& scratch) const = 0;
};

// Error(kUnsupported) for a type or a pattern that attend lacks, Error(kCorruptFile) for a wrong shape.
std::unique_ptr<Normalizer> make_normalizer(const JsonNode& node);

}  // namespace attend::tokenizer
