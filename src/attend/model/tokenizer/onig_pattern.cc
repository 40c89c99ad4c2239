#include "attend/model/tokenizer/onig_pattern.h"

#include <cstdint>
#include <vector>

#include "attend/base/error.h"
#include "attend/model/tokenizer/onig_property.h"
#include "attend/model/tokenizer/utf8.h"

namespace attend::tokenizer {
namespace {

constexpr int kMaxDepth = 100;  // of groups and sets
constexpr uint32_t kMaxRepeat = 65535;

// One character of a set, or a class of them.
struct SetItem {
  char32_t code = 0;
  std::string class_items;  // a class when not empty
  bool negated = false;     // the class's complement
};

// A union: what one bracket of PCRE2 can hold, and whole expressions for the rest.
struct SetUnion {
  std::string items;
  std::vector<std::string> expressions;
  bool empty() const { return items.empty() && expressions.empty(); }
};

std::string hex_escape(char32_t code) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string digits;
  for (char32_t rest = code; rest > 0 || digits.empty(); rest >>= 4) digits.insert(0, 1, kDigits[rest & 0xF]);
  return "\\x{" + digits + "}";
}

bool is_ascii_letter(char32_t c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_ascii_digit(char32_t c) { return c >= '0' && c <= '9'; }

std::string literal(char32_t code) {
  if (is_ascii_letter(code) || is_ascii_digit(code)) return std::string(1, static_cast<char>(code));
  if (code > 0x20 && code < 0x7F) return {'\\', static_cast<char>(code)};
  return hex_escape(code);
}

std::string bracket(std::string_view items, bool negated) {
  std::string set = negated ? "[^" : "[";
  set += items;
  set += ']';
  return set;
}

// A class outside of sets. PCRE2 runs a bare property faster than a set of one.
std::string standalone(const SetItem& item) {
  const std::string& items = item.class_items;
  if (items == kWordItems) return bracket(items + std::string(kLoneWordItems), item.negated);
  if (items.starts_with("\\p{") && items.find('}') == items.size() - 1) {
    return item.negated ? std::string("\\P").append(items, 2) : items;
  }
  return bracket(items, item.negated);
}

std::string union_expression(const SetUnion& set) {
  if (set.expressions.empty()) return bracket(set.items, false);
  std::string out = "(?:";
  if (!set.items.empty()) out += bracket(set.items, false) + "|";
  for (const std::string& expression : set.expressions) out += expression + "|";
  out.back() = ')';
  return out;
}

class Translator {
 public:
  Translator(std::string_view pattern, std::string_view where) : pattern_(pattern), where_(where) {}

  std::string run() {
    alternatives(0);
    if (!at_end()) refuse("unmatched )");
    return std::move(out_);
  }

 private:
  [[noreturn]] void refuse(std::string_view what) const {
    fail(ErrorCode::kUnsupported, where_, ": regex \"", pattern_, "\" at byte ", at_, ": ", what);
  }

  bool at_end() const { return at_ == pattern_.size(); }
  bool looking_at(std::string_view text) const { return pattern_.substr(at_).starts_with(text); }
  bool eat(std::string_view text) {
    if (!looking_at(text)) return false;
    at_ += text.size();
    return true;
  }
  char32_t next() {
    if (at_end()) refuse("ends too early");
    const Char c = read_char(pattern_, at_);
    at_ += c.bytes;
    return c.code;
  }

  // Everything up to the end of the enclosing group, which is left to the caller.
  void alternatives(int depth) {
    if (depth > kMaxDepth) refuse("nested too deeply");
    while (!at_end() && !looking_at(")")) {
      if (eat("|")) {
        out_ += '|';
      } else {
        const size_t atom = out_.size();
        if (parse_atom(depth)) quantifiers(atom);
      }
    }
  }

  // Appends one atom. False if it can not be repeated.
  bool parse_atom(int depth) {
    if (looking_at("*") || looking_at("+") || looking_at("?")) refuse("nothing to repeat");
    if (eat("(")) return group(depth);
    if (eat("[")) {
      out_ += set(depth);
    } else if (eat("\\")) {
      escape();
    } else if (looking_at(".") || looking_at("^") || looking_at("$")) {
      out_ += pattern_[at_++];
    } else {
      out_ += literal(next());
    }
    return true;
  }

  bool group(int depth) {
    if (looking_at("*")) refuse("callouts are not supported");
    if (eat("?")) {
      if (eat("#")) {
        while (next() != ')') {
        }
        return false;
      }
      out_ += "(?";
      bool known = false;
      for (const std::string_view kind : {":", "=", "!", ">", "<=", "<!"}) {
        if (!known && eat(kind)) {
          out_ += kind;
          known = true;
        }
      }
      if (!known && eat("<")) {
        // The name matters to back-references only, and those are refused.
        while (next() != '>') {
        }
        out_ += ":";
        known = true;
      }
      if (!known && options()) {
        // Options without a colon reach to the end of the enclosing group, over its alternatives.
        alternatives(depth + 1);
        out_ += ')';
        return false;
      }
    } else {
      out_ += "(?:";
    }
    alternatives(depth + 1);
    if (!eat(")")) refuse("missing )");
    out_ += ')';
    return true;
  }

  // Translates "im-im:" or "im-im)". True for the latter.
  bool options() {
    bool minus = false;
    for (;;) {
      const char32_t c = next();
      if (c == 'i') {
        out_ += 'i';
      } else if (c == 'm') {
        out_ += 's';  // Oniguruma's "m" lets the dot match a newline
      } else if (c == '-' && !minus) {
        minus = true;
        out_ += '-';
      } else if (c == ':' || c == ')') {
        out_ += ':';
        return c == ')';
      } else {
        refuse("this kind of group is not supported");
      }
    }
  }

  // Appends the quantifiers that follow the atom at out_[atom].
  void quantifiers(size_t atom) {
    bool repeated = false;
    for (;;) {
      std::string quantifier;
      bool fixed = false;
      bool braces = false;
      if (looking_at("*") || looking_at("+") || looking_at("?")) {
        quantifier = pattern_[at_++];
      } else if (looking_at("{") && interval(quantifier, fixed)) {
        braces = true;
      } else {
        return;
      }
      if (repeated) wrap(atom);
      repeated = true;
      out_ += quantifier;
      if (fixed && eat("?")) {  // a{2}? is an optional a{2}, not a lazy one
        wrap(atom);
        out_ += '?';
      } else if (eat("?")) {
        out_ += '?';
      } else if (!braces && eat("+")) {  // a{1,2}+ is a repeated a{1,2}, not a possessive one
        out_ += '+';
      }
    }
  }

  void wrap(size_t atom) {
    out_.insert(atom, "(?:");
    out_ += ')';
  }

  // Reads {n}, {n,}, {n,m} or {,m}; anything else that begins with a brace is literal.
  bool interval(std::string& quantifier, bool& fixed) {
    const size_t start = at_++;
    uint32_t low = 0;
    uint32_t high = 0;
    const bool has_low = number(low);
    const bool comma = eat(",");
    const bool has_high = comma && number(high);
    if (!eat("}") || !(has_low || has_high)) {
      at_ = start;
      return false;
    }
    if (has_high && high < low) refuse("the interval is upside down");
    fixed = !comma;
    quantifier = '{';
    quantifier += std::to_string(low);
    if (comma) quantifier += ',';
    if (has_high) quantifier += std::to_string(high);
    quantifier += '}';
    return true;
  }

  bool number(uint32_t& value) {
    const size_t start = at_;
    for (; !at_end() && is_ascii_digit(static_cast<unsigned char>(pattern_[at_])); ++at_) {
      value = value * 10 + static_cast<uint32_t>(pattern_[at_] - '0');
      if (value > kMaxRepeat) refuse("repeats too often");
    }
    return at_ > start;
  }

  // An escape outside sets; the backslash is read.
  void escape() {
    const size_t start = at_;
    const char32_t c = next();
    switch (c) {
      case 'b':
        out_ += word_boundary("(?!", "(?=");
        return;
      case 'B':
        out_ += word_boundary("(?=", "(?!");
        return;
      case 'O':
        out_ += "(?s:.)";
        return;
      case 'A':
      case 'z':
      case 'Z':
      case 'G':
      case 'R':
      case 'N':
      case 'K':
        out_ += '\\';
        out_ += static_cast<char>(c);
        return;
      default:
        break;
    }
    at_ = start;
    const SetItem item = character_or_class();
    out_ += item.class_items.empty() ? literal(item.code) : standalone(item);
  }

  static std::string word_boundary(std::string_view after_word, std::string_view after_other) {
    const std::string word = standalone({0, std::string(kWordItems), false});
    return "(?:(?<=" + word + ")" + std::string(after_word) + word + ")|(?<!" + word + ")" +
           std::string(after_other) + word + "))";
  }

  // An escape that means the same inside and outside sets; the backslash is read.
  SetItem character_or_class() {
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
    if (is_ascii_digit(c)) refuse("back-references and octal characters are not supported");
    if (is_ascii_letter(c)) refuse("this escape is not supported");
    return {c, {}, false};
  }

  char32_t hex_character() {
    if (eat("{")) {
      const char32_t code = hex_digits(1, 8);
      if (!eat("}")) refuse("missing }");
      return code;
    }
    const char32_t code = hex_digits(1, 2);
    if (code >= 0x80) refuse("bytes of a character are not supported; write \\x{...}");
    return code;
  }

  char32_t hex_digits(int at_least, int at_most) {
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
    if (digits < at_least || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) refuse("not a character");
    return static_cast<char32_t>(code);
  }

  SetItem property(bool negated) {
    if (!eat("{")) refuse("missing { after \\p");
    if (eat("^")) negated = !negated;
    const size_t close = pattern_.find('}', at_);
    if (close == std::string_view::npos) refuse("missing }");
    std::optional<std::string> items = property_items(pattern_.substr(at_, close - at_));
    if (!items) refuse("unknown property");
    at_ = close + 1;
    return {0, *std::move(items), negated};
  }

  // A set, up to its closing bracket; the opening one is read.
  std::string set(int depth) {
    if (depth > kMaxDepth) refuse("nested too deeply");
    const bool negated = eat("^");
    std::vector<SetUnion> operands(1);
    for (bool first = true; first || !eat("]"); first = false) {
      if (eat("&&")) {
        operands.emplace_back();
      } else if (eat("[:")) {
        posix_class(operands.back());
      } else if (eat("[")) {
        operands.back().expressions.push_back(set(depth + 1));
      } else {
        set_range(operands.back());
      }
    }
    for (const SetUnion& operand : operands) {
      if (operand.empty()) refuse("an empty set is not supported");
    }
    if (operands.size() == 1 && operands[0].expressions.empty()) return bracket(operands[0].items, negated);
    std::string all = "(?:";
    for (size_t i = 0; i + 1 < operands.size(); ++i) all += "(?=" + union_expression(operands[i]) + ")";
    all += union_expression(operands.back()) + ")";
    return negated ? "(?:(?!" + all + ")(?s:.))" : all;
  }

  void posix_class(SetUnion& set) {
    const bool negated = eat("^");
    const size_t close = pattern_.find(":]", at_);
    if (close == std::string_view::npos) refuse("missing :]");
    const std::optional<std::string> items = posix_items(pattern_.substr(at_, close - at_));
    if (!items) refuse("this POSIX bracket is not supported");
    at_ = close + 2;
    add({0, *items, negated}, set);
  }

  static void add(const SetItem& item, SetUnion& set) {
    if (item.class_items.empty()) {
      set.items += literal(item.code);
    } else if (item.negated) {
      set.expressions.push_back(bracket(item.class_items, true));
    } else {
      set.items += item.class_items;
    }
  }

  SetItem set_item() {
    if (!eat("\\")) return {next(), {}, false};
    if (eat("b")) return {'\b', {}, false};
    return character_or_class();
  }

  void set_range(SetUnion& set) {
    const SetItem low = set_item();
    const bool range = looking_at("-") && !looking_at("-]") && !looking_at("-&&") && low.class_items.empty();
    if (!range) return add(low, set);
    eat("-");
    if (looking_at("[")) refuse("a range can not end in a set");
    const SetItem high = set_item();
    if (!high.class_items.empty() || high.code < low.code) refuse("not a range");
    set.items += literal(low.code) + "-" + literal(high.code);
  }

  std::string_view pattern_;
  std::string_view where_;
  size_t at_ = 0;
  std::string out_;
};

}  // namespace

std::string onig_to_pcre2(std::string_view pattern, std::string_view where) {
  return Translator(pattern, where).run();
}

}  // namespace attend::tokenizer
