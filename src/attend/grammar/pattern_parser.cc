#include <algorithm>
#include <cctype>
#include <charconv>
#include <utility>

#include "attend/base/error.h"
#include "attend/grammar/pattern.h"
#include "attend/text/tokenizer/utf8.h"

namespace attend {
namespace {

constexpr int kMaxDepth = 100;
constexpr int kMaxRepetitions = 100'000;

const CodePoints kDigits{{'0', '9'}};
const CodePoints kWord{{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
// ECMA-262 and Python differ in which characters are white space: \s is what both have, \S what neither has.
const CodePoints kSpaces{{'\t', '\r'},     {' ', ' '},       {0xA0, 0xA0},
                         {0x1680, 0x1680}, {0x2000, 0x200A}, {0x2028, 0x2029},
                         {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}};
const CodePoints kAnySpaces{{'\t', '\r'},     {0x1C, ' '},      {0x85, 0x85},     {0xA0, 0xA0},
                            {0x1680, 0x1680}, {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F},
                            {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
const CodePoints kLineEnds{{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};

class PatternParser {
 public:
  explicit PatternParser(std::string_view text) : text_(text) {
    if (!tokenizer::is_valid_utf8(text)) fail(ErrorCode::kInvalidArgument, "expected UTF-8 text");
  }

  std::vector<PatternSequence> parse() {
    auto alternatives = parse_alternatives(true, true, 0);
    if (at_ < text_.size()) reject(at_, ")", "has no (");
    return alternatives;
  }

 private:
  [[noreturn]] void reject(size_t at, std::string_view what, std::string_view why,
                           ErrorCode code = ErrorCode::kInvalidArgument) const {
    size_t position = 1;
    for (size_t i = 0; i < at; i += tokenizer::char_bytes(text_[i])) ++position;
    attend::fail(code, "with ", what, " at character ", position, " ", why);
  }
  [[noreturn]] void reject_kind(size_t at, size_t bytes) const {
    reject(at, text_.substr(at, bytes), "is not supported in grammars", ErrorCode::kUnsupported);
  }

  bool has(std::string_view next) const { return text_.substr(at_).starts_with(next); }
  bool skip(std::string_view next) {
    if (!has(next)) return false;
    at_ += next.size();
    return true;
  }
  char32_t read_char() {
    const tokenizer::Char c = tokenizer::read_char(text_, at_);
    at_ += c.bytes;
    return c.code;
  }

  // `at_start`, `at_end`: the text begins, or ends, with what these alternatives match.
  std::vector<PatternSequence> parse_alternatives(bool at_start, bool at_end, int depth) {
    if (depth > kMaxDepth) reject(at_, "(", "is nested too deeply", ErrorCode::kUnsupported);
    std::vector<PatternSequence> alternatives;
    do alternatives.push_back(parse_sequence(at_start, at_end, depth));
    while (skip("|"));
    return alternatives;
  }

  PatternSequence parse_sequence(bool at_start, bool at_end, int depth) {
    PatternSequence items;
    std::optional<size_t> end;  // position of a $
    while (at_ < text_.size() && !has("|") && !has(")")) {
      const size_t first = at_;
      if (skip("^")) {
        if (!at_start || !items.empty() || end)
          reject(first, "^", "can only be at the start", ErrorCode::kUnsupported);
        continue;
      }
      if (skip("$")) {
        if (!at_end) reject(first, "$", "can only be at the end", ErrorCode::kUnsupported);
        if (!end) end = first;
        continue;
      }
      if (end) reject(*end, "$", "can only be at the end", ErrorCode::kUnsupported);
      items.push_back(parse_item(at_start && items.empty(), at_end, depth));
    }
    return items;
  }

  PatternItem parse_item(bool at_start, bool at_end, int depth) {
    const size_t first = at_;
    PatternItem item;
    if (skip("(")) {
      skip_group_kind(first);
      // Anchors within a group need to know what follows it.
      const size_t close = find_group_end(first);
      const bool is_last = at_end && ends_alternative(close + 1);
      const bool is_repeated = close + 1 < text_.size() &&
                               std::string_view("*+?{").find(text_[close + 1]) != std::string_view::npos;
      item.alternatives = parse_alternatives(at_start && !is_repeated, is_last && !is_repeated, depth + 1);
      if (!skip(")")) reject(first, "(", "has no )");
    } else if (skip("[")) {
      item.characters = parse_class(first);
    } else if (skip(".")) {
      item.characters = kLineEnds.complement();
    } else if (has("*") || has("+") || has("?") || is_quantifier()) {
      reject(first, text_.substr(first, 1), "has nothing to repeat");
    } else if (skip("\\")) {
      item.characters = parse_escape(first, false);
    } else {
      const char32_t code = read_char();
      item.characters = {{code, code}};
    }
    if (item.alternatives.empty() && item.characters.empty())
      reject(first, text_.substr(first, at_ - first), "matches no character", ErrorCode::kUnsupported);
    parse_quantifier(item);
    return item;
  }

  void skip_group_kind(size_t first) {
    if (!skip("?") || skip(":")) return;
    skip("P");  // Python's named groups
    if (!skip("<") || has("=") || has("!")) reject_kind(first, at_ - first + 1);
    const size_t name = text_.find('>', at_);
    if (name == std::string_view::npos) reject_kind(first, at_ - first);
    at_ = name + 1;
  }

  // Returns the position of the ")" that closes the group, or the end of the text.
  size_t find_group_end(size_t first) const {
    int open = 1;
    bool in_class = false;
    for (size_t i = at_; i < text_.size(); ++i) {
      const char c = text_[i];
      if (c == '\\')
        ++i;
      else if (in_class)
        in_class = c != ']';
      else if (c == '[')
        in_class = true;
      else if (c == '(')
        ++open;
      else if (c == ')' && --open == 0)
        return i;
    }
    reject(first, "(", "has no )");
  }

  // Returns true if nothing but $ follows in this alternative.
  bool ends_alternative(size_t at) const {
    while (at < text_.size() && text_[at] == '$') ++at;
    return at >= text_.size() || text_[at] == '|' || text_[at] == ')';
  }

  std::optional<int> parse_count() {
    int count = 0;
    const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), count);
    if (end == text_.data() + at_ || has("-")) return std::nullopt;
    const size_t first = at_;
    at_ = static_cast<size_t>(end - text_.data());
    if (error != std::errc() || count > kMaxRepetitions)
      reject(first, text_.substr(first, at_ - first), "has too many repetitions", ErrorCode::kUnsupported);
    return count;
  }

  // Returns false for a "{" that does not start a quantifier: it is a literal.
  bool is_quantifier() const {
    if (!has("{")) return false;
    const size_t digits = text_.find_first_not_of("0123456789", at_ + 1);
    if (digits == at_ + 1 || digits == std::string_view::npos) return false;
    if (text_[digits] == '}') return true;
    if (text_[digits] != ',') return false;
    const size_t end = text_.find_first_not_of("0123456789", digits + 1);
    return end != std::string_view::npos && text_[end] == '}';
  }

  void parse_quantifier(PatternItem& item) {
    const size_t first = at_;
    if (skip("*")) {
      item.min = 0;
      item.max.reset();
    } else if (skip("+")) {
      item.max.reset();
    } else if (skip("?")) {
      item.min = 0;
    } else if (is_quantifier()) {
      skip("{");
      item.min = parse_count().value_or(0);
      item.max = item.min;
      if (skip(",")) item.max = parse_count();
      if (item.max && *item.max < item.min)
        reject(first, text_.substr(first, at_ + 1 - first), "has its limits in the wrong order");
      skip("}");
    } else {
      return;
    }
    skip("?");
    if (has("*") || has("+") || has("?") || is_quantifier())
      reject(at_, text_.substr(at_, 1), "has nothing to repeat");
  }

  // Parses what follows a backslash at `first`.
  CodePoints parse_escape(size_t first, bool in_class) {
    if (at_ == text_.size()) reject(first, "\\", "is incomplete");
    const char32_t code = read_char();
    switch (code) {
      case 'd':
        return kDigits;
      case 'D':
        return kDigits.complement();
      case 'w':
        return kWord;
      case 'W':
        return kWord.complement();
      case 's':
        return kSpaces;
      case 'S':
        return kAnySpaces.complement();
      case 't':
        return {{'\t', '\t'}};
      case 'n':
        return {{'\n', '\n'}};
      case 'v':
        return {{'\v', '\v'}};
      case 'f':
        return {{'\f', '\f'}};
      case 'r':
        return {{'\r', '\r'}};
      case 'b':
        if (in_class) return {{'\b', '\b'}};
        break;
      case '0':
        if (at_ == text_.size() || text_[at_] < '0' || text_[at_] > '9') return {{0, 0}};
        break;
      case 'x':
        return parse_hex(first, 2);
      case 'u':
        return parse_unicode(first);
      case 'c':
        if (at_ < text_.size() && std::isalpha(static_cast<unsigned char>(text_[at_])) != 0) {
          const auto control = static_cast<char32_t>(text_[at_++] & 0x1F);
          return {{control, control}};
        }
        break;
      default:
        // Other ASCII characters are literals, except letters and digits, as in patterns without flag u.
        if (code < 0x80 && std::isalnum(static_cast<int>(code)) == 0) return {{code, code}};
    }
    reject_kind(first, at_ - first);
  }

  char32_t read_hex(size_t first, size_t num_digits) {
    uint32_t code = 0;
    const char* const begin = text_.data() + at_;
    const size_t available = std::min(num_digits, text_.size() - at_);
    const auto [end, error] = std::from_chars(begin, begin + available, code, 16);
    if (error != std::errc() || end != begin + num_digits)
      reject(first, text_.substr(first, at_ - first), "is incomplete");
    at_ += num_digits;
    return code;
  }

  CodePoints parse_hex(size_t first, size_t num_digits) {
    const char32_t code = read_hex(first, num_digits);
    return {{code, code}};
  }

  CodePoints parse_unicode(size_t first) {
    char32_t code = 0;
    if (skip("{")) {
      const size_t end = text_.find('}', at_);
      if (end == std::string_view::npos || end == at_ || end - at_ > 6)
        reject(first, text_.substr(first, at_ - first), "is incomplete");
      code = read_hex(first, end - at_);
      skip("}");
    } else {
      code = read_hex(first, 4);
      if (code >= 0xD800 && code < 0xDC00 && skip("\\u")) {
        const char32_t low = read_hex(first, 4);
        if (low < 0xDC00 || low > 0xDFFF) reject(first, text_.substr(first, at_ - first), "is no character");
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
      }
    }
    if (code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF))
      reject(first, text_.substr(first, at_ - first), "is no character");
    return {{code, code}};
  }

  // Parses what follows the "[" at `first`.
  CodePoints parse_class(size_t first) {
    const bool negated = skip("^");
    std::vector<CodePoints::Range> ranges;
    while (!skip("]")) {
      if (at_ >= text_.size()) reject(first, "[", "has no ]");
      const size_t begin = at_;
      const CodePoints from = parse_class_atom();
      if (!has("-") || text_.substr(at_).starts_with("-]")) {
        ranges.insert(ranges.end(), from.ranges().begin(), from.ranges().end());
        continue;
      }
      skip("-");
      if (at_ >= text_.size()) reject(first, "[", "has no ]");
      const CodePoints to = parse_class_atom();
      const auto is_one = [](const CodePoints& points) {
        return points.ranges().size() == 1 && points.ranges()[0].first == points.ranges()[0].last;
      };
      if (!is_one(from) || !is_one(to) || to.ranges()[0].first < from.ranges()[0].first)
        reject(begin, text_.substr(begin, at_ - begin), "is no range");
      ranges.push_back({from.ranges()[0].first, to.ranges()[0].first});
    }
    CodePoints set(std::move(ranges));
    return negated ? set.complement() : set;
  }

  CodePoints parse_class_atom() {
    const size_t first = at_;
    if (skip("\\")) return parse_escape(first, true);
    const char32_t code = read_char();
    return {{code, code}};
  }

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

std::vector<PatternSequence> parse_pattern(std::string_view pattern) {
  return PatternParser(pattern).parse();
}

}  // namespace attend
