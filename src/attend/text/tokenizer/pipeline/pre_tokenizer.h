// Pre-tokenizers: how normalized text is cut into words, which the model then encodes one by one.
//
// tokenizer.json `pre_tokenizer`: Split, ByteLevel, Metaspace, Digits, Punctuation, Whitespace,
// WhitespaceSplit, BertPreTokenizer, Sequence. Others are refused by name.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "attend/checkpoint/json.h"
#include "attend/text/tokenizer/pipeline/normalizer.h"
#include "attend/text/tokenizer/regex/regex.h"

namespace attend::tokenizer {

// A text and the pieces of it that count: ordered, not overlapping, never empty.
struct PreTokenized {
  struct Piece {
    size_t begin;
    size_t end;
    size_t origin;  // as in NormalizedText, of this piece
  };
  std::string text;
  std::vector<Piece> pieces;
  size_t max_bytes;  // as in NormalizedText

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

// Error(kUnsupported) for a type or a pattern that attend lacks, Error(kCorruptFile) for a wrong shape.
std::unique_ptr<PreTokenizer> make_pre_tokenizer(const JsonNode& node);

}  // namespace attend::tokenizer
