#include "attend/text/tokenizer/unigram_model.h"

#include <algorithm>
#include <span>
#include <string_view>
#include <utility>

#include "attend/base/error.h"
#include "attend/text/tokenizer/pipeline/vocabulary_spelling.h"
#include "attend/text/tokenizer/utf8.h"

namespace attend::tokenizer {
namespace {

// Score of a character without a token, below the smallest score of the vocabulary (SentencePiece's value).
constexpr double kUnkPenalty = 10.0;

// Best path from the start of a word to a position.
struct PathEnd {
  double score = 0.0;
  size_t begin = SIZE_MAX;  // start of the last token; SIZE_MAX: not reached
  bool unknown = false;     // the last token is a character without a token
};

void extend(PathEnd& end, double score, size_t begin, bool unknown) {
  if (end.begin == SIZE_MAX || score > end.score) end = {score, begin, unknown};
}

}  // namespace

UnigramModel::UnigramModel(const JsonNode& node)
    : TokenModel(node.at("vocab"), Vocabulary::Form::kScores), where_(node.where()) {
  const JsonNode vocab = node.at("vocab");
  for (const Json& entry : vocab.value()) scores_.push_back(entry[1].get<double>());
  unk_score_ = *std::ranges::min_element(scores_) - kUnkPenalty;
  if (node.has("unk_id")) unk_id_ = node.integer("unk_id", 0, static_cast<int>(scores_.size()) - 1);
  if (node.boolean_or("byte_fallback", false)) {
    byte_ids_.assign(256, -1);
    for (size_t id = 0; id < scores_.size(); ++id)
      if (const int byte = parse_byte_token(*vocabulary().tokens()[id]); byte >= 0)
        byte_ids_[static_cast<size_t>(byte)] = static_cast<int32_t>(id);
  }
  build_trie();
}

void UnigramModel::build_trie() {
  struct Entry {
    std::string_view token;
    int32_t id;
  };
  std::vector<Entry> entries;
  for (size_t id = 0; id < scores_.size(); ++id)
    entries.push_back({*vocabulary().tokens()[id], static_cast<int32_t>(id)});
  // The last one of equal tokens counts.
  std::ranges::stable_sort(entries, {}, &Entry::token);
  struct Range {
    size_t begin, end, depth;  // entries with the node's prefix of `depth` bytes
  };
  std::vector<Range> ranges{{0, entries.size(), 0}};  // per node
  trie_.emplace_back();
  for (size_t node = 0; node < trie_.size(); ++node) {
    auto [begin, end, depth] = ranges[node];
    for (; begin < end && entries[begin].token.size() == depth; ++begin)
      if (depth > 0) trie_[node].id = entries[begin].id;
    trie_[node].first_child = static_cast<uint32_t>(trie_.size());
    while (begin < end) {
      const char byte = entries[begin].token[depth];
      const size_t first = begin;
      while (begin < end && entries[begin].token[depth] == byte) ++begin;
      trie_.push_back({.byte = static_cast<uint8_t>(byte)});
      ranges.push_back({first, begin, depth + 1});
      ++trie_[node].num_children;
    }
  }
}

const UnigramModel::Node* UnigramModel::child(const Node& node, char byte) const {
  const std::span<const Node> children(trie_.data() + node.first_child, node.num_children);
  const auto found = std::ranges::lower_bound(children, static_cast<uint8_t>(byte), {}, &Node::byte);
  return found != children.end() && found->byte == static_cast<uint8_t>(byte) ? &*found : nullptr;
}

std::vector<size_t> UnigramModel::best_path(std::string_view word) const {
  std::vector<PathEnd> ends(word.size() + 1);
  for (size_t begin = 0, char_end = 0; begin < word.size(); begin = char_end) {
    char_end = begin + char_bytes(word[begin]);
    const double score = ends[begin].score;
    bool has_char = false;
    const Node* node = trie_.data();
    for (size_t at = begin; at < word.size() && (node = child(*node, word[at])) != nullptr; ++at) {
      if (node->id < 0) continue;
      extend(ends[at + 1], score + scores_[static_cast<size_t>(node->id)], begin, false);
      has_char |= at + 1 == char_end;
    }
    if (!has_char) extend(ends[char_end], score + unk_score_, begin, true);
  }
  std::vector<size_t> path;
  for (size_t end = word.size(); end > 0;) {
    path.push_back(end);
    // Characters without tokens are joined.
    const bool joins = ends[end].unknown && unk_id_.has_value();
    end = ends[end].begin;
    while (joins && end > 0 && ends[end].unknown) end = ends[end].begin;
  }
  return path;
}

void UnigramModel::append_piece(std::string_view piece, std::vector<int32_t>& ids) const {
  if (const auto id = vocabulary().id(piece)) return ids.push_back(*id);
  const auto byte_id = [&](char byte) { return byte_ids_[static_cast<unsigned char>(byte)]; };
  if (!byte_ids_.empty() && std::ranges::all_of(piece, [&](char byte) { return byte_id(byte) >= 0; })) {
    for (const char byte : piece) ids.push_back(byte_id(byte));
    return;
  }
  if (!unk_id_)
    fail(ErrorCode::kUnsupported, where_, ".unk_id: absent, but needed for \"", piece,
         "\", which has no token");
  ids.push_back(*unk_id_);
}

void UnigramModel::encode(std::string_view word, std::vector<int32_t>& ids) const {
  if (cache_.find(word, ids)) return;
  const size_t first_id = ids.size();
  const std::vector<size_t> path = best_path(word);
  size_t begin = 0;
  for (auto end = path.rbegin(); end != path.rend(); begin = *end++)
    append_piece(word.substr(begin, *end - begin), ids);
  cache_.insert(word, ids, first_id);
}

}  // namespace attend::tokenizer
