#include <algorithm>

#include "attend/text/tokenizer/decoding/open_text.h"
#include "attend/text/tokenizer/decoding/token_bytes.h"
#include "attend/text/tokenizer/pipeline/vocabulary_spelling.h"
#include "attend/text/tokenizer/tokenizer_impl.h"
#include "attend/text/tokenizer/utf8.h"

namespace attend {
namespace {

constexpr size_t kMinTokens = 8;
constexpr size_t kMaxRun = 256;

bool starts_character(int byte) { return byte < 0x80 || byte >= 0xC0; }

}  // namespace

std::vector<const std::string*> Tokenizer::Impl::left_context(std::span<const int32_t> prompt,
                                                              bool skip_special_tokens) const {
  std::vector<const std::string*> context;
  size_t run = 0;  // byte tokens since the last other token
  for (size_t i = prompt.size(); i > 0; --i) {
    const std::string* token = decodable(prompt[i - 1], skip_special_tokens);
    if (token == nullptr) continue;
    context.push_back(token);
    const int byte = tokenizer::parse_byte_token(*token);
    run = byte < 0 ? 0 : run + 1;
    if (context.size() >= kMinTokens && (run == 0 || (run >= kMaxRun && starts_character(byte)))) break;
  }
  std::reverse(context.begin(), context.end());
  return context;
}

namespace tokenizer {

namespace {

// Number of byte tokens at the end that start a character without completing it.
size_t num_incomplete_bytes(const TokenBytes& reader, std::span<const std::string* const> tokens) {
  for (size_t n = 1; n <= std::min<size_t>(tokens.size(), 3); ++n) {
    const std::string& token = *tokens[tokens.size() - n];
    if (!reader.is_byte_token(token)) return 0;
    const int byte = parse_byte_token(token);
    if (starts_character(byte)) return n < char_bytes(static_cast<char>(byte)) ? n : 0;
  }
  return 0;
}

}  // namespace

OpenText decode_open(const Decoder& decoder, std::span<const std::string* const> tokens) {
  std::string text;
  DecodeChain chain = decoder.start(text);
  for (const std::string* token : tokens) chain.push(*token);
  const size_t num_settled = text.size();
  chain.finish();
  return {text.substr(0, num_settled), text.substr(num_settled)};
}

std::string decode_complete(const Decoder& decoder, std::span<const std::string* const> tokens) {
  const TokenBytes reader(decoder);
  auto [settled, held] =
      decode_open(decoder, tokens.first(tokens.size() - num_incomplete_bytes(reader, tokens)));
  // Without byte tokens only an incomplete character is held back, as U+FFFD.
  if (!reader.has_byte_tokens())
    while (held.ends_with(kReplacementCharacter)) held.resize(held.size() - kReplacementCharacter.size());
  return settled + held;
}

}  // namespace tokenizer
}  // namespace attend
