#include "attend/text/tokenizer/regex/onig_reader.h"

#include <cstdint>
#include <optional>
#include <utility>

#include "attend/base/error.h"
#include "attend/text/tokenizer/regex/onig_property.h"
#include "attend/text/tokenizer/utf8.h"

namespace attend::tokenizer {
namespace {

std::string hex_escape(char32_t code) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string digits;
  for (char32_t rest = code; rest > 0 || digits.empty(); rest >>= 4) digits.insert(0, 1, kDigits[rest & 0xF]);
  return "\\x{" + digits + "}";
}

bool is_ascii_letter(char32_t c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_ascii_digit(char32_t c) { return c >= '0' && c <= '9'; }

std::string bracket(std::string_view items, bool negated) {
  std::string set = negated ? "[^" : "[";
  set += items;
  set += ']';
  return set;
}

}  // namespace

std::string onig_literal(char32_t code) {
  if (is_ascii_letter(code) || is_ascii_digit(code)) return std::string(1, static_cast<char>(code));
  if (code > 0x20 && code < 0x7F) return {'\\', static_cast<char>(code)};
  return hex_escape(code);
}

std::string OnigItem::expression() const {
  if (class_items.empty()) return onig_literal(code);
  if (class_items == kWordItems) return bracket(class_items + std::string(kSingleWordItems), negated);
  // PCRE2 matches a single property faster than a set with one property.
  if (class_items.starts_with("\\p{") && class_items.find('}') == class_items.size() - 1) {
    return negated ? std::string("\\P").append(class_items, 2) : class_items;
  }
  return bracket(class_items, negated);
}

void OnigReader::Union::add(const OnigItem& item) {
  if (item.class_items.empty()) {
    items += onig_literal(item.code);
  } else if (item.negated) {
    expressions.push_back(bracket(item.class_items, true));
  } else {
    items += item.class_items;
  }
}

std::string OnigReader::Union::expression() const {
  if (expressions.empty()) return bracket(items, false);
  std::string out = "(?:";
  if (!items.empty()) out += bracket(items, false) + "|";
  for (const std::string& expression : expressions) out += expression + "|";
  out.back() = ')';
  return out;
}

void OnigReader::reject(std::string_view what) const {
  fail(ErrorCode::kUnsupported, where_, ": regex \"", pattern_, "\" at byte ", at_, ": ", what);
}

bool OnigReader::consume(std::string_view text) {
  if (!next_is(text)) return false;
  at_ += text.size();
  return true;
}

char32_t OnigReader::next() {
  if (at_end()) reject("ends too early");
  const Char c = read_char(pattern_, at_);
  at_ += c.bytes;
  return c.code;
}

OnigItem OnigReader::escape() {
  const char32_t c = next();
  switch (c) {
    case 's':
      return {0, std::string(kSpaceItems), false};
    case 'S':
      return {0, std::string(kSpaceItems), true};
    case 'w':
      return {0, std::string(kWordItems), false};
    case 'W':
      return {0, std::string(kWordItems), true};
    case 'd':
      return {0, "\\p{Nd}", false};
    case 'D':
      return {0, "\\p{Nd}", true};
    case 'h':
      return {0, std::string(kHexItems), false};
    case 'H':
      return {0, std::string(kHexItems), true};
    case 'p':
      return property(false);
    case 'P':
      return property(true);
    case 't':
      return {'\t', {}, false};
    case 'n':
      return {'\n', {}, false};
    case 'v':
      return {'\v', {}, false};
    case 'f':
      return {'\f', {}, false};
    case 'r':
      return {'\r', {}, false};
    case 'a':
      return {'\a', {}, false};
    case 'e':
      return {0x1B, {}, false};
    case 'x':
      return {hex_character(), {}, false};
    case 'u':
      return {hex_digits(4, 4), {}, false};
    default:
      break;
  }
  if (is_ascii_digit(c)) reject("back-references and octal characters are not supported");
  if (is_ascii_letter(c)) reject("this escape is not supported");
  return {c, {}, false};
}

char32_t OnigReader::hex_character() {
  if (consume("{")) {
    const char32_t code = hex_digits(1, 8);
    if (!consume("}")) reject("missing }");
    return code;
  }
  const char32_t code = hex_digits(1, 2);
  if (code >= 0x80) reject("bytes of a character are not supported; write \\x{...}");
  return code;
}

char32_t OnigReader::hex_digits(int at_least, int at_most) {
  uint64_t code = 0;
  int digits = 0;
  for (; digits < at_most && !at_end(); ++digits, ++at_) {
    const char c = pattern_[at_];
    if (c >= '0' && c <= '9') {
      code = code * 16 + static_cast<uint64_t>(c - '0');
    } else if ((c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F')) {
      code = code * 16 + static_cast<uint64_t>((c | 0x20) - 'a' + 10);
    } else {
      break;
    }
  }
  if (digits < at_least || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) reject("not a character");
  return static_cast<char32_t>(code);
}

OnigItem OnigReader::property(bool negated) {
  if (!consume("{")) reject("missing { after \\p");
  if (consume("^")) negated = !negated;
  const size_t close = pattern_.find('}', at_);
  if (close == std::string_view::npos) reject("missing }");
  std::optional<std::string> items = property_items(pattern_.substr(at_, close - at_));
  if (!items) reject("unknown property");
  at_ = close + 1;
  return {0, *std::move(items), negated};
}

std::string OnigReader::set(int depth) {
  if (depth > kMaxDepth) reject("nested too deeply");
  const bool negated = consume("^");
  std::vector<Union> operands(1);
  for (bool first = true; first || !consume("]"); first = false) {
    if (consume("&&")) {
      operands.emplace_back();
    } else if (consume("[:")) {
      posix_class(operands.back());
    } else if (consume("[")) {
      operands.back().expressions.push_back(set(depth + 1));
    } else {
      set_range(operands.back());
    }
  }
  for (const Union& operand : operands) {
    if (operand.items.empty() && operand.expressions.empty()) reject("an empty set is not supported");
  }
  if (operands.size() == 1 && operands[0].expressions.empty()) return bracket(operands[0].items, negated);
  std::string all = "(?:";
  for (size_t i = 0; i + 1 < operands.size(); ++i) all += "(?=" + operands[i].expression() + ")";
  all += operands.back().expression() + ")";
  return negated ? "(?:(?!" + all + ")(?s:.))" : all;
}

void OnigReader::posix_class(Union& set) {
  const bool negated = consume("^");
  const size_t close = pattern_.find(":]", at_);
  if (close == std::string_view::npos) reject("missing :]");
  const std::optional<std::string> items = posix_items(pattern_.substr(at_, close - at_));
  if (!items) reject("this POSIX bracket is not supported");
  at_ = close + 2;
  set.add({0, *items, negated});
}

OnigItem OnigReader::set_item() {
  if (!consume("\\")) return {next(), {}, false};
  if (consume("b")) return {'\b', {}, false};
  return escape();
}

void OnigReader::set_range(Union& set) {
  const OnigItem low = set_item();
  const bool range = next_is("-") && !next_is("-]") && !next_is("-&&") && low.class_items.empty();
  if (!range) return set.add(low);
  consume("-");
  if (next_is("[")) reject("a range cannot end in a set");
  const OnigItem high = set_item();
  if (!high.class_items.empty() || high.code < low.code) reject("not a range");
  set.items += onig_literal(low.code) + "-" + onig_literal(high.code);
}

}  // namespace attend::tokenizer
