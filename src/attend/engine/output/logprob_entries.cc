#include "attend/engine/output/logprob_entries.h"

#include <algorithm>
#include <utility>

#include "attend/text/tokenizer/utf8.h"

namespace attend {
namespace {

std::optional<std::string> differing_bytes(TokenText& token_text) {
  return token_text.bytes == token_text.text ? std::nullopt : std::optional(std::move(token_text.bytes));
}

}  // namespace

LogprobEntries::LogprobEntries(const Tokenizer* tokenizer, bool skip_special_tokens) {
  if (tokenizer != nullptr) token_decoder_.emplace(*tokenizer, skip_special_tokens);
}

void LogprobEntries::set_prompt(std::span<const int32_t> prompt) {
  if (token_decoder_) token_decoder_->set_prompt(prompt);
}

ShownToken LogprobEntries::take(int32_t id, std::span<const TokenLogprob> top) {
  ShownToken token;
  token.id = id;
  for (const TokenLogprob& likely : top) {
    TokenText token_text = token_decoder_ ? token_decoder_->decode(likely.token_id) : TokenText();
    auto bytes = differing_bytes(token_text);
    token.top.push_back({std::move(token_text.text), likely.token_id, likely.logprob, std::move(bytes)});
  }
  TokenText token_text = token_decoder_ ? token_decoder_->push(id) : TokenText();
  token.bytes = differing_bytes(token_text);
  if (!token_text.is_in_text) token.num_chars = 0;
  token.text = std::move(token_text.text);
  return token;
}

void LogprobEntries::add_prompt(std::span<const int32_t> prompt, const LogprobsView& logprobs,
                                std::string_view echo, std::vector<ShownToken>& shown) {
  // The echo of a text may differ from the text of its tokens: it spells special tokens, and a tokenizer may
  // have normalized it. A token then covers the characters of its text at most.
  for (size_t i = 0; i < std::min(prompt.size(), logprobs.logprobs.size() + 1); ++i) {
    ShownToken token = take(prompt[i], i == 0 ? std::span<const TokenLogprob>() : logprobs.top(i - 1));
    if (i > 0) token.logprob = logprobs.logprobs[i - 1];
    const bool is_next = echo.starts_with(token.text);
    std::string_view covered;
    if (is_next || token.num_chars != 0u) covered = echo.substr(0, token.text.size());
    if (!is_next)
      while (covered.size() < echo.size() && (echo[covered.size()] & 0xc0) == 0x80)
        covered = echo.substr(0, covered.size() + 1);
    if (i + 1 == prompt.size()) covered = echo;
    token.num_chars = tokenizer::num_chars(covered);
    echo.remove_prefix(covered.size());
    shown.push_back(std::move(token));
  }
}

void LogprobEntries::add(std::span<const int32_t> ids, const LogprobsView& logprobs,
                         std::vector<ShownToken>& shown) {
  for (size_t i = 0; i < std::min(ids.size(), logprobs.logprobs.size()); ++i) {
    ShownToken token = take(ids[i], logprobs.top(i));
    token.logprob = logprobs.logprobs[i];
    shown.push_back(std::move(token));
  }
}

void LogprobEntries::end(std::span<ShownToken> shown) {
  if (!token_decoder_ || shown.empty()) return;
  const std::string rest = token_decoder_->flush();
  if (rest.empty()) return;
  ShownToken& last = shown.back();
  if (!last.bytes) last.bytes = last.text;
  last.text += rest;
}

}  // namespace attend
