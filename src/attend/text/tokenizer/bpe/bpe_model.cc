#include "attend/text/tokenizer/bpe/bpe_model.h"

#include <algorithm>
#include <utility>

#include "attend/text/tokenizer/utf8.h"

namespace attend::tokenizer {
namespace {

constexpr size_t kNumLowChars = 0x400;  // Latin, including the byte-level alphabet
constexpr size_t kMinBytesToPart = 24;  // splitting shorter words is not worth the search

// Returns the byte-fallback token of a byte: "<0x0A>".
std::string byte_token(int byte) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  return {'<', '0', 'x', kDigits[static_cast<size_t>(byte >> 4)], kDigits[static_cast<size_t>(byte & 15)],
          '>'};
}

void reject_text_field(const JsonNode& node, std::string_view key) {
  const auto field = node.find(key);
  if (field && !field->string().empty()) {
    field->unsupported("\"", field->string(), "\": attend reads BPE models without it (null or \"\")");
  }
}

void reject_dropout(const JsonNode& node) {
  const auto dropout = node.find("dropout");
  if (!dropout) return;
  if (!dropout->value().is_number())
    dropout->corrupt("is a JSON ", dropout->value().type_name(), ", not a number");
  if (dropout->value().get<double>() != 0) dropout->unsupported("attend encodes without dropout (null or 0)");
}

struct MergedTokens {
  std::string_view left, right;
};

// Returns the two tokens of entry i, ["a", "b"] or "a b". Returns no value for the version line of a
// merges.txt.
std::optional<MergedTokens> read_merge(const JsonNode& merges, size_t i) {
  const Json& merge = merges.value()[i];
  MergedTokens tokens;
  if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
    tokens = {merge[0].get_ref<const std::string&>(), merge[1].get_ref<const std::string&>()};
  } else if (merge.is_string()) {
    const std::string_view text = merge.get_ref<const std::string&>();
    if (text.starts_with("#version")) return std::nullopt;
    const size_t space = text.find(' ');
    if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos)
      merges.at(i).corrupt("\"", text, "\" is not two tokens with one space between them");
    tokens = {text.substr(0, space), text.substr(space + 1)};
  } else {
    merges.at(i).corrupt("is neither \"a b\" nor [\"a\", \"b\"]");
  }
  if (tokens.left.empty() || tokens.right.empty()) merges.at(i).corrupt("merges the empty token");
  return tokens;
}

}  // namespace

BpeModel::BpeModel(const JsonNode& node) : TokenModel(node.at("vocab")), where_(node.where()) {
  reject_dropout(node);
  reject_text_field(node, "continuing_subword_prefix");
  reject_text_field(node, "end_of_word_suffix");
  ignore_merges_ = node.boolean_or("ignore_merges", false);
  fuse_unk_ = node.boolean_or("fuse_unk", false);

  if (const auto unk = node.find("unk_token")) {
    unk_token_ = unk->string();
    unk_id_ = vocabulary().id(*unk_token_);
  }
  if (node.boolean_or("byte_fallback", false)) {
    for (int byte = 0; byte < 256; ++byte)
      byte_ids_.push_back(vocabulary().id(byte_token(byte)).value_or(-1));
  }
  const bool all_bytes = !byte_ids_.empty() && std::count(byte_ids_.begin(), byte_ids_.end(), -1) == 0;
  drops_unknown_ = !unk_token_ && !all_bytes;
  find_chars();
  read_merges(node.at("merges"));
}

void BpeModel::find_chars() {
  low_char_ids_.assign(kNumLowChars, -1);
  const std::vector<std::optional<std::string>>& tokens = vocabulary().tokens();
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (!tokens[i] || tokens[i]->empty() || char_bytes(tokens[i]->front()) != tokens[i]->size()) continue;
    const Char c = read_char(*tokens[i], 0);
    const auto token_id = static_cast<int32_t>(i);
    if (c.code < kNumLowChars) {
      low_char_ids_[c.code] = token_id;
    } else {
      high_char_ids_.emplace(c.code, token_id);
    }
  }
}

void BpeModel::read_merges(const JsonNode& merges) {
  const size_t num_merges = merges.array_size();
  rules_ = MergeRules(num_merges);
  has_boundaries_ = !ignore_merges_;
  // Symbols without a character. Merges that involve them cannot be predicted from the text.
  std::vector<int32_t> hidden = byte_ids_;
  hidden.push_back(unk_id_.value_or(-1));
  std::sort(hidden.begin(), hidden.end());
  const auto is_hidden = [&](int32_t token_id) {
    return std::binary_search(hidden.begin(), hidden.end(), token_id);
  };

  std::vector<std::pair<char32_t, char32_t>> boundaries;
  boundaries.reserve(num_merges);
  std::string joined;
  for (size_t i = 0; i < num_merges; ++i) {
    const std::optional<MergedTokens> merge = read_merge(merges, i);
    if (!merge) continue;
    const auto& [left, right] = *merge;
    const auto known = [&](std::string_view token) {
      const std::optional<int32_t> token_id = vocabulary().id(token);
      if (!token_id) merges.at(i).corrupt("token \"", token, "\" is not in the vocabulary");
      return *token_id;
    };
    joined = left;
    joined += right;
    const int32_t left_id = known(left);
    const int32_t right_id = known(right);
    rules_.add(left_id, right_id, known(joined));
    boundaries.emplace_back(read_char_before(left, left.size()).code, read_char(right, 0).code);
    if (is_hidden(left_id) || is_hidden(right_id)) has_boundaries_ = false;
  }
  // There are far fewer boundaries than merges; removing duplicates keeps the table small.
  std::sort(boundaries.begin(), boundaries.end());
  boundaries.erase(std::unique(boundaries.begin(), boundaries.end()), boundaries.end());
  boundaries_ = PairTable(boundaries.size());
  for (const auto& [left, right] : boundaries) boundaries_.set(left, right, 1);
}

int32_t BpeModel::char_id(char32_t code) const {
  if (code < kNumLowChars) return low_char_ids_[code];
  const auto found = high_char_ids_.find(code);
  return found == high_char_ids_.end() ? -1 : found->second;
}

bool BpeModel::may_merge(char32_t left, char32_t right) const {
  if (boundaries_.get(left, right) != PairTable::kNone) return true;
  // Adjacent unknown characters may become one unk_token, and a dropped one makes its neighbors adjacent.
  const bool left_known = char_id(left) != -1;
  const bool right_known = char_id(right) != -1;
  return drops_unknown_ ? !(left_known && right_known) : !(left_known || right_known);
}

void BpeModel::encode(std::string_view word, std::vector<int32_t>& ids) const {
  if (word.empty()) return;
  if (!has_boundaries_ || word.size() < kMinBytesToPart) return encode_part(word, ids);
  size_t part = 0;
  Char left = read_char(word, 0);
  for (size_t at = left.bytes; at < word.size();) {
    const Char right = read_char(word, at);
    if (!may_merge(left.code, right.code)) {
      encode_part(word.substr(part, at - part), ids);
      part = at;
    }
    left = right;
    at += right.bytes;
  }
  encode_part(word.substr(part), ids);
}

void BpeModel::encode_part(std::string_view part, std::vector<int32_t>& ids) const {
  if (cache_.find(part, ids)) return;
  const size_t first = ids.size();
  if (const std::optional<int32_t> whole = ignore_merges_ ? vocabulary().id(part) : std::nullopt) {
    ids.push_back(*whole);
  } else {
    std::vector<int32_t> symbols;
    symbols.reserve(part.size());
    append_symbols(part, symbols);
    merge_symbols(rules_, symbols);
    ids.insert(ids.end(), symbols.begin(), symbols.end());
  }
  cache_.insert(part, ids, first);
}

void BpeModel::append_symbols(std::string_view part, std::vector<int32_t>& symbols) const {
  // An unk_token is appended before the next known character, since with fuse_unk it may cover more unknown
  // characters. Byte tokens are appended before it, as in the `tokenizers` library.
  bool has_pending_unk = false;
  for (size_t at = 0; at < part.size();) {
    const Char c = read_char(part, at);
    const std::string_view bytes = part.substr(at, c.bytes);
    at += c.bytes;
    const int32_t known = char_id(c.code);
    if (known != -1) {
      if (has_pending_unk) symbols.push_back(*unk_id_);
      has_pending_unk = false;
      symbols.push_back(known);
      continue;
    }
    if (!byte_ids_.empty()) {
      const auto byte_id = [&](char byte) { return byte_ids_[static_cast<unsigned char>(byte)]; };
      if (std::all_of(bytes.begin(), bytes.end(), [&](char byte) { return byte_id(byte) != -1; })) {
        for (const char byte : bytes) symbols.push_back(byte_id(byte));
        continue;
      }
    }
    if (!unk_token_) continue;
    if (!unk_id_) {
      fail(ErrorCode::kUnsupported, where_, ".unk_token: \"", *unk_token_, "\" is needed for \"", bytes,
           "\" but is not in the vocabulary");
    }
    if (has_pending_unk && !fuse_unk_) symbols.push_back(*unk_id_);
    has_pending_unk = true;
  }
  if (has_pending_unk) symbols.push_back(*unk_id_);
}

}  // namespace attend::tokenizer
