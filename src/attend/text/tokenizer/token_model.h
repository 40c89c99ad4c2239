// TokenModel: the model of a tokenizer.json, which converts a word to ids of its vocabulary.
//
// Supported types of tokenizer.json's `model`: BPE, WordPiece, Unigram. Other types are rejected.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "attend/checkpoint/json.h"
#include "attend/text/tokenizer/vocabulary.h"

namespace attend::tokenizer {

class TokenModel {
 public:
  virtual ~TokenModel() = default;
  // Appends the ids of one word (valid UTF-8). Thread-safe.
  virtual void encode(std::string_view word, std::vector<int32_t>& ids) const = 0;

  const Vocabulary& vocabulary() const { return vocabulary_; }

 protected:
  explicit TokenModel(const JsonNode& vocab, Vocabulary::Form form = Vocabulary::Form::kIds)
      : vocabulary_(vocab, form) {}

 private:
  Vocabulary vocabulary_;
};

// Throws Error(kUnsupported) for an unsupported type, Error(kCorruptFile) for a malformed node.
std::unique_ptr<TokenModel> make_token_model(const JsonNode& node);

}  // namespace attend::tokenizer
