#include <algorithm>
#include <utility>
#include <vector>

#include "attend/text/tokenizer/decoding/open_text.h"
#include "attend/text/tokenizer/decoding/token_bytes.h"
#include "attend/text/tokenizer/tokenizer.h"
#include "attend/text/tokenizer/tokenizer_impl.h"
#include "attend/text/tokenizer/utf8.h"

namespace attend {
namespace {

// Decoders treat the start of a text differently, for example they strip a space. After this many tokens the
// text has begun.
constexpr size_t kNumFirstTokens = 4;

}  // namespace

namespace tokenizer {

// Joins bytes of tokens to characters, in the way of the decoder: with byte fallback, all bytes of a run that
// is not valid UTF-8 become U+FFFD, those of characters that are complete excepted, since they were returned.
class Characters {
 public:
  std::string append(const std::string& bytes, bool is_byte_token) {
    if (is_byte_token) return append_byte(bytes);
    std::string text = end_run();
    repair_.append(bytes, text);
    return text;
  }
  std::string finish() {
    std::string text = end_run();
    repair_.finish(text);
    return text;
  }

 private:
  static std::string replacements(size_t count) {
    std::string text;
    for (size_t i = 0; i < count; ++i) text += kReplacementCharacter;
    return text;
  }

  std::string append_byte(const std::string& byte) {
    if (run_is_invalid_) return replacements(1);
    run_ += byte;
    if (is_valid_utf8(run_)) return std::exchange(run_, {});
    std::string repaired;
    Utf8Repair().append(run_, repaired);
    if (repaired.empty()) return {};  // start of a character
    run_is_invalid_ = true;
    return replacements(std::exchange(run_, {}).size());
  }
  std::string end_run() {
    run_is_invalid_ = false;
    return replacements(std::exchange(run_, {}).size());
  }

  Utf8Repair repair_;  // has bytes of an incomplete character of other tokens
  std::string run_;    // bytes of an incomplete character of byte tokens
  bool run_is_invalid_ = false;
};

}  // namespace tokenizer

struct TokenTextDecoder::Impl {
  Impl(std::shared_ptr<const Tokenizer::Impl> parts, bool skip_special_tokens)
      : tokenizer(std::move(parts)), skip(skip_special_tokens), reader(*tokenizer->decoder) {}

  std::string token_bytes(const std::string& token) const {
    if (first.size() >= kNumFirstTokens) return reader.added_to_text(token);
    if (std::optional<std::string> bytes = reader.spelled(token)) return *bytes;
    std::vector<const std::string*> tokens = first;
    const size_t num_before = text_bytes(tokens);
    tokens.push_back(&token);
    const auto [settled, held] = tokenizer::decode_open(*tokenizer->decoder, tokens);
    const std::string text = settled + held;
    return text.substr(std::min(num_before, text.size()));
  }
  size_t text_bytes(std::span<const std::string* const> tokens) const {
    const auto [settled, held] = tokenizer::decode_open(*tokenizer->decoder, tokens);
    return settled.size() + held.size();
  }

  void append(const std::string& token) {
    characters.append(token_bytes(token), reader.is_byte_token(token));
    if (first.size() < kNumFirstTokens) first.push_back(&token);
  }

  std::shared_ptr<const Tokenizer::Impl> tokenizer;
  bool skip;
  tokenizer::TokenBytes reader;
  std::vector<const std::string*> first;  // tokens at the start of the text
  tokenizer::Characters characters;
};

TokenTextDecoder::TokenTextDecoder(const Tokenizer& tokenizer, bool skip_special_tokens)
    : impl_(std::make_unique<Impl>(tokenizer.impl_, skip_special_tokens)) {}
TokenTextDecoder::~TokenTextDecoder() = default;
TokenTextDecoder::TokenTextDecoder(TokenTextDecoder&&) noexcept = default;
TokenTextDecoder& TokenTextDecoder::operator=(TokenTextDecoder&&) noexcept = default;

void TokenTextDecoder::set_prompt(std::span<const int32_t> prompt) {
  for (const std::string* token : impl_->tokenizer->left_context(prompt, impl_->skip)) impl_->append(*token);
}

TokenText TokenTextDecoder::decode(int32_t id) const {
  if (const std::string* token = impl_->tokenizer->decodable(id, impl_->skip)) {
    std::string bytes = impl_->token_bytes(*token);
    std::string text =
        tokenizer::Characters(impl_->characters).append(bytes, impl_->reader.is_byte_token(*token));
    return {std::move(text), std::move(bytes), true};
  }
  const Tokenizer::Impl::Token* hidden = impl_->tokenizer->find(id);
  if (hidden == nullptr) return {{}, {}, false};
  return {*hidden->spelling, *hidden->spelling, false};
}

TokenText TokenTextDecoder::push(int32_t id) {
  TokenText token_text = decode(id);
  if (token_text.is_in_text) impl_->append(*impl_->tokenizer->decodable(id, impl_->skip));
  return token_text;
}

std::string TokenTextDecoder::flush() { return impl_->characters.finish(); }

}  // namespace attend
