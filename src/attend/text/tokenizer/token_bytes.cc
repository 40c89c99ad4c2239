// Computes the bytes of each token by running the decoder. Tokens with part of a character are handled here,
// since a decoder returns only complete characters.
#include <algorithm>
#include <charconv>
#include <utility>

#include "attend/text/tokenizer/pipeline/vocabulary_spelling.h"
#include "attend/text/tokenizer/tokenizer.h"
#include "attend/text/tokenizer/tokenizer_impl.h"

namespace attend {
namespace {

// Returns the text that `token` appends to a text that is not empty.
std::string added_text(const tokenizer::Decoder& decoder, std::string_view token) {
  constexpr std::string_view kPrefix = "a";
  std::string text;
  tokenizer::DecodeChain chain = decoder.start(text);
  chain.push(kPrefix);
  chain.push(token);
  chain.finish();
  return text.substr(std::min(text.size(), kPrefix.size()));
}

// Parses "<0xE2>", the byte-fallback form of a byte.
std::optional<char> parse_byte_fallback(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token.back() != '>') return std::nullopt;
  unsigned byte = 0;
  const auto [end, error] = std::from_chars(token.data() + 3, token.data() + 5, byte, 16);
  if (error != std::errc() || end != token.data() + 5) return std::nullopt;
  return static_cast<char>(byte);
}

}  // namespace

std::vector<std::string> Tokenizer::token_bytes() const {
  const tokenizer::Decoder& decoder = *impl_->decoder;
  std::string space;
  tokenizer::append_byte_level(" ", space);
  const bool byte_level = added_text(decoder, space) == " ";
  const bool byte_fallback = added_text(decoder, "<0x41>") == "A";
  std::vector<std::string> bytes(impl_->tokens.size());
  for (size_t id = 0; id < bytes.size(); ++id) {
    const Impl::Token& token = impl_->tokens[id];
    if (token.special || token.decoded == nullptr) continue;
    const std::optional<char> byte = byte_fallback ? parse_byte_fallback(*token.decoded) : std::nullopt;
    const auto of_level =
        byte_level ? tokenizer::decode_byte_level(*token.decoded) : std::optional<std::string>();
    if (byte)
      bytes[id] = *byte;
    else if (byte_level)
      bytes[id] = of_level.value_or(*token.decoded);
    else
      bytes[id] = added_text(decoder, *token.decoded);
  }
  return bytes;
}

}  // namespace attend
