// Added tokens: texts that are a single token wherever they occur. They are split off before the model
// encodes the rest.
//
// The semantics are those of the `tokenizers` library: the leftmost, longest added token wins. Tokens with
// `normalized` false are searched in the raw text. The other tokens are normalized, and searched in the
// normalized rest.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "attend/text/tokenizer/pipeline/normalizer.h"
#include "attend/text/tokenizer/regex/regex.h"
#include "attend/text/tokenizer/token_trie.h"

namespace attend::tokenizer {

struct AddedToken {
  std::string content;
  bool single_word = false;  // matches only between non-word characters
  bool lstrip = false;       // includes the white space before it
  bool rstrip = false;       // includes the white space after it
  bool normalized = false;
  bool special = false;  // omitted by decode() on request

  bool operator==(const AddedToken&) const = default;
};

// Reads `content` and the flags. A missing flag is false; a missing `normalized` is !special.
AddedToken read_added_token(const JsonNode& node);

class AddedTokens {
 public:
  // Segment of a text: plain text, or one added token.
  struct Segment {
    Span span;
    int32_t id = -1;  // -1: plain
  };

  // Adds a token, or redefines the token with the same content. The caller has validated `id`.
  void add(AddedToken token, int32_t id);

  // Call once, after the last add(). Of two tokens that are normalized to the same text, the one added first
  // is found. Throws Error(kUnsupported) with prefix `where` for a token that is normalized to an empty text.
  void finish(const Normalizer* normalizer, std::string_view where);

  // Appends segments that cover `text`: split_raw() splits at tokens with normalized false,
  // split_normalized() at the others. `plain`: empty, or a flag per byte that excludes it from special
  // tokens.
  void split_raw(std::string_view text, const std::vector<bool>& plain, std::vector<Segment>& segments) const;
  void split_normalized(std::string_view text, const std::vector<bool>& plain,
                        std::vector<Segment>& segments) const;
  // Returns true if a special token is searched in normalized text.
  bool normalizes_special() const { return normalizes_special_; }

  struct Entry {
    AddedToken token;
    int32_t id = -1;
    std::string decoded;  // input of the decoder: the content, normalized if the token is normalized
  };
  const std::vector<Entry>& entries() const { return entries_; }
  const Entry* find(std::string_view content) const;
  bool is_special(std::string_view content) const;

 private:
  void split(std::string_view text, const std::vector<bool>& plain, const TokenTrie& trie,
             std::vector<Segment>& segments) const;
  bool touches_word(std::string_view text, Span match) const;

  std::vector<Entry> entries_;
  std::unordered_map<std::string, size_t> by_content_;
  TokenTrie raw_;         // values: indices of entries_
  TokenTrie normalized_;  // values: indices of entries_
  std::optional<Regex> word_char_;
  bool normalizes_special_ = false;
};

}  // namespace attend::tokenizer
