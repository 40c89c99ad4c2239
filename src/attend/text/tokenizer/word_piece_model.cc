#include "attend/text/tokenizer/word_piece_model.h"

#include <algorithm>

#include "attend/base/error.h"
#include "attend/text/tokenizer/utf8.h"

namespace attend::tokenizer {

WordPieceModel::WordPieceModel(const JsonNode& node)
    : TokenModel(node.at("vocab")),
      where_(node.where()),
      unk_token_(node.at("unk_token").string()),
      unk_id_(vocabulary().id(unk_token_)),
      prefix_(node.at("continuing_subword_prefix").string()),
      max_word_chars_(static_cast<size_t>(node.integer("max_input_chars_per_word", 0, 1 << 30))) {
  for (const std::optional<std::string>& token : vocabulary().tokens())
    if (token) longest_token_ = std::max(longest_token_, token->size());
}

void WordPieceModel::encode(std::string_view word, std::vector<int32_t>& ids) const {
  if (cache_.find(word, ids)) return;
  const size_t first = ids.size();
  if (num_chars(word) > max_word_chars_ || !append_pieces(word, ids)) {
    ids.resize(first);
    if (!unk_id_)
      fail(ErrorCode::kUnsupported, where_, ".unk_token: \"", unk_token_, "\" is needed for \"", word,
           "\" but is not in the vocabulary");
    ids.push_back(*unk_id_);
  }
  cache_.insert(word, ids, first);
}

bool WordPieceModel::append_pieces(std::string_view word, std::vector<int32_t>& ids) const {
  std::string piece;
  for (size_t begin = 0; begin < word.size();) {
    piece.assign(begin > 0 ? prefix_ : std::string());
    const size_t prefix_bytes = piece.size();
    if (prefix_bytes >= longest_token_) return false;
    piece += word.substr(begin, longest_token_ - prefix_bytes);
    // A piece that ends within a character is not a token, since vocabularies contain only complete
    // characters.
    std::optional<int32_t> id = vocabulary().id(piece);
    while (!id && piece.size() > prefix_bytes) {
      piece.pop_back();
      if (piece.size() == prefix_bytes) return false;
      id = vocabulary().id(piece);
    }
    if (!id) return false;
    ids.push_back(*id);
    begin += piece.size() - prefix_bytes;
  }
  return true;
}

}  // namespace attend::tokenizer
