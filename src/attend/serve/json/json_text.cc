#include "attend/serve/json/json_text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "attend/serve/json/fields.h"

namespace attend::serve {

// Copies runs without escapes, which are most of the text.
void append_quoted(std::string_view text, std::string& json) {
  const auto plain = [](char c) { return c >= ' ' && c <= '~' && c != '"' && c != '\\'; };
  if (!std::all_of(text.begin(), text.end(), plain)) {
    json += Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
    return;
  }
  ((json += '"') += text) += '"';
}

void JsonText::separate() {
  if (has_one_) json_ += ',';
  has_one_ = true;
}

JsonText& JsonText::open(char bracket) {
  separate();
  json_ += bracket;
  has_one_ = false;
  return *this;
}

JsonText& JsonText::close(char bracket) {
  json_ += bracket;
  has_one_ = true;
  return *this;
}

JsonText& JsonText::word(std::string_view value) {
  separate();
  json_ += value;
  return *this;
}

JsonText& JsonText::key(std::string_view name) {
  separate();
  append_quoted(name, json_);
  json_ += ':';
  has_one_ = false;
  return *this;
}

JsonText& JsonText::text(std::string_view value) {
  separate();
  append_quoted(value, json_);
  return *this;
}

JsonText& JsonText::integer(int64_t value) {
  std::array<char, 24> digits;
  const char* const end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
  return word({digits.data(), end});
}

JsonText& JsonText::number(double value) {
  if (!std::isfinite(value)) return null();
  std::array<char, 32> digits;
  const char* const end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
  const std::string_view shortest(digits.data(), end);
  word(shortest);
  // Some readers distinguish integers and floats, so floats always have a point or an exponent.
  if (shortest.find_first_of(".e") == shortest.npos) json_ += ".0";
  return *this;
}

}  // namespace attend::serve
