// BpeModel: the BPE model of tokenizer.json: a vocabulary, merge rules, and the encoding of characters
// outside the vocabulary.
//
// Supports byte-level vocabularies and those of SentencePiece (byte_fallback). Rejects dropout,
// continuing_subword_prefix and end_of_word_suffix.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "attend/checkpoint/json.h"
#include "attend/text/tokenizer/bpe/bpe_merge.h"
#include "attend/text/tokenizer/token_model.h"
#include "attend/text/tokenizer/word_cache.h"

namespace attend::tokenizer {

class BpeModel : public TokenModel {
 public:
  // `node`: the field `model`. Throws Error(kUnsupported) for unsupported options, and Error(kCorruptFile)
  // for a vocabulary with duplicate ids and for a merge of a token that is not in the vocabulary.
  explicit BpeModel(const JsonNode& node);

  // A character that no token, byte tokens or unk_token can represent is dropped, as in the `tokenizers`
  // library.
  void encode(std::string_view word, std::vector<int32_t>& ids) const override;

 private:
  void read_merges(const JsonNode& merges);
  void find_chars();

  int32_t char_id(char32_t code) const;
  bool may_merge(char32_t left, char32_t right) const;
  void encode_part(std::string_view part, std::vector<int32_t>& ids) const;
  void append_symbols(std::string_view part, std::vector<int32_t>& symbols) const;

  MergeRules rules_;
  bool ignore_merges_ = false;
  bool fuse_unk_ = false;
  bool drops_unknown_ = false;
  std::string where_;
  std::optional<std::string> unk_token_;
  std::optional<int32_t> unk_id_;

  // Ids of tokens that are one character (-1: none) and of byte tokens.
  std::vector<int32_t> low_char_ids_;  // indexed by code, for the first codes
  std::unordered_map<char32_t, int32_t> high_char_ids_;
  std::vector<int32_t> byte_ids_;  // indexed by byte; empty without byte_fallback
  // Pairs of characters at the boundary within some merge. A word is split between all other pairs into parts
  // that merge independently. Not used if merge rules involve byte or unknown tokens, or with ignore_merges,
  // which looks up complete words.
  PairTable boundaries_;
  bool has_boundaries_ = false;

  mutable WordCache cache_;
};

}  // namespace attend::tokenizer
