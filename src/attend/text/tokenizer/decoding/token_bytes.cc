// Computes the bytes of each token by running the decoder. Tokens with part of a character are handled here,
// since a decoder returns only complete characters.
#include "attend/text/tokenizer/decoding/token_bytes.h"

#include <algorithm>

#include "attend/text/tokenizer/pipeline/vocabulary_spelling.h"
#include "attend/text/tokenizer/tokenizer.h"
#include "attend/text/tokenizer/tokenizer_impl.h"

namespace attend {
namespace tokenizer {
namespace {

std::string text_after_a(const Decoder& decoder, std::string_view token) {
  constexpr std::string_view kPrefix = "a";
  std::string text;
  DecodeChain chain = decoder.start(text);
  chain.push(kPrefix);
  chain.push(token);
  chain.finish();
  return text.substr(std::min(text.size(), kPrefix.size()));
}

bool is_byte_level(const Decoder& decoder) {
  std::string space;
  append_byte_level(" ", space);
  return text_after_a(decoder, space) == " ";
}

}  // namespace

TokenBytes::TokenBytes(const Decoder& decoder)
    : decoder_(decoder),
      byte_level_(is_byte_level(decoder)),
      byte_fallback_(text_after_a(decoder, "<0x41>") == "A") {}

std::string TokenBytes::added_to_text(std::string_view token) const {
  const std::optional<std::string> bytes = spelled(token);
  return bytes ? *bytes : text_after_a(decoder_, token);
}

std::optional<std::string> TokenBytes::spelled(std::string_view token) const {
  if (is_byte_token(token)) return std::string(1, static_cast<char>(parse_byte_token(token)));
  if (!byte_level_) return std::nullopt;
  return decode_byte_level(token).value_or(std::string(token));
}

bool TokenBytes::is_byte_token(std::string_view token) const {
  return byte_fallback_ && parse_byte_token(token) >= 0;
}

}  // namespace tokenizer

std::vector<std::string> Tokenizer::token_bytes() const {
  const tokenizer::TokenBytes reader(*impl_->decoder);
  std::vector<std::string> bytes(impl_->tokens.size());
  for (size_t id = 0; id < bytes.size(); ++id) {
    const Impl::Token& token = impl_->tokens[id];
    if (!token.special && token.decoded != nullptr) bytes[id] = reader.added_to_text(*token.decoded);
  }
  return bytes;
}

}  // namespace attend
