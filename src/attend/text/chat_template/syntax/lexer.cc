#include "attend/text/chat_template/syntax/lexer.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "attend/text/chat_template/values/text.h"
#include "attend/text/tokenizer/utf8.h"

namespace attend::chat_template {
namespace {

bool is_name_start(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_decimal(char c) { return c >= '0' && c <= '9'; }
bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

// Normalizes line ends to \n and removes the last one.
std::string normal_lines(std::string_view source) {
  std::string text;
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r' && i + 1 < source.size() && source[i + 1] == '\n') continue;
    text += source[i] == '\r' ? '\n' : source[i];
  }
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) read_text();
    push(Token::Kind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail_here(std::string message) const { throw SyntaxError{line_, std::move(message)}; }
  void push(Token::Kind kind, std::string text) { tokens_.push_back({kind, line_, std::move(text)}); }
  char peek(size_t ahead = 0) const { return at_ + ahead < source_.size() ? source_[at_ + ahead] : '\0'; }
  bool next_is(std::string_view text) const { return source_.compare(at_, text.size(), text) == 0; }
  void advance(size_t bytes) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<ptrdiff_t>(at_),
                                         source_.begin() + static_cast<ptrdiff_t>(at_ + bytes), '\n'));
    at_ += bytes;
  }

  // Reads text and the tag after it.
  void read_text() {
    size_t tag = at_;
    for (;; ++tag) {
      tag = std::min(source_.find('{', tag), source_.size());
      if (tag + 1 >= source_.size()) tag = source_.size();
      if (tag == source_.size() || source_[tag + 1] == '{' || source_[tag + 1] == '%' ||
          source_[tag + 1] == '#')
        break;
    }
    std::string text = source_.substr(at_, tag - at_);
    const bool has_tag = tag < source_.size();
    const char kind = has_tag ? source_[tag + 1] : '\0';
    const char sign = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
    if (has_tag && sign == '-') {
      text = strip(Text(text), nullptr, Sides::kRight).bytes();
    } else if (has_tag && sign != '+' && kind != '{') {
      // A tag at the start of a line removes the white space before it (lstrip_blocks).
      const size_t start = text.rfind('\n') + 1;
      if ((start > 0 || line_starting_) && strip(Text(text.substr(start)), nullptr, Sides::kBoth).empty())
        text.resize(start);
    }
    if (!text.empty()) push(Token::Kind::kText, text);
    advance(tag - at_);
    if (!has_tag) return;
    advance(2);
    if (sign == '-' || (sign == '+' && kind != '{')) advance(1);
    if (kind == '#') return read_comment();
    if (kind == '%' && consume_tag("raw")) return read_raw();
    push(kind == '{' ? Token::Kind::kOutputBegin : Token::Kind::kTagBegin, "");
    read_tag(kind == '{' ? "}}" : "%}", kind == '{' ? Token::Kind::kOutputEnd : Token::Kind::kTagEnd);
  }

  // Reads the rest of a tag that consists of a name. Returns false, and reads nothing, at another tag.
  // `sign_` is set to the sign at its end.
  bool consume_tag(std::string_view name) {
    size_t at = at_;
    const auto skip_spaces = [&] {
      while (at < source_.size() && is_space(source_[at])) ++at;
    };
    skip_spaces();
    if (source_.compare(at, name.size(), name) != 0) return false;
    at += name.size();
    skip_spaces();
    const char sign = at < source_.size() ? source_[at] : '\0';
    const bool signed_end = sign == '-' || sign == '+';
    at += signed_end ? 1 : 0;
    if (source_.compare(at, 2, "%}") != 0) return false;
    sign_ = signed_end ? sign : '\0';
    advance(at + 2 - at_);
    return true;
  }

  // Reads text up to {% endraw %}, in which nothing is a tag.
  void read_raw() {
    const int line = line_;
    trim_after_tag(sign_, /*trim_newline=*/false);
    const size_t begin = at_;
    for (size_t tag = source_.find("{%", at_); tag != std::string::npos; tag = source_.find("{%", tag + 2)) {
      advance(tag - at_);
      const char sign = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
      advance(sign == '-' || sign == '+' ? 3 : 2);
      if (!consume_tag("endraw")) continue;
      std::string text = source_.substr(begin, tag - begin);
      if (sign == '-') {
        text = strip(Text(text), nullptr, Sides::kRight).bytes();
      } else if (sign != '+') {
        const size_t start = text.rfind('\n') + 1;
        if (start > 0 && strip(Text(text.substr(start)), nullptr, Sides::kBoth).empty()) text.resize(start);
      }
      if (!text.empty()) tokens_.push_back({Token::Kind::kText, line, std::move(text)});
      return trim_after_tag(sign_, /*trim_newline=*/true);
    }
    line_ = line;
    fail_here("{% raw %} without {% endraw %}");
  }

  void read_comment() {
    const size_t end = source_.find("#}", at_);
    if (end == std::string::npos) fail_here("a comment without its end: expected #}");
    const char sign = end > at_ ? source_[end - 1] : '\0';
    advance(end + 2 - at_);
    trim_after_tag(sign, /*trim_newline=*/true);
  }

  // Applies trim_blocks after the end of a tag.
  void trim_after_tag(char sign, bool trim_newline) {
    const size_t begin = at_;
    if (sign == '-') {
      while (is_space(peek())) advance(1);
    } else if (sign != '+' && trim_newline && peek() == '\n') {
      advance(1);
    }
    line_starting_ = at_ > begin && source_[at_ - 1] == '\n';
  }

  void read_tag(std::string_view end, Token::Kind end_kind) {
    std::string brackets;
    while (true) {
      while (is_space(peek())) advance(1);
      if (at_ >= source_.size()) fail_here("a tag without its end: expected " + std::string(end));
      if (brackets.empty()) {
        const bool signed_end =
            (peek() == '-' || (peek() == '+' && end == "%}")) && source_.compare(at_ + 1, 2, end) == 0;
        if (signed_end || next_is(end)) {
          const char sign = signed_end ? peek() : '\0';
          push(end_kind, "");
          advance(signed_end ? 3 : 2);
          return trim_after_tag(sign, /*trim_newline=*/end == "%}");
        }
      }
      read_token(brackets);
    }
  }

  void read_token(std::string& brackets) {
    const char c = peek();
    if (c == '"' || c == '\'') return read_string(c);
    if (is_decimal(c)) return read_number();
    if (is_name_start(c)) {
      size_t length = 1;
      while (is_name_start(peek(length)) || is_decimal(peek(length))) ++length;
      push(Token::Kind::kName, source_.substr(at_, length));
      return advance(length);
    }
    for (const std::string_view sign : {"==", "!=", "<=", ">=", "//", "**"})
      if (next_is(sign)) {
        push(Token::Kind::kSign, std::string(sign));
        return advance(2);
      }
    if (std::string_view("+-*/%~<>=|.,:()[]{}").find(c) == std::string_view::npos)
      fail_here("'" + source_.substr(at_, tokenizer::char_bytes(c)) + "': no sign of an expression");
    constexpr std::string_view kOpening = "([{", kClosing = ")]}";
    if (kOpening.find(c) != kOpening.npos) brackets += kClosing[kOpening.find(c)];
    if (kClosing.find(c) != kClosing.npos) {
      if (brackets.empty() || brackets.back() != c) fail_here(std::string("'") + c + "' closes nothing");
      brackets.pop_back();
    }
    push(Token::Kind::kSign, std::string(1, c));
    advance(1);
  }

  void read_number() {
    size_t length = 0;
    while (is_decimal(peek(length)) || (peek(length) == '_' && is_decimal(peek(length + 1)))) ++length;
    bool real = false;
    if (peek(length) == '.' && is_decimal(peek(length + 1))) {
      real = true;
      for (++length; is_decimal(peek(length));) ++length;
    }
    if (const size_t sign = peek(length + 1) == '-' || peek(length + 1) == '+';
        (peek(length) == 'e' || peek(length) == 'E') && is_decimal(peek(length + 1 + sign))) {
      real = true;
      for (length += 1 + sign; is_decimal(peek(length));) ++length;
    }
    std::string digits = source_.substr(at_, length);
    std::erase(digits, '_');
    Token token{real ? Token::Kind::kFloat : Token::Kind::kInteger, line_, digits};
    const char* const end = digits.data() + digits.size();
    const auto [rest, error] = real ? std::from_chars(digits.data(), end, token.real)
                                    : std::from_chars(digits.data(), end, token.integer);
    if (error != std::errc() || rest != end) fail_here(digits + ": expected a number of 64 bits");
    if (is_name_start(peek(length))) fail_here(digits + std::string(1, peek(length)) + ": no number");
    tokens_.push_back(std::move(token));
    advance(length);
  }

  void read_string(char quote) {
    const int line = line_;
    advance(1);
    std::string content;
    while (peek() != quote || at_ >= source_.size()) {
      if (at_ >= source_.size()) fail_here("a string without its end");
      if (peek() == '\\') {
        read_escape(content);
      } else {
        content += peek();
        advance(1);
      }
    }
    advance(1);
    tokens_.push_back({Token::Kind::kString, line, std::move(content)});
  }

  // Follows Python: an unknown escape is kept as it is.
  void read_escape(std::string& content) {
    constexpr std::string_view kEscapeLetters = "\\'\"abfnrtv", kMeanings = "\\'\"\a\b\f\n\r\t\v";
    const char c = peek(1);
    if (c == '\n') return advance(2);
    if (const size_t found = kEscapeLetters.find(c); c != '\0' && found != kEscapeLetters.npos) {
      content += kMeanings[found];
      return advance(2);
    }
    const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (digits == 0) {
      if (is_decimal(c) || c == 'N') throw SyntaxError{line_, std::string("\\") + c + " in a string", true};
      content += '\\';
      return advance(1);
    }
    uint32_t code = 0;
    const char* const begin = source_.data() + std::min(at_ + 2, source_.size());
    const char* const end = source_.data() + std::min(at_ + 2 + digits, source_.size());
    const auto [rest, error] = std::from_chars(begin, end, code, 16);
    if (error != std::errc() || rest != begin + digits || code > 0x10ffff ||
        (code >= 0xd800 && code < 0xe000))
      fail_here(std::string("\\") + c + ": expected " + std::to_string(digits) +
                " hexadecimal digits of a character");
    tokenizer::append_char(content, code);
    advance(2 + digits);
  }

  std::string source_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;  // the tag before ended with a line feed
  char sign_ = '\0';           // sign at the end of the tag that consume_tag() read
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> read_tokens(std::string_view source) { return Lexer(normal_lines(source)).run(); }

}  // namespace attend::chat_template
