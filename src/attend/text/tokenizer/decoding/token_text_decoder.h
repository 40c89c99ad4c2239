// TokenTextDecoder: text and bytes of each token of a sequence, as shown with logprobs.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "attend/text/tokenizer/tokenizer.h"

#pragma GCC visibility push(default)
namespace attend {

// Text and bytes that a token adds to a text.
struct TokenText {
  // Characters that the token completes. A character of several tokens belongs to the token with its last
  // byte. The concatenated texts of tokens with is_in_text equal the decoded text.
  std::string text;
  std::string bytes;       // bytes that the token adds, possibly part of a character
  bool is_in_text = true;  // false: a special token that the decoded text omits; `text` is its name
};

// Not thread-safe.
class TokenTextDecoder {
 public:
  explicit TokenTextDecoder(const Tokenizer& tokenizer, bool skip_special_tokens = true);
  ~TokenTextDecoder();
  TokenTextDecoder(TokenTextDecoder&&) noexcept;
  TokenTextDecoder& operator=(TokenTextDecoder&&) noexcept;

  // Call before the first push(): the ids that follow continue `prompt`.
  void set_prompt(std::span<const int32_t> prompt);
  // Returns the text of `id` as the next token, without appending it. Ids outside of the vocabulary have
  // empty texts.
  TokenText decode(int32_t id) const;
  // Returns the same as decode(), and appends the token.
  TokenText push(int32_t id);
  // Ends the text: returns U+FFFD if its last character is incomplete.
  std::string flush();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace attend
#pragma GCC visibility pop
