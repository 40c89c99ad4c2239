// Added tokens: texts that are one token wherever they occur, taken out of the input before the model sees
// it.
//
// The semantics are those of the `tokenizers` library. At every place the longest added token wins, leftmost
// first. Tokens with `normalized` false are looked for in the raw text; the others, in their own normalized
// form, in what normalization makes of the rest.
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
  bool single_word = false;  // only where no word character touches it
  bool lstrip = false;       // swallows the white space before it
  bool rstrip = false;       // swallows the white space after it
  bool normalized = false;
  bool special = false;  // left out by decode() on request

  bool operator==(const AddedToken&) const = default;
};

// Reads `content` and the flags; a missing flag is false, a missing `normalized` is !special.
AddedToken read_added_token(const JsonNode& node);

class AddedTokens {
 public:
  // A piece of text: plain, or one added token.
  struct Segment {
    Span span;
    int32_t id = -1;  // -1: plain
  };

  // Adds a token, or redefines the one of the same content. `id` is its id; the caller has checked it.
  void add(AddedToken token, int32_t id);

  // To be called once, after the last add(). Of two tokens that are normalized to the same text, the one that
  // was added first is found. Error(kUnsupported), beginning with `where`, for a token that is normalized to
  // nothing.
  void finish(const Normalizer* normalizer, std::string_view where);

  // Appends the segments that cover `text`: raw for tokens with normalized false, normalized for the others.
  // `plain`: empty, or for each byte whether it may be no part of a special token.
  void split_raw(std::string_view text, const std::vector<bool>& plain, std::vector<Segment>& segments) const;
  void split_normalized(std::string_view text, const std::vector<bool>& plain,
                        std::vector<Segment>& segments) const;
  // Whether a special token is looked for in normalized text.
  bool normalizes_special() const { return normalizes_special_; }

  struct Entry {
    AddedToken token;
    int32_t id = -1;
    std::string decoded;  // what decode() passes to the decoder: the content, normalized if the token is
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
