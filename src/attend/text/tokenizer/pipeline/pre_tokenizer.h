// Pre-tokenizers: split normalized text into words, which the model encodes one by one.
//
// Supported types of tokenizer.json's `pre_tokenizer`: Split, ByteLevel, Metaspace, Digits, Punctuation,
// Whitespace, WhitespaceSplit, BertPreTokenizer, Sequence. Other types are rejected.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "attend/checkpoint/json.h"
#include "attend/text/tokenizer/pipeline/normalizer.h"
#include "attend/text/tokenizer/regex/regex.h"

namespace attend::tokenizer {

// Text and the pieces that are encoded: ordered, not overlapping, never empty.
struct PreTokenized {
  struct Piece {
    size_t begin;
    size_t end;
    size_t origin;  // NormalizedText::origin of this piece
  };
  std::string text;
  std::vector<Piece> pieces;
  size_t max_bytes;  // see NormalizedText

  explicit PreTokenized(NormalizedText whole);
  std::string_view piece(size_t index) const {
    return std::string_view(text).substr(pieces[index].begin, pieces[index].end - pieces[index].begin);
  }
};

class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  virtual void apply(PreTokenized& text, RegexScratch& scratch) const = 0;
};

// Throws Error(kUnsupported) for an unsupported type or pattern, Error(kCorruptFile) for a malformed node.
std::unique_ptr<PreTokenizer> make_pre_tokenizer(const JsonNode& node);

}  // namespace attend::tokenizer
