// The WordPiece model of tokenizer.json, as BERT has it: from the front of a word always the longest token,
// those behind the first with a prefix ("##").
#pragma once

#include <string>

#include "attend/text/tokenizer/token_model.h"
#include "attend/text/tokenizer/word_cache.h"

namespace attend::tokenizer {

class WordPieceModel : public TokenModel {
 public:
  // `node`: the field `model`. Error(kCorruptFile) for a wrong shape.
  explicit WordPieceModel(const JsonNode& node);

  // A word that tokens can not make up, or of too many characters, is one unk_token.
  void encode(std::string_view word, std::vector<int32_t>& ids) const override;

 private:
  bool append_pieces(std::string_view word, std::vector<int32_t>& ids) const;

  std::string where_;
  std::string unk_token_;
  std::optional<int32_t> unk_id_;
  std::string prefix_;
  size_t max_word_chars_ = 0;
  size_t longest_token_ = 0;  // bytes
  mutable WordCache cache_;
};

}  // namespace attend::tokenizer
