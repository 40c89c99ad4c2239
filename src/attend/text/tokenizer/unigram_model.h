// UnigramModel: the Unigram model of tokenizer.json (SentencePiece's, as in XLM-RoBERTa). It encodes a word
// by the sequence of tokens with the largest sum of scores.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "attend/text/tokenizer/token_model.h"
#include "attend/text/tokenizer/word_cache.h"

namespace attend::tokenizer {

class UnigramModel : public TokenModel {
 public:
  // `node`: the field `model`. Throws Error(kCorruptFile) for a malformed node.
  explicit UnigramModel(const JsonNode& node);

  // A run of characters without tokens becomes byte tokens, with byte_fallback and if the vocabulary has all
  // of them, or else one unk token. Throws Error(kUnsupported) if the vocabulary has neither.
  void encode(std::string_view word, std::vector<int32_t>& ids) const override;

 private:
  // Trie of all tokens. Children of a node are adjacent, and sorted by their bytes.
  struct Node {
    uint32_t first_child = 0;
    uint16_t num_children = 0;
    uint8_t byte = 0;
    int32_t id = -1;  // token that ends here; -1: none
  };
  void build_trie();
  const Node* child(const Node& node, char byte) const;
  // Returns the ends of the best path's tokens, from the last one to the first.
  std::vector<size_t> best_path(std::string_view word) const;
  void append_piece(std::string_view piece, std::vector<int32_t>& ids) const;

  std::string where_;
  std::vector<double> scores_;  // [vocabulary]
  double unk_score_ = 0.0;
  std::optional<int32_t> unk_id_;
  std::vector<int32_t> byte_ids_;  // [256]; -1: no token; empty without byte_fallback
  std::vector<Node> trie_;
  mutable WordCache cache_;
};

}  // namespace attend::tokenizer
