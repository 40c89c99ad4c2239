// TokenSpeller: texts and bytes of single tokens in their place in a text, as logprobs show them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "attend/text/tokenizer/tokenizer.h"

#pragma GCC visibility push(default)
namespace attend {

struct TokenSpelling {
  // Text that the token completes: none if it ends within a character, and the whole character for the token
  // with its last byte. Joined, the texts of tokens that are in the text equal the text.
  std::string text;
  std::string bytes;       // that the token adds, possibly part of a character
  bool is_in_text = true;  // false: a special token that the text omits; `text` spells it
};

// Not thread-safe.
class TokenSpeller {
 public:
  explicit TokenSpeller(const Tokenizer& tokenizer, bool skip_special_tokens = true);
  ~TokenSpeller();
  TokenSpeller(TokenSpeller&&) noexcept;
  TokenSpeller& operator=(TokenSpeller&&) noexcept;

  // Call before the first push(): the ids that follow continue `prompt`.
  void follow(std::span<const int32_t> prompt);
  // Returns the spelling of an id as the next token. Ids outside of the vocabulary have empty texts.
  TokenSpelling spell(int32_t id) const;
  // Returns the same, and appends the token.
  TokenSpelling push(int32_t id);
  // Ends the text: returns U+FFFD if its last character is incomplete.
  std::string flush();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace attend
#pragma GCC visibility pop
