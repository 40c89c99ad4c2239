// WordPieceModel: the WordPiece model of tokenizer.json, as in BERT. It encodes a word from its front by the
// longest matching tokens; tokens after the first have a prefix ("##").
#pragma once

#include <string>

#include "attend/text/tokenizer/token_model.h"
#include "attend/text/tokenizer/word_cache.h"

namespace attend::tokenizer {

class WordPieceModel : public TokenModel {
 public:
  // `node`: the field `model`. Throws Error(kCorruptFile) for a malformed node.
  explicit WordPieceModel(const JsonNode& node);

  // A word that no tokens cover, or with too many characters, becomes one unk_token.
  void encode(std::string_view word, std::vector<int32_t>& ids) const override;

 private:
  bool append_pieces(std::string_view word, std::vector<int32_t>& ids) const;

  std::string where_;
  std::string unk_token_;
  std::optional<int32_t> unk_id_;
  std::string prefix_;
  size_t max_word_chars_ = 0;
  size_t longest_token_ = 0;  // in bytes
  mutable WordCache cache_;
};

}  // namespace attend::tokenizer
