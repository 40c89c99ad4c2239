#include <utility>

#include "attend/text/tokenizer/decoding/open_text.h"
#include "attend/text/tokenizer/tokenizer.h"
#include "attend/text/tokenizer/tokenizer_impl.h"
#include "attend/text/tokenizer/utf8.h"

namespace attend {

struct StreamDecoder::Impl {
  Impl(std::shared_ptr<const Tokenizer::Impl> parts, bool skip_special_tokens)
      : tokenizer(std::move(parts)), skip(skip_special_tokens), chain(tokenizer->decoder->start(text)) {}

  // Returns the new text without what the prompt's text has already.
  std::string take() {
    std::string added = std::exchange(text, {});
    if (known.empty()) return added;
    size_t same = 0;
    while (same < added.size() && same < known.size()) {
      const size_t bytes = tokenizer::char_bytes(added[same]);
      if (added.compare(same, bytes, known, same, bytes) != 0) break;
      same += bytes;
    }
    const bool differs = same < added.size() && same < known.size();
    known.erase(0, differs ? known.size() : same);
    added.erase(0, same);
    return added;
  }

  std::shared_ptr<const Tokenizer::Impl> tokenizer;
  bool skip;
  std::string text;   // decoded text that was not returned yet
  std::string known;  // end of the prompt's text, which the decoder still holds back
  tokenizer::DecodeChain chain;
};

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, bool skip_special_tokens)
    : impl_(std::make_unique<Impl>(tokenizer.impl_, skip_special_tokens)) {}
StreamDecoder::~StreamDecoder() = default;
StreamDecoder::StreamDecoder(StreamDecoder&&) noexcept = default;
StreamDecoder& StreamDecoder::operator=(StreamDecoder&&) noexcept = default;

void StreamDecoder::set_prompt(std::span<const int32_t> prompt, bool after_prefix) {
  const auto context = impl_->tokenizer->left_context(prompt, impl_->skip);
  auto [settled, held] = tokenizer::decode_open(*impl_->tokenizer->decoder, context);
  impl_->known = std::move(held);
  // Settled text does not depend on an incomplete character, so both texts start with it.
  if (after_prefix)
    impl_->known = tokenizer::decode_complete(*impl_->tokenizer->decoder, context).substr(settled.size());
  for (const std::string* token : context) impl_->chain.push(*token);
  impl_->text.clear();
}

std::string StreamDecoder::push(int32_t id) {
  if (const std::string* token = impl_->tokenizer->decodable(id, impl_->skip)) impl_->chain.push(*token);
  return impl_->take();
}

std::string StreamDecoder::flush() {
  impl_->chain.finish();
  std::string rest = impl_->take();
  impl_->known.clear();
  impl_->chain = impl_->tokenizer->decoder->start(impl_->text);
  return rest;
}

std::string Tokenizer::decode_prefix(std::span<const int32_t> ids, bool skip_special_tokens) const {
  std::vector<const std::string*> tokens;
  for (const int32_t id : ids)
    if (const std::string* token = impl_->decodable(id, skip_special_tokens)) tokens.push_back(token);
  return tokenizer::decode_complete(*impl_->decoder, tokens);
}

}  // namespace attend
