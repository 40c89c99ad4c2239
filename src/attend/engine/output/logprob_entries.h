// LogprobEntries: tokens of a completion with their texts and log probabilities, as APIs return them.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attend/engine/output/request_output.h"
#include "attend/text/tokenizer/tokenizer.h"

namespace attend {

// Token with its text and log probability. Texts and bytes are those of a TokenText.
struct LikelyToken {
  std::string text;
  int32_t id = 0;
  float logprob = 0.0f;
  std::optional<std::string> bytes = {};  // none: the bytes of `text`
};
struct ShownToken {
  std::string text;
  int32_t id = 0;
  std::optional<float> logprob;  // none for the first token of a prompt
  std::vector<LikelyToken> top;  // most likely tokens at this position
  std::optional<std::string> bytes = {};
  std::optional<size_t> num_chars = {};  // characters of the answer's text; none: those of `text`
};

class LogprobEntries {
 public:
  // `tokenizer`: null: entries have no text.
  LogprobEntries(const Tokenizer* tokenizer, bool skip_special_tokens);

  // Call before add(): the tokens that follow continue `prompt`.
  void set_prompt(std::span<const int32_t> prompt);
  // Appends entries of all tokens of a prompt; `logprobs` begins with the second token. `echo`: text that the
  // answer begins with. The entries cover its characters.
  void add_prompt(std::span<const int32_t> prompt, const LogprobsView& logprobs, std::string_view echo,
                  std::vector<ShownToken>& shown);
  // Appends entries of new tokens that have logprobs.
  void add(std::span<const int32_t> ids, const LogprobsView& logprobs, std::vector<ShownToken>& shown);
  // Ends the text: adds U+FFFD to the last of these entries if the last character is incomplete.
  void end(std::span<ShownToken> shown);

 private:
  ShownToken take(int32_t id, std::span<const TokenLogprob> top);

  std::optional<TokenTextDecoder> token_decoder_;
};

}  // namespace attend
