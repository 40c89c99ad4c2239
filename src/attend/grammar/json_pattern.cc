#include <algorithm>
#include <array>
#include <utility>

#include "attend/base/error.h"
#include "attend/grammar/pattern.h"
#include "attend/text/tokenizer/utf8.h"

namespace attend {
namespace {

constexpr std::string_view kHexDigits = "0123456789abcdef";
constexpr std::pair<char32_t, char> kShortEscapes[] = {{'"', '"'},  {'\\', '\\'}, {'\b', 'b'}, {'\f', 'f'},
                                                       {'\n', 'n'}, {'\r', 'r'},  {'\t', 't'}};
constexpr char32_t kFirstUnescaped = 0x20;

void append_literal(char32_t code, std::string& regex) {
  const bool is_syntax = code < 0x80 && std::string_view("^$\\.*+?()[]{}|/-").find(static_cast<char>(code)) !=
                                            std::string_view::npos;
  if (is_syntax) regex += '\\';
  tokenizer::append_char(regex, code);
}

std::string to_class(const CodePoints& set) {
  std::string regex = "[";
  for (const auto& [first, last] : set.ranges()) {
    append_literal(first, regex);
    if (last > first + 1) regex += '-';
    if (last > first) append_literal(last, regex);
  }
  return regex + "]";
}

// Returns a literal or a class.
std::string to_regex(const CodePoints& set) {
  const auto& ranges = set.ranges();
  if (ranges.size() != 1 || ranges[0].first != ranges[0].last) return to_class(set);
  std::string regex;
  append_literal(ranges[0].first, regex);
  return regex;
}

std::string join(const std::vector<std::string>& alternatives) {
  if (alternatives.size() == 1) return alternatives[0];
  std::string regex = "(";
  for (const std::string& alternative : alternatives) {
    if (regex.size() > 1) regex += '|';
    regex += alternative;
  }
  return regex + ")";
}

// Returns a regex of how JSON spells one of these characters, in the shortest form.
std::string spelled(const CodePoints& set) {
  static const CodePoints escaped{{0, kFirstUnescaped - 1}, {'"', '"'}, {'\\', '\\'}};
  std::vector<std::string> alternatives;
  if (const CodePoints plain = set.without(escaped); !plain.empty()) alternatives.push_back(to_regex(plain));
  CodePoints letters;
  std::array<CodePoints, 2> digits;  // last digits of \u000x and \u001x
  for (char32_t code = 0; code < 0x80; ++code) {
    if (!escaped.contains(code) || !set.contains(code)) continue;
    const auto* const known = std::ranges::find(kShortEscapes, code, &std::pair<char32_t, char>::first);
    if (known != std::end(kShortEscapes)) {
      const auto letter = static_cast<char32_t>(known->second);
      letters.add({letter, letter});
    } else {
      const auto digit = static_cast<char32_t>(kHexDigits[code % 16]);
      digits[code / 16].add({digit, digit});
    }
  }
  if (!letters.empty()) alternatives.push_back("\\\\" + to_regex(letters));
  for (size_t i = 0; i < digits.size(); ++i)
    if (!digits[i].empty()) alternatives.push_back("\\\\u00" + std::to_string(i) + to_regex(digits[i]));
  return join(alternatives);
}

std::string quantifier(const PatternItem& item) {
  if (item.min == 1 && item.max == 1) return "";
  if (!item.max && item.min <= 1) return item.min == 0 ? "*" : "+";
  if (item.min == 0 && item.max == 1) return "?";
  std::string text = "{" + std::to_string(item.min);
  if (item.max != item.min) text += "," + (item.max ? std::to_string(*item.max) : "");
  return text + "}";
}

// Returns a regex of these characters in a text. xgrammar does not support NUL, which no text needs.
std::string text_spelled(const CodePoints& set) {
  const CodePoints supported = set.without({{0, 0}});
  if (supported.empty() && !set.empty())
    fail(ErrorCode::kUnsupported, "matches only the character U+0000: expected another one");
  return to_regex(supported);
}

using Spelling = std::string (*)(const CodePoints&);

std::string render(const std::vector<PatternSequence>& alternatives, Spelling spelling);

std::string render(const PatternItem& item, Spelling spelling) {
  if (item.max == 0) return "";
  const std::string one =
      item.alternatives.empty() ? spelling(item.characters) : render(item.alternatives, spelling);
  if (one.empty()) return "";
  const std::string repeated = quantifier(item);
  // A literal "[" is escaped, so that this is a class.
  const bool is_one =
      item.alternatives.empty() && (repeated.empty() || one.size() == 1 || one.starts_with('['));
  return is_one ? one + repeated : "(" + one + ")" + repeated;
}

std::string render(const std::vector<PatternSequence>& alternatives, Spelling spelling) {
  std::string regex;
  for (size_t i = 0; i < alternatives.size(); ++i) {
    if (i > 0) regex += '|';
    for (const PatternItem& item : alternatives[i]) regex += render(item, spelling);
  }
  return regex;
}

}  // namespace

std::string json_string_regex(std::string_view pattern) { return render(parse_pattern(pattern), spelled); }

std::string text_regex(std::string_view pattern) {
  try {
    return render(parse_pattern(pattern), text_spelled);
  } catch (const Error& error) {
    fail(error.code(), "a pattern ", error.what());
  }
}

}  // namespace attend
