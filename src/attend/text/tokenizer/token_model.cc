#include "attend/text/tokenizer/token_model.h"

#include "attend/text/tokenizer/bpe/bpe_model.h"
#include "attend/text/tokenizer/unigram_model.h"
#include "attend/text/tokenizer/word_piece_model.h"

namespace attend::tokenizer {

std::unique_ptr<TokenModel> make_token_model(const JsonNode& node) {
  // Old files have no type.
  const std::string type =
      node.find_string("type").value_or(node.has("merges")                     ? "BPE"
                                        : node.has("max_input_chars_per_word") ? "WordPiece"
                                        : node.has("unk_id")                   ? "Unigram"
                                                                               : "");
  if (type == "BPE") return std::make_unique<BpeModel>(node);
  if (type == "WordPiece") return std::make_unique<WordPieceModel>(node);
  if (type == "Unigram") return std::make_unique<UnigramModel>(node);
  constexpr std::string_view kTypes = "\"BPE\", \"WordPiece\" and \"Unigram\"";
  if (type.empty()) node.unsupported("has no type and no merges; attend reads models of type ", kTypes);
  node.at("type").unsupported("model \"", type, "\"; attend reads ", kTypes);
}

}  // namespace attend::tokenizer
