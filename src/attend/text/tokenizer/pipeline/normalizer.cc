#include "attend/text/tokenizer/pipeline/normalizer.h"

#include <utility>
#include <vector>

#include "attend/text/tokenizer/growth.h"
#include "attend/text/tokenizer/pipeline/precompiled.h"
#include "attend/text/tokenizer/pipeline/sequence_elements.h"
#include "attend/text/tokenizer/regex/pattern.h"
#include "attend/text/tokenizer/unicode.h"
#include "attend/text/tokenizer/utf8.h"

namespace attend::tokenizer {
namespace {

constexpr std::string_view kAcceptedNormalizers =
    "attend reads NFC, NFD, NFKC, NFKD, Lowercase, Strip, StripAccents, Replace, Prepend, BertNormalizer, "
    "Precompiled and Sequence";

// Returns the new origin after a mapping that kept the first character, possibly changed.
size_t first_char_origin(const NormalizedText& text) {
  return text.origin > 0 && !text.text.empty() ? char_bytes(text.text[0]) : 0;
}

class UnicodeForm : public Normalizer {
 public:
  explicit UnicodeForm(NormalForm form) : form_(form) {}
  void apply(NormalizedText& text, RegexScratch&) const override {
    normalize(text.text, form_);
    text.origin = first_char_origin(text);
  }

 private:
  NormalForm form_;
};

class Lowercase : public Normalizer {
 public:
  void apply(NormalizedText& text, RegexScratch&) const override {
    text.text = to_lowercase(text.text);
    text.origin = first_char_origin(text);
  }
};

// Removes nonspacing marks of PCRE2's Unicode version (14 in Debian 12). The library uses tables of Unicode 9
// here.
class StripAccents : public Normalizer {
 public:
  void apply(NormalizedText& text, RegexScratch&) const override {
    std::string kept;
    kept.reserve(text.text.size());
    for (size_t at = 0; at < text.text.size();) {
      const Char c = read_char(text.text, at);
      if (!is_mark(c.code)) {
        kept.append(text.text, at, c.bytes);
      } else if (at == 0) {
        text.origin = 0;
      }
      at += c.bytes;
    }
    text.text = std::move(kept);
    text.origin = first_char_origin(text);
  }
};

// BERT's normalizer, in steps that its fields enable: removes control characters and replaces white space by
// spaces; puts spaces around each Chinese character; strips accents; lowercases. Character properties are
// utf8proc's, which are newer than the library's.
class BertNormalizer : public Normalizer {
 public:
  explicit BertNormalizer(const JsonNode& node)
      : clean_(node.at("clean_text").boolean()),
        split_chinese_(node.at("handle_chinese_chars").boolean()),
        lower_(node.at("lowercase").boolean()),
        strip_(node.boolean_or("strip_accents", lower_)) {}

  void apply(NormalizedText& text, RegexScratch&) const override {
    if (clean_ || split_chinese_) text.text = split_chinese_chars(text.text);
    if (strip_) {
      normalize(text.text, NormalForm::kNfd);
      text.text = without_accents(text.text);
    }
    if (lower_) text.text = to_lowercase(text.text);
    text.origin = first_char_origin(text);
  }

 private:
  static bool is_control(char32_t code) {
    if (code == '\t' || code == '\n' || code == '\r') return false;
    return code == 0xFFFD || is_control_or_private(code);
  }
  // Returns true for the Chinese, Japanese and Korean blocks that BERT counts, which are not all of
  // Unicode's.
  static bool is_chinese(char32_t code) {
    return (code >= 0x4E00 && code <= 0x9FFF) || (code >= 0x3400 && code <= 0x4DBF) ||
           (code >= 0x20000 && code <= 0x2A6DF) || (code >= 0x2A700 && code <= 0x2B81F) ||
           (code >= 0x2B920 && code <= 0x2CEAF) || (code >= 0xF900 && code <= 0xFAFF) ||
           (code >= 0x2F800 && code <= 0x2FA1F);
  }

  std::string split_chinese_chars(std::string_view text) const {
    std::string out;
    out.reserve(text.size());
    for (size_t at = 0; at < text.size();) {
      const Char c = read_char(text, at);
      const std::string_view bytes = text.substr(at, c.bytes);
      at += c.bytes;
      if (clean_ && is_control(c.code)) continue;
      if (clean_ && is_whitespace(c.code)) {
        out += ' ';
      } else if (split_chinese_ && is_chinese(c.code)) {
        out += ' ';
        out += bytes;
        out += ' ';
      } else {
        out += bytes;
      }
    }
    return out;
  }

  static std::string without_accents(std::string_view text) {
    std::string kept;
    kept.reserve(text.size());
    for (size_t at = 0; at < text.size();) {
      const Char c = read_char(text, at);
      if (!is_nonspacing_mark(c.code)) kept += text.substr(at, c.bytes);
      at += c.bytes;
    }
    return kept;
  }

  bool clean_, split_chinese_, lower_, strip_;
};

class Strip : public Normalizer {
 public:
  Strip(bool left, bool right) : left_(left), right_(right) {}
  void apply(NormalizedText& text, RegexScratch&) const override {
    std::string& s = text.text;
    size_t begin = 0;
    size_t end = s.size();
    while (left_ && begin < end && is_whitespace(read_char(s, begin).code)) begin += char_bytes(s[begin]);
    while (right_ && end > begin) {
      const Char last = read_char_before(s, end);
      if (!is_whitespace(last.code)) break;
      end -= last.bytes;
    }
    s = s.substr(begin, end - begin);
    text.origin = text.origin > begin ? std::min(text.origin, end) - begin : 0;
  }

 private:
  bool left_;
  bool right_;
};

class Replace : public Normalizer {
 public:
  Replace(Pattern pattern, std::string content, std::string where)
      : pattern_(std::move(pattern)), content_(std::move(content)), where_(std::move(where)) {}
  void apply(NormalizedText& text, RegexScratch& scratch) const override {
    std::vector<Span> matches;
    pattern_.find_all(text.text, scratch, matches);
    if (matches.empty()) return;
    require_growth(replaced_bytes(text.text, matches, content_), text.max_bytes, where_);
    std::string replaced;
    replace_matches(text.text, matches, content_, replaced);
    text.origin = replacement_origin(text.origin, matches);
    text.text = std::move(replaced);
  }

 private:
  // The replacement counts as the match's last character.
  size_t replacement_origin(size_t origin, const std::vector<Span>& matches) const {
    size_t moved = 0;
    size_t copied = 0;
    for (const Span& match : matches) {
      if (match.begin >= origin) break;
      moved += match.begin - copied;
      if (match.end > origin) return moved;
      moved += content_.size();
      copied = match.end;
    }
    return moved + origin - copied;
  }

  Pattern pattern_;
  std::string content_;
  std::string where_;
};

// SentencePiece's table of replacements. Each grapheme cluster that the table has is replaced, or else each
// of its characters.
class Precompiled : public Normalizer {
 public:
  explicit Precompiled(const JsonNode& node)
      : table_(node.at("precompiled_charsmap")), where_(node.where()) {}
  void apply(NormalizedText& text, RegexScratch&) const override {
    std::string out;
    out.reserve(text.text.size());
    size_t origin = 0;
    for (size_t at = 0; at < text.text.size();) {
      const size_t end = grapheme_end(text.text, at);
      append(std::string_view(text.text).substr(at, end - at), out);
      if (at == 0 && text.origin > 0) origin = out.size();
      require_growth(out.size(), text.max_bytes, where_);
      at = end;
    }
    text.text = std::move(out);
    text.origin = origin;
  }

 private:
  void append(std::string_view grapheme, std::string& out) const {
    constexpr size_t kMaxReplacedBytes = 5;  // longer clusters are replaced by characters, as in the library
    if (grapheme.size() <= kMaxReplacedBytes)
      if (const auto replacement = table_.find(grapheme)) {
        out += *replacement;
        return;
      }
    for (size_t at = 0; at < grapheme.size();) {
      const std::string_view character = grapheme.substr(at, char_bytes(grapheme[at]));
      out += table_.find(character).value_or(character);
      at += character.size();
    }
  }

  PrecompiledTable table_;
  std::string where_;
};

class Prepend : public Normalizer {
 public:
  Prepend(std::string prefix, std::string where) : prefix_(std::move(prefix)), where_(std::move(where)) {}
  void apply(NormalizedText& text, RegexScratch&) const override {
    if (text.text.empty()) return;
    require_growth(text.text.size() + prefix_.size(), text.max_bytes, where_);
    text.text.insert(0, prefix_);
    if (text.origin > 0) text.origin += prefix_.size();
  }

 private:
  std::string prefix_;
  std::string where_;
};

class NormalizerSequence : public Normalizer {
 public:
  NormalizerSequence(std::vector<std::unique_ptr<Normalizer>> steps, std::string where)
      : steps_(std::move(steps)), where_(std::move(where)) {}
  void apply(NormalizedText& text, RegexScratch& scratch) const override {
    for (size_t i = 0; i < steps_.size(); ++i) {
      steps_[i]->apply(text, scratch);
      if (text.text.size() > text.max_bytes)
        require_growth(text.text.size(), text.max_bytes, where_ + "[" + std::to_string(i) + "]");
    }
  }

 private:
  std::vector<std::unique_ptr<Normalizer>> steps_;
  std::string where_;  // the list
};

std::unique_ptr<Normalizer> make_normalizer(const JsonNode& node, int depth, size_t& num_steps) {
  const JsonNode type_node = node.at("type");
  const std::string& type = type_node.string();
  if (type == "NFC") return std::make_unique<UnicodeForm>(NormalForm::kNfc);
  if (type == "NFD") return std::make_unique<UnicodeForm>(NormalForm::kNfd);
  if (type == "NFKC") return std::make_unique<UnicodeForm>(NormalForm::kNfkc);
  if (type == "NFKD") return std::make_unique<UnicodeForm>(NormalForm::kNfkd);
  if (type == "Lowercase") return std::make_unique<Lowercase>();
  if (type == "StripAccents") return std::make_unique<StripAccents>();
  if (type == "BertNormalizer") return std::make_unique<BertNormalizer>(node);
  if (type == "Strip") {
    return std::make_unique<Strip>(node.at("strip_left").boolean(), node.at("strip_right").boolean());
  }
  if (type == "Replace") {
    return std::make_unique<Replace>(Pattern(node.at("pattern")), node.at("content").string(), node.where());
  }
  if (type == "Precompiled") return std::make_unique<Precompiled>(node);
  if (type == "Prepend") return std::make_unique<Prepend>(node.at("prepend").string(), node.where());
  if (type == "Sequence") {
    const JsonNode list = sequence_elements(node, "normalizers", depth, num_steps);
    std::vector<std::unique_ptr<Normalizer>> steps;
    for (size_t i = 0; i < list.array_size(); ++i)
      steps.push_back(make_normalizer(list.at(i), depth + 1, num_steps));
    return std::make_unique<NormalizerSequence>(std::move(steps), list.where());
  }
  type_node.unsupported("normalizer \"", type, "\"; ", kAcceptedNormalizers);
}

}  // namespace

std::unique_ptr<Normalizer> make_normalizer(const JsonNode& node) {
  size_t num_steps = 0;
  return make_normalizer(node, 0, num_steps);
}

}  // namespace attend::tokenizer
