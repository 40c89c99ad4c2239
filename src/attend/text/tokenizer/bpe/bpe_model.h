// The BPE model of tokenizer.json: a vocabulary, merge rules, and how characters outside the vocabulary are
// written.
//
// Serves byte-level vocabularies and those of SentencePiece (byte_fallback) alike. Refused by name: dropout,
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
  // `node`: the field `model`. Error(kUnsupported) for what attend lacks; Error(kCorruptFile) for a
  // vocabulary whose ids are not distinct, and for a merge that names a token outside of it.
  explicit BpeModel(const JsonNode& node);

  // A character that no token, no byte tokens and no unk_token can stand for is left out, as the `tokenizers`
  // library does.
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

  // Ids of the tokens that are one character (-1: none), and of the byte tokens.
  std::vector<int32_t> low_char_ids_;  // by code, for the first codes
  std::unordered_map<char32_t, int32_t> high_char_ids_;
  std::vector<int32_t> byte_ids_;  // by byte; empty without byte_fallback
  // The pairs of characters that stand at the joint of some merge. Between any others a word falls into parts
  // that merge independently. Not used when merge rules involve byte or unknown tokens, nor with
  // ignore_merges, for which words count whole.
  PairTable boundaries_;
  bool has_boundaries_ = false;

  mutable WordCache cache_;
};

}  // namespace attend::tokenizer
