#include "attend/serve/formats/literal_reader.h"

#include <utility>

#include "attend/serve/formats/held_back.h"
#include "attend/serve/json/fields.h"
#include "attend/serve/json/json_text.h"

namespace attend::serve {
namespace {

constexpr bool ends_word(char byte) {
  return is_space(byte) || std::string_view(",:=[]{}()\"'").find(byte) != std::string_view::npos;
}

bool is_hex(std::string_view digits) {
  return digits.find_first_not_of("0123456789abcdefABCDEF") == std::string_view::npos;
}

}  // namespace

LiteralReader::LiteralReader(Notation notation, std::string_view quote)
    : notation_(notation), long_quote_(quote) {
  if (notation != Notation::kCall) return;
  out_ = "{";
  closers_ = "}";
  expected_ = ")";
  place_ = Place::kKey;
  read_any_ = true;
}

size_t LiteralReader::push(std::string_view text) {
  size_t num_read = 0;
  while (num_read < text.size() && state_ == State::kOpen) {
    switch (take(text[num_read])) {
      case Use::kRead:
        read_any_ = true;
        ++num_read;
        break;
      case Use::kAgain:
        break;
      case Use::kFail:
        state_ = State::kFailed;
        break;
    }
  }
  return num_read;
}

std::string LiteralReader::release() { return std::exchange(out_, {}); }

std::string LiteralReader::close() {
  if (state_ == State::kDone || !read_any_) return {};
  out_.clear();
  const bool had_key = in_key_;
  switch (place_) {
    case Place::kString:
    case Place::kQuoted:
    case Place::kEscape:
      replace_lone_surrogate();
      out_ += '"';
      end_item();
      break;
    case Place::kWord:
      end_word();
      break;
    default:
      break;
  }
  // A key needs a value.
  const bool in_object = !closers_.empty() && closers_.back() == '}';
  if (place_ == Place::kColon)
    out_ += ": null";
  else if (in_object && !had_key && (place_ == Place::kValue || place_ == Place::kQuoteOpen))
    out_ += "null";
  while (!closers_.empty()) {
    out_ += closers_.back();
    closers_.pop_back();
  }
  state_ = State::kDone;
  return release();
}

LiteralReader::Use LiteralReader::take(char byte) {
  switch (place_) {
    case Place::kValue:
      if (is_space(byte)) return (held_.empty() ? out_ : held_) += byte, Use::kRead;
      return begin_value(byte);
    case Place::kKey:
      if (is_space(byte)) return (held_.empty() ? out_ : held_) += byte, Use::kRead;
      return begin_key(byte);
    case Place::kColon:
      if (is_space(byte)) return Use::kRead;
      if (byte != ':' && byte != '=') return Use::kFail;
      out_ += byte == '=' ? ": " : ":";
      has_key_ = true;
      place_ = Place::kValue;
      return Use::kRead;
    case Place::kAfter:
      return take_after(byte);
    case Place::kString:
      return take_string(byte);
    case Place::kEscape:
      return take_escape(byte);
    case Place::kWord:
      if (ends_word(byte)) return end_word(), Use::kAgain;
      word_ += byte;
      return Use::kRead;
    case Place::kQuoteOpen:
      return take_quote_open(byte);
    case Place::kQuoted:
      return take_quoted(byte);
  }
  return Use::kFail;
}

LiteralReader::Use LiteralReader::begin_value(char byte) {
  const bool in_list = !closers_.empty() && closers_.back() == ']';
  if (in_list && byte == expected_.back()) return end_container(byte);
  in_key_ = false;
  word_.clear();
  if (notation_ == Notation::kQuoted && byte == long_quote_[0])
    return place_ = Place::kQuoteOpen, Use::kAgain;
  const bool opens = std::string_view("\"'{[(").find(byte) != std::string_view::npos;
  if (ends_word(byte) && !opens) return Use::kFail;
  out_ += std::exchange(held_, {});
  if (byte == '"' || byte == '\'') return begin_string(byte), Use::kRead;
  if (byte == '{' || byte == '[' || byte == '(') {
    out_ += byte == '{' ? '{' : '[';
    closers_ += byte == '{' ? '}' : ']';
    expected_ += byte == '{' ? '}' : byte == '[' ? ']' : ')';
    place_ = byte == '{' ? Place::kKey : Place::kValue;
    return Use::kRead;
  }
  place_ = Place::kWord;
  return Use::kAgain;
}

LiteralReader::Use LiteralReader::begin_key(char byte) {
  if (byte == expected_.back()) return end_container(byte);
  const bool quoted = byte == '"' || byte == '\'';
  if (ends_word(byte) && !quoted) return Use::kFail;
  in_key_ = true;
  word_.clear();
  if (notation_ == Notation::kQuoted && byte == long_quote_[0])
    return place_ = Place::kQuoteOpen, Use::kAgain;
  out_ += std::exchange(held_, {});
  if (quoted) return begin_string(byte), Use::kRead;
  place_ = Place::kWord;
  return Use::kAgain;
}

// A comma is held back, since JSON has none before a closing bracket.
LiteralReader::Use LiteralReader::take_after(char byte) {
  if (closers_.empty()) return Use::kFail;
  if (is_space(byte)) return out_ += byte, Use::kRead;
  if (byte == expected_.back()) return end_container(byte);
  if (byte != ',') return Use::kFail;
  held_ = ",";
  place_ = closers_.back() == '}' ? Place::kKey : Place::kValue;
  return Use::kRead;
}

LiteralReader::Use LiteralReader::end_container(char) {
  if (!held_.empty()) out_ += held_.substr(1);
  held_.clear();
  out_ += closers_.back();
  closers_.pop_back();
  expected_.pop_back();
  end_item();
  return Use::kRead;
}

// After a value or a key.
void LiteralReader::end_item() {
  if (std::exchange(in_key_, false)) {
    place_ = Place::kColon;
    return;
  }
  place_ = Place::kAfter;
  if (closers_.empty()) state_ = State::kDone;
}

void LiteralReader::begin_string(char quote) {
  quote_ = quote;
  out_ += '"';
  place_ = Place::kString;
}

void LiteralReader::add_string_byte(char byte) {
  if (static_cast<unsigned char>(byte) >= 0x20) {
    out_ += byte;
    return;
  }
  std::string quoted;
  append_quoted(std::string_view(&byte, 1), quoted);
  out_ += quoted.substr(1, quoted.size() - 2);
}

// A text cannot contain half of a surrogate pair.
void LiteralReader::replace_lone_surrogate() {
  if (!std::exchange(surrogate_, {}).empty()) out_ += "\\ufffd";
}

void LiteralReader::add_code_unit(const std::string& digits) {
  const unsigned long unit = std::stoul(digits, nullptr, 16);
  const bool is_high = unit >= 0xd800 && unit < 0xdc00, is_low = unit >= 0xdc00 && unit < 0xe000;
  if (is_low && !surrogate_.empty()) {
    out_ += "\\u" + std::exchange(surrogate_, {}) + "\\u" + digits;
    return;
  }
  replace_lone_surrogate();
  if (is_high)
    surrogate_ = digits;
  else
    out_ += is_low ? "\\ufffd" : "\\u" + digits;
}

LiteralReader::Use LiteralReader::take_string(char byte) {
  if (byte != '\\') replace_lone_surrogate();
  if (byte == quote_) {
    out_ += '"';
    end_item();
  } else if (byte == '\\') {
    word_.clear();
    place_ = Place::kEscape;
  } else if (byte == '"') {
    out_ += "\\\"";
  } else {
    add_string_byte(byte);
  }
  return Use::kRead;
}

LiteralReader::Use LiteralReader::take_escape(char byte) {
  const size_t num_digits = word_.empty() ? 0 : word_[0] == 'u' ? 4 : 2;
  const bool may_be_low = word_.empty() ? byte == 'u' : word_[0] == 'u' && is_hex(std::string_view(&byte, 1));
  if (!may_be_low) replace_lone_surrogate();
  if (word_.empty() && (byte == 'u' || byte == 'x')) return word_ = byte, Use::kRead;
  if (num_digits > 0) {
    // Digits that are not hexadecimal: the backslash is a character.
    if (!is_hex(std::string_view(&byte, 1))) {
      out_ += "\\\\" + word_;
      place_ = Place::kString;
      return Use::kAgain;
    }
    word_ += byte;
    if (word_.size() <= num_digits) return Use::kRead;
    add_code_unit((word_[0] == 'u' ? "" : "00") + word_.substr(1));
  } else if (byte == '\'') {
    out_ += '\'';
  } else if (std::string_view("\"\\/bfnrt").find(byte) != std::string_view::npos) {
    out_ += std::string("\\") + byte;
  } else {
    out_ += "\\\\";
    add_string_byte(byte);
  }
  place_ = Place::kString;
  return Use::kRead;
}

LiteralReader::Use LiteralReader::take_quote_open(char byte) {
  if (byte != long_quote_[word_.size()]) return Use::kFail;
  word_ += byte;
  if (word_.size() < long_quote_.size()) return Use::kRead;
  word_.clear();
  out_ += std::exchange(held_, {}) + '"';
  place_ = Place::kQuoted;
  return Use::kRead;
}

LiteralReader::Use LiteralReader::take_quoted(char byte) {
  word_ += byte;
  if (word_ == long_quote_) {
    out_ += '"';
    end_item();
    return Use::kRead;
  }
  const size_t kept = num_held_back(word_, long_quote_);
  for (const char passed : word_.substr(0, word_.size() - kept)) {
    if (passed == '"' || passed == '\\') out_ += '\\';
    add_string_byte(passed);
  }
  word_.erase(0, word_.size() - kept);
  return Use::kRead;
}

void LiteralReader::end_word() {
  if (in_key_)
    append_quoted(word_, out_);
  else if (word_ == "True")
    out_ += "true";
  else if (word_ == "False")
    out_ += "false";
  else if (word_ == "None")
    out_ += "null";
  else if (Json::accept(word_))
    out_ += word_;
  else
    append_quoted(word_, out_);
  end_item();
}

}  // namespace attend::serve
