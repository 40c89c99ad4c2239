#include "attend/text/tokenizer/added_tokens.h"

#include <algorithm>
#include <utility>

#include "attend/text/tokenizer/growth.h"
#include "attend/text/tokenizer/unicode.h"
#include "attend/text/tokenizer/utf8.h"

namespace attend::tokenizer {
namespace {

// Equal to \w of Rust's regex crate.
constexpr std::string_view kWordChar = R"([\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200C}\x{200D}])";

// Returns the start of the white space that ends at byte `end`, at least `limit`.
size_t skip_space_backwards(std::string_view text, size_t end, size_t limit) {
  while (end > limit) {
    const Char c = read_char_before(text, end);
    if (!is_whitespace(c.code)) break;
    end -= c.bytes;
  }
  return end;
}

// Returns the end of the white space that begins at byte `begin`.
size_t skip_space(std::string_view text, size_t begin) {
  while (begin < text.size()) {
    const Char c = read_char(text, begin);
    if (!is_whitespace(c.code)) break;
    begin += c.bytes;
  }
  return begin;
}

bool is_any(const std::vector<bool>& plain, Span span) {
  const auto begin = plain.begin() + static_cast<ptrdiff_t>(span.begin);
  const auto end = plain.begin() + static_cast<ptrdiff_t>(span.end);
  return std::find(begin, end, true) != end;
}

}  // namespace

AddedToken read_added_token(const JsonNode& node) {
  AddedToken token;
  token.content = node.at("content").string();
  token.special = node.boolean_or("special", false);
  token.single_word = node.boolean_or("single_word", false);
  token.lstrip = node.boolean_or("lstrip", false);
  token.rstrip = node.boolean_or("rstrip", false);
  token.normalized = node.boolean_or("normalized", !token.special);
  return token;
}

void AddedTokens::add(AddedToken token, int32_t id) {
  if (token.single_word && !word_char_) word_char_.emplace(kWordChar, "added tokens");
  const auto [place, is_new] = by_content_.try_emplace(token.content, entries_.size());
  if (is_new) {
    entries_.push_back({std::move(token), id, {}});
  } else {
    AddedToken& known = entries_[place->second].token;
    token.special = token.special || known.special;
    known = std::move(token);
  }
}

void AddedTokens::finish(const Normalizer* normalizer, std::string_view where) {
  RegexScratch scratch;
  for (size_t i = 0; i < entries_.size(); ++i) {
    Entry& entry = entries_[i];
    NormalizedText text{entry.token.content, 0, max_grown_bytes(entry.token.content.size())};
    if (entry.token.normalized && normalizer) normalizer->apply(text, scratch);
    entry.decoded = std::move(text.text);
    if (entry.decoded.empty()) {
      fail(ErrorCode::kUnsupported, where, ": added token \"", entry.token.content,
           "\" is normalized to nothing; it needs \"normalized\": false");
    }
    normalizes_special_ = normalizes_special_ || (entry.token.normalized && entry.token.special);
    (entry.token.normalized ? normalized_ : raw_).add(entry.decoded, static_cast<uint32_t>(i));
  }
}

void AddedTokens::split_raw(std::string_view text, const std::vector<bool>& plain,
                            std::vector<Segment>& segments) const {
  split(text, plain, raw_, segments);
}

void AddedTokens::split_normalized(std::string_view text, const std::vector<bool>& plain,
                                   std::vector<Segment>& segments) const {
  split(text, plain, normalized_, segments);
}

const AddedTokens::Entry* AddedTokens::find(std::string_view content) const {
  const auto found = by_content_.find(std::string(content));
  return found == by_content_.end() ? nullptr : &entries_[found->second];
}

bool AddedTokens::is_special(std::string_view content) const {
  const Entry* entry = find(content);
  return entry != nullptr && entry->token.special;
}

void AddedTokens::split(std::string_view text, const std::vector<bool>& plain, const TokenTrie& trie,
                        std::vector<Segment>& segments) const {
  size_t covered = 0;  // bytes before it are in a segment
  size_t from = 0;
  while (const auto match = trie.find(text, from)) {
    // The search continues right after the match itself, even if rstrip extends the token.
    from = match->span.end;
    const Entry& entry = entries_[match->value];
    Span span = match->span;
    if (!plain.empty() && entry.token.special && is_any(plain, span)) {
      // Another token may begin within this match, which does not count.
      from = span.begin + 1;
      continue;
    }
    if (entry.token.single_word && touches_word(text, span)) continue;
    if (entry.token.lstrip) span.begin = std::max(covered, skip_space_backwards(text, span.begin, covered));
    if (entry.token.rstrip) span.end = skip_space(text, span.end);
    if (span.begin >= span.end) continue;  // white space that belongs to the previous token
    if (covered < span.begin) segments.push_back({{covered, span.begin}, -1});
    segments.push_back({span, entry.id});
    covered = span.end;
  }
  if (covered < text.size()) segments.push_back({{covered, text.size()}, -1});
}

bool AddedTokens::touches_word(std::string_view text, Span match) const {
  RegexScratch scratch;
  const auto is_word = [&](size_t at, size_t bytes) {
    std::vector<Span> found;
    word_char_->find_all(text.substr(at, bytes), scratch, found);
    return !found.empty();
  };
  if (match.begin > 0) {
    const size_t bytes = read_char_before(text, match.begin).bytes;
    if (is_word(match.begin - bytes, bytes)) return true;
  }
  return match.end < text.size() && is_word(match.end, read_char(text, match.end).bytes);
}

}  // namespace attend::tokenizer
