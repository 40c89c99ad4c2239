#include "attend/text/tokenizer/tokenizer.h"

#include <algorithm>
#include <utility>

#include "attend/base/error.h"
#include "attend/checkpoint/input_file.h"
#include "attend/checkpoint/json.h"
#include "attend/text/tokenizer/growth.h"
#include "attend/text/tokenizer/tokenizer_impl.h"
#include "attend/text/tokenizer/utf8.h"

#if defined(__GLIBC__)
#include <malloc.h>
#endif

namespace attend {

using tokenizer::AddedTokens;
using tokenizer::NormalizedText;
using tokenizer::PreTokenized;
using tokenizer::RegexScratch;

std::vector<int32_t> Tokenizer::Impl::encode_text(std::string_view text) const {
  std::string repaired;
  if (!tokenizer::is_valid_utf8(text)) {
    tokenizer::Utf8Repair repair;
    repair.append(text, repaired);
    repair.finish(repaired);
    text = repaired;
  }
  std::vector<int32_t> ids;
  encode(text, {}, ids);
  return ids;
}

void Tokenizer::Impl::encode(std::string_view text, const std::vector<bool>& plain,
                             std::vector<int32_t>& ids) const {
  RegexScratch scratch;
  std::vector<AddedTokens::Segment> segments;
  added_tokens.split_raw(text, plain, segments);
  size_t max_bytes = tokenizer::max_grown_bytes(text.size());  // bytes that the rest of the text may become
  for (const AddedTokens::Segment& segment : segments) {
    auto [begin, end] = segment.span;
    if (segment.id >= 0) {
      ids.push_back(segment.id);
      continue;
    }
    if (plain.empty() || !added_tokens.normalizes_special()) {
      max_bytes -= encode_between({std::string(text.substr(begin, end - begin)), 0, max_bytes}, begin == 0,
                                  /*plain=*/false, scratch, ids);
      continue;
    }
    // Special tokens are searched in normalized text, which has bytes without a known origin. Runs of plain
    // bytes are therefore encoded separately.
    while (begin < end) {
      size_t stop = begin + 1;
      while (stop < end && plain[stop] == plain[begin]) ++stop;
      max_bytes -= encode_between({std::string(text.substr(begin, stop - begin)), 0, max_bytes}, begin == 0,
                                  plain[begin], scratch, ids);
      begin = stop;
    }
  }
}

size_t Tokenizer::Impl::encode_between(NormalizedText text, bool first, bool plain, RegexScratch& scratch,
                                       std::vector<int32_t>& ids) const {
  if (first) text.origin = tokenizer::char_bytes(text.text[0]);
  if (normalizer) normalizer->apply(text, scratch);
  return encode_normalized(std::move(text), plain, scratch, ids);
}

size_t Tokenizer::Impl::encode_normalized(NormalizedText text, bool plain, RegexScratch& scratch,
                                          std::vector<int32_t>& ids) const {
  const size_t max_bytes = text.max_bytes;
  size_t num_bytes = 0;
  std::vector<AddedTokens::Segment> segments;
  added_tokens.split_normalized(text.text, std::vector<bool>(plain ? text.text.size() : 0, true), segments);
  for (const AddedTokens::Segment& segment : segments) {
    if (segment.id >= 0) {
      ids.push_back(segment.id);
      continue;
    }
    const auto [begin, end] = segment.span;
    NormalizedText part = begin == 0 && end == text.text.size()
                              ? std::move(text)
                              : NormalizedText{text.text.substr(begin, end - begin),
                                               text.origin - std::min(text.origin, begin), 0};
    part.max_bytes = max_bytes - num_bytes;
    PreTokenized words(std::move(part));
    if (pre_tokenizer) pre_tokenizer->apply(words, scratch);
    for (size_t i = 0; i < words.pieces.size(); ++i) model->encode(words.piece(i), ids);
    num_bytes += std::min(words.text.size(), max_bytes - num_bytes);
  }
  return num_bytes;
}

const std::string* Tokenizer::Impl::decodable(int32_t id, bool skip_special_tokens) const {
  const Token* token = find(id);
  return token == nullptr || (skip_special_tokens && token->special) ? nullptr : token->decoded;
}

Tokenizer::Tokenizer(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

std::shared_ptr<const Tokenizer::Impl> Tokenizer::Impl::read(std::optional<JsonNode> root,
                                                             const Checkpoint& checkpoint) {
  auto impl = std::make_shared<const Impl>(*root, checkpoint);
  root.reset();
#if defined(__GLIBC__)
  // Returns the memory of tokenizer.json's tree, tens of megabytes in small blocks, to the system.
  malloc_trim(0);
#endif
  return impl;
}

std::optional<Tokenizer> Tokenizer::find(const Checkpoint& checkpoint) {
  std::optional<JsonNode> root = checkpoint.find(CheckpointDocument::kTokenizer);
  if (!root) return std::nullopt;
  return Tokenizer(Impl::read(std::move(root), checkpoint));
}

Tokenizer Tokenizer::from_path(const std::filesystem::path& path) {
  std::error_code error;
  const bool is_checkpoint = std::filesystem::is_directory(path, error) || path.extension() == kGgufExtension;
  const auto checkpoint = open_checkpoint(is_checkpoint ? path : path.parent_path());
  if (!is_checkpoint && file_exists(path))
    return Tokenizer(Impl::read(JsonNode::read(path, kMaxTokenizerFileBytes), *checkpoint));
  if (is_checkpoint)
    if (std::optional<Tokenizer> found = find(*checkpoint)) return *std::move(found);
  fail(ErrorCode::kNotFound, (is_checkpoint ? path / "tokenizer.json" : path).string(),
       ": no such file; a tokenizer is read from a tokenizer.json");
}

namespace {

bool continues_char(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

// Returns about `max_bytes` bytes from one end of the text, cut between characters and, if there is a space
// nearby, before it, where words begin.
std::string_view keep_bytes(std::string_view text, size_t max_bytes, TruncationSide side) {
  constexpr size_t kMaxWordBytes = 64 << 10;
  if (text.size() <= max_bytes) return text;
  size_t cut = side == TruncationSide::kRight ? max_bytes : text.size() - max_bytes;
  const size_t space = text.rfind(' ', cut);
  if (space != text.npos && space > 0 && cut - space < std::min(kMaxWordBytes, max_bytes / 2)) cut = space;
  while (cut > 0 && continues_char(text[cut])) --cut;
  return side == TruncationSide::kRight ? text.substr(0, cut) : text.substr(cut);
}

}  // namespace

std::vector<int32_t> Tokenizer::encode(std::string_view text, bool add_special_tokens) const {
  return impl_->post_processor.apply(impl_->encode_text(text), add_special_tokens);
}

std::vector<int32_t> Tokenizer::encode_truncated(std::string_view text, size_t max_tokens,
                                                 TruncationSide side, bool add_special_tokens,
                                                 bool* is_truncated) const {
  constexpr size_t kMargin = 256;
  const size_t num_kept = add_special_tokens ? impl_->post_processor.max_text_tokens(max_tokens) : max_tokens;
  std::vector<int32_t> ids;
  std::string_view part;
  // Text that a normalizer removes has no tokens, hence the loop.
  for (size_t max_bytes = 8 * (num_kept + kMargin);; max_bytes *= 2) {
    part = keep_bytes(text, max_bytes, side);
    ids = impl_->encode_text(part);
    if (part.size() == text.size() || ids.size() >= num_kept + kMargin) break;
  }
  const size_t num_dropped = ids.size() - std::min(ids.size(), num_kept);
  if (side == TruncationSide::kLeft)
    ids.erase(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(num_dropped));
  else
    ids.resize(ids.size() - num_dropped);
  if (is_truncated) *is_truncated = num_dropped > 0;
  return impl_->post_processor.apply(std::move(ids), add_special_tokens);
}

Tokenizer::EncodedPair Tokenizer::encode_pair(std::string_view first, std::string_view second,
                                              const PairLimits& limits) const {
  std::vector<int32_t> a = impl_->encode_text(first), b = impl_->encode_text(second);
  if (limits.max_second_tokens > 0) b.resize(std::min(b.size(), limits.max_second_tokens));
  const size_t num_added = impl_->post_processor.num_added_to_pair();
  if (limits.max_tokens > 0 && a.size() + b.size() + num_added > limits.max_tokens) {
    const size_t room = limits.max_tokens - std::min(limits.max_tokens, num_added);
    const bool first_is_longer = a.size() > b.size();
    std::vector<int32_t>&shorter = first_is_longer ? b : a, &longer = first_is_longer ? a : b;
    const bool is_short = shorter.size() <= room / 2;
    longer.resize(is_short ? room - shorter.size() : room / 2 + room % 2);
    if (!is_short) shorter.resize(room / 2);
  }
  EncodedPair pair;
  impl_->post_processor.apply_pair(a, b, pair.ids, pair.types);
  return pair;
}

Tokenizer::EncodedPair Tokenizer::encode_pair(std::string_view first, std::string_view second) const {
  return encode_pair(first, second, {});
}

std::vector<int32_t> Tokenizer::encode(std::span<const Part> parts) const {
  std::string text;
  std::vector<bool> plain;
  for (const Part& part : parts) {
    require(tokenizer::is_valid_utf8(part.text), "a part of ", part.text.size(),
            " bytes: expected UTF-8 text");
    text += part.text;
    plain.resize(text.size(), !part.special_tokens);
  }
  std::vector<int32_t> ids;
  impl_->encode(text, plain, ids);
  return ids;
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special_tokens) const {
  std::string text;
  tokenizer::DecodeChain chain = impl_->decoder->start(text);
  for (const int32_t id : ids) {
    if (const std::string* token = impl_->decodable(id, skip_special_tokens)) chain.push(*token);
  }
  chain.finish();
  return text;
}

int32_t Tokenizer::vocab_size() const { return static_cast<int32_t>(impl_->tokens.size()); }

std::optional<int32_t> Tokenizer::token_id(std::string_view token) const { return impl_->token_id(token); }

const std::string& Tokenizer::token(int32_t id) const {
  const Impl::Token* token = impl_->find(id);
  require(token != nullptr, "token id ", id, ": the tokenizer has ids 0 to ", vocab_size() - 1);
  return *token->spelling;
}

bool Tokenizer::is_special(int32_t id) const {
  const Impl::Token* token = impl_->find(id);
  return token != nullptr && token->special;
}

std::optional<int32_t> Tokenizer::bos_id() const { return impl_->bos_id; }
std::optional<int32_t> Tokenizer::eos_id() const { return impl_->eos_id; }
std::optional<int32_t> Tokenizer::pad_id() const { return impl_->pad_id; }

}  // namespace attend
