#include "attend/text/tokenizer/pipeline/pre_tokenizer.h"

#include <algorithm>
#include <utility>

#include "attend/text/tokenizer/growth.h"
#include "attend/text/tokenizer/pipeline/sequence_elements.h"
#include "attend/text/tokenizer/pipeline/split.h"
#include "attend/text/tokenizer/pipeline/vocabulary_spelling.h"
#include "attend/text/tokenizer/regex/onig_pattern.h"
#include "attend/text/tokenizer/regex/pattern.h"
#include "attend/text/tokenizer/unicode.h"
#include "attend/text/tokenizer/utf8.h"

namespace attend::tokenizer {
namespace {

using Piece = PreTokenized::Piece;

constexpr std::string_view kAcceptedPreTokenizers =
    "attend reads Split, ByteLevel, Metaspace, Digits, Punctuation, Whitespace, WhitespaceSplit, "
    "BertPreTokenizer "
    "and Sequence";

constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
// Equal to \w+|[^\w\s]+ with the \w of Rust's regex crate.
constexpr std::string_view kWhitespacePattern =
    R"([\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200C}\x{200D}]+)"
    R"(|[^\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200C}\x{200D}\x{09}-\x{0D}\x{20}\x{85}\x{A0}\x{1680}\x{2000}-\x{200A})"
    R"(\x{2028}\x{2029}\x{202F}\x{205F}\x{3000}]+)";

// Splits every piece: `find(piece, matches)` appends the matches in it.
template <class Find>
void cut_pieces(PreTokenized& text, bool invert, SplitBehavior behavior, Find find) {
  std::vector<Piece> cut;
  cut.reserve(text.pieces.size());
  std::vector<Span> matches;
  std::vector<Span> parts;
  for (size_t i = 0; i < text.pieces.size(); ++i) {
    const Piece piece = text.pieces[i];
    matches.clear();
    parts.clear();
    find(text.piece(i), matches);
    split(piece.end - piece.begin, matches, invert, behavior, parts);
    for (const Span& part : parts) {
      const size_t origin = std::min(piece.origin, part.end);
      cut.push_back(
          {piece.begin + part.begin, piece.begin + part.end, origin > part.begin ? origin - part.begin : 0});
    }
  }
  text.pieces = std::move(cut);
}

// Rewrites the pieces: `write(piece, origin, out)` appends the new text of a piece and updates its origin.
template <class Write>
void rewrite_pieces(PreTokenized& text, Write write) {
  std::string out;
  out.reserve(text.text.size() + text.text.size() / 2);
  for (size_t i = 0; i < text.pieces.size(); ++i) {
    const size_t begin = out.size();
    size_t origin = text.pieces[i].origin;
    write(text.piece(i), origin, out);
    text.pieces[i] = {begin, out.size(), origin};
  }
  text.text = std::move(out);
}

// Splits at matches of a pattern.
class Split : public PreTokenizer {
 public:
  Split(Pattern pattern, SplitBehavior behavior, bool invert)
      : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}
  void apply(PreTokenized& text, RegexScratch& scratch) const override {
    cut_pieces(text, invert_, behavior_, [&](std::string_view piece, std::vector<Span>& matches) {
      pattern_.find_all(piece, scratch, matches);
    });
  }

 private:
  Pattern pattern_;
  SplitBehavior behavior_;
  bool invert_;
};

// Keeps the matches of a regex and drops the rest.
class KeepMatches : public PreTokenizer {
 public:
  explicit KeepMatches(Regex regex) : regex_(std::move(regex)) {}
  void apply(PreTokenized& text, RegexScratch& scratch) const override {
    cut_pieces(text, true, SplitBehavior::kRemoved, [&](std::string_view piece, std::vector<Span>& matches) {
      regex_.find_all(piece, scratch, matches);
    });
  }

 private:
  Regex regex_;
};

// Splits at characters of a class.
class CharSplit : public PreTokenizer {
 public:
  CharSplit(bool (*is_delimiter)(char32_t), SplitBehavior behavior)
      : is_delimiter_(is_delimiter), behavior_(behavior) {}
  void apply(PreTokenized& text, RegexScratch&) const override {
    cut_pieces(text, false, behavior_, [&](std::string_view piece, std::vector<Span>& matches) {
      for (size_t at = 0; at < piece.size();) {
        const Char c = read_char(piece, at);
        if (is_delimiter_(c.code)) matches.push_back({at, at + c.bytes});
        at += c.bytes;
      }
    });
  }

 private:
  bool (*is_delimiter_)(char32_t);
  SplitBehavior behavior_;
};

class ByteLevel : public PreTokenizer {
 public:
  ByteLevel(bool add_prefix_space, std::optional<Regex> regex)
      : add_prefix_space_(add_prefix_space), regex_(std::move(regex)) {}
  void apply(PreTokenized& text, RegexScratch& scratch) const override {
    if (add_prefix_space_) {
      rewrite_pieces(text, [](std::string_view piece, size_t& origin, std::string& out) {
        if (!piece.starts_with(' ')) {
          out += ' ';
          if (origin > 0) ++origin;
        }
        out += piece;
      });
    }
    if (regex_) {
      cut_pieces(text, false, SplitBehavior::kIsolated,
                 [&](std::string_view piece, std::vector<Span>& matches) {
                   regex_->find_all(piece, scratch, matches);
                 });
    }
    rewrite_pieces(text, [](std::string_view piece, size_t& origin, std::string& out) {
      const size_t begin = out.size();
      append_byte_level(piece.substr(0, origin), out);
      const size_t mapped_origin = out.size() - begin;
      append_byte_level(piece.substr(origin), out);
      origin = mapped_origin;
    });
  }

 private:
  bool add_prefix_space_;
  std::optional<Regex> regex_;
};

class MetaspaceSplit : public PreTokenizer {
 public:
  explicit MetaspaceSplit(Metaspace metaspace) : metaspace_(std::move(metaspace)) {}
  void apply(PreTokenized& text, RegexScratch&) const override {
    const std::string& mark = metaspace_.replacement;
    rewrite_pieces(text, [&](std::string_view piece, size_t& origin, std::string& out) {
      const size_t begin = out.size();
      size_t moved_origin = origin;
      for (size_t at = 0; at < piece.size(); ++at) {
        if (piece[at] != ' ') {
          out += piece[at];
          continue;
        }
        out += mark;
        if (at < origin) moved_origin += mark.size() - 1;
      }
      const bool prepend = metaspace_.prepend == Metaspace::Prepend::kAlways ||
                           (metaspace_.prepend == Metaspace::Prepend::kFirst && origin > 0);
      if (prepend && !std::string_view(out).substr(begin).starts_with(mark)) {
        out.insert(begin, mark);
        if (origin > 0) moved_origin += mark.size();
      }
      origin = moved_origin;
    });
    if (!metaspace_.split) return;
    cut_pieces(
        text, false, SplitBehavior::kMergedWithNext,
        [&](std::string_view piece, std::vector<Span>& matches) { find_literal(piece, mark, matches); });
  }

 private:
  Metaspace metaspace_;
};

class PreTokenizerSequence : public PreTokenizer {
 public:
  PreTokenizerSequence(std::vector<std::unique_ptr<PreTokenizer>> steps, std::string where)
      : steps_(std::move(steps)), where_(std::move(where)) {}
  void apply(PreTokenized& text, RegexScratch& scratch) const override {
    for (size_t i = 0; i < steps_.size(); ++i) {
      steps_[i]->apply(text, scratch);
      if (text.text.size() > text.max_bytes)
        require_growth(text.text.size(), text.max_bytes, where_ + "[" + std::to_string(i) + "]");
    }
  }

 private:
  std::vector<std::unique_ptr<PreTokenizer>> steps_;
  std::string where_;  // the list
};

std::unique_ptr<PreTokenizer> make_pre_tokenizer(const JsonNode& node, int depth, size_t& num_steps) {
  const JsonNode type_node = node.at("type");
  const std::string& type = type_node.string();
  if (type == "Split") {
    return std::make_unique<Split>(Pattern(node.at("pattern")), split_behavior(node.at("behavior")),
                                   node.at("invert").boolean());
  }
  if (type == "ByteLevel") {
    std::optional<Regex> regex;
    if (node.boolean_or("use_regex", true))
      regex.emplace(onig_to_pcre2(kGpt2Pattern, node.where()), node.where());
    return std::make_unique<ByteLevel>(node.at("add_prefix_space").boolean(), std::move(regex));
  }
  if (type == "Metaspace") return std::make_unique<MetaspaceSplit>(Metaspace(node));
  if (type == "Digits") {
    const bool individual = node.at("individual_digits").boolean();
    return std::make_unique<CharSplit>(&is_number,
                                       individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous);
  }
  if (type == "Punctuation") {
    const auto behavior = node.find("behavior");
    return std::make_unique<CharSplit>(&is_punctuation,
                                       behavior ? split_behavior(*behavior) : SplitBehavior::kIsolated);
  }
  if (type == "Whitespace") return std::make_unique<KeepMatches>(Regex(kWhitespacePattern, node.where()));
  if (type == "WhitespaceSplit") return std::make_unique<CharSplit>(&is_whitespace, SplitBehavior::kRemoved);
  if (type == "BertPreTokenizer") {
    std::vector<std::unique_ptr<PreTokenizer>> steps;
    steps.push_back(std::make_unique<CharSplit>(&is_whitespace, SplitBehavior::kRemoved));
    steps.push_back(std::make_unique<CharSplit>(&is_punctuation, SplitBehavior::kIsolated));
    return std::make_unique<PreTokenizerSequence>(std::move(steps), node.where());
  }
  if (type == "Sequence") {
    const JsonNode list = sequence_elements(node, "pretokenizers", depth, num_steps);
    std::vector<std::unique_ptr<PreTokenizer>> steps;
    for (size_t i = 0; i < list.array_size(); ++i)
      steps.push_back(make_pre_tokenizer(list.at(i), depth + 1, num_steps));
    return std::make_unique<PreTokenizerSequence>(std::move(steps), list.where());
  }
  type_node.unsupported("pre-tokenizer \"", type, "\"; ", kAcceptedPreTokenizers);
}

}  // namespace

PreTokenized::PreTokenized(NormalizedText whole) : text(std::move(whole.text)), max_bytes(whole.max_bytes) {
  if (!text.empty()) pieces.push_back({0, text.size(), std::min(whole.origin, text.size())});
}

std::unique_ptr<PreTokenizer> make_pre_tokenizer(const JsonNode& node) {
  size_t num_steps = 0;
  return make_pre_tokenizer(node, 0, num_steps);
}

}  // namespace attend::tokenizer
