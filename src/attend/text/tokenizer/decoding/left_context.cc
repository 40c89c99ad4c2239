#include <algorithm>

#include "attend/text/tokenizer/decoding/open_text.h"
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

OpenText decode_open(const Decoder& decoder, std::span<const std::string* const> tokens) {
  std::string text;
  DecodeChain chain = decoder.start(text);
  for (const std::string* token : tokens) chain.push(*token);
  const size_t num_settled = text.size();
  chain.finish();
  return {text.substr(0, num_settled), text.substr(num_settled)};
}

void drop_incomplete_end(std::string& text) {
  while (text.ends_with(kReplacementCharacter)) text.resize(text.size() - kReplacementCharacter.size());
}

}  // namespace tokenizer
}  // namespace attend
