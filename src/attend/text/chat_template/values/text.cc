#include "attend/text/chat_template/values/text.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstring>

#include "attend/text/tokenizer/utf8.h"

namespace attend::chat_template {
namespace {

using tokenizer::Char;
using tokenizer::read_char;
using tokenizer::read_char_before;

// Implements str.isspace for a character.
bool is_python_space(char32_t code) {
  if (code < 0x80) return (code >= 0x09 && code <= 0x0d) || (code >= 0x1c && code <= 0x20);
  const utf8proc_category_t category = utf8proc_category(static_cast<utf8proc_int32_t>(code));
  return category == UTF8PROC_CATEGORY_ZS || category == UTF8PROC_CATEGORY_ZL ||
         category == UTF8PROC_CATEGORY_ZP || code == 0x85;
}

bool is_stripped(std::string_view bytes, Char c, size_t at, const std::string* chars) {
  return chars ? chars->find(bytes.substr(at, c.bytes)) != chars->npos : is_python_space(c.code);
}

// Returns the lower, upper or title case of a character if it is a single character.
char32_t map_char(char32_t code, Case to) {
  const auto c = static_cast<utf8proc_int32_t>(code);
  switch (to) {
    case Case::kLower:
      return static_cast<char32_t>(utf8proc_tolower(c));
    case Case::kUpper:
      return static_cast<char32_t>(utf8proc_toupper(c));
    default:
      return static_cast<char32_t>(utf8proc_totitle(c));
  }
}

bool is_cased(char32_t code) {
  const utf8proc_category_t category = utf8proc_category(static_cast<utf8proc_int32_t>(code));
  return category == UTF8PROC_CATEGORY_LU || category == UTF8PROC_CATEGORY_LL ||
         category == UTF8PROC_CATEGORY_LT;
}

}  // namespace

Text Text::part(size_t begin, size_t end) const {
  ReadBudget::charge(end - begin + sizeof(Text));
  Text part;
  part.bytes_ = bytes_.substr(begin, end - begin);
  part.marks_ = marks_.substr(begin, end - begin);
  return part;
}

void Text::append(const Text& other) {
  ReadBudget::charge(other.size());
  bytes_ += other.bytes_;
  marks_ += other.marks_;
}

void Text::append(std::string_view bytes, From from) {
  ReadBudget::charge(bytes.size());
  bytes_ += bytes;
  marks_.append(bytes.size(), static_cast<char>(from));
}

std::vector<size_t> char_offsets(const Text& text) {
  ReadBudget::charge(text.size() * (1 + sizeof(size_t)));
  std::vector<size_t> offsets;
  offsets.reserve(text.size() + 1);
  for (size_t at = 0; at < text.size(); at += tokenizer::char_bytes(text.bytes()[at])) offsets.push_back(at);
  offsets.push_back(text.size());
  return offsets;
}

size_t count_chars(std::string_view text) {
  ReadBudget::charge(text.size());
  size_t count = 0;
  for (size_t at = 0; at < text.size(); at += tokenizer::char_bytes(text[at])) ++count;
  return count;
}

// memmem() is linear; std::string::find() compares the whole part at each place.
size_t find(const Text& text, std::string_view part, size_t begin) {
  if (begin > text.size()) return std::string::npos;
  const char* const start = text.bytes().data();
  const void* const found = memmem(start + begin, text.size() - begin, part.data(), part.size());
  const size_t at =
      found == nullptr ? std::string::npos : static_cast<size_t>(static_cast<const char*>(found) - start);
  ReadBudget::charge(std::min(at, text.size()) - begin + part.size());
  return at;
}

Text strip(const Text& text, const std::string* chars, Sides sides) {
  const std::string_view bytes = text.bytes();
  size_t begin = 0, end = bytes.size();
  const size_t bytes_per_char = kBytesPerConvertedChar + (chars ? chars->size() : 0);
  while (sides != Sides::kRight && begin < end) {
    ReadBudget::charge(bytes_per_char);
    const Char c = read_char(bytes, begin);
    if (!is_stripped(bytes, c, begin, chars)) break;
    begin += c.bytes;
  }
  while (sides != Sides::kLeft && begin < end) {
    ReadBudget::charge(bytes_per_char);
    const Char c = read_char_before(bytes, end);
    if (!is_stripped(bytes, c, end - c.bytes, chars)) break;
    end -= c.bytes;
  }
  return text.part(begin, end);
}

std::vector<Text> split(const Text& text, std::string_view separator, int64_t max_splits) {
  std::vector<Text> parts;
  size_t begin = 0;
  while (max_splits < 0 || static_cast<int64_t>(parts.size()) < max_splits) {
    const size_t at = find(text, separator, begin);
    if (at == std::string::npos) break;
    parts.push_back(text.part(begin, at));
    begin = at + separator.size();
  }
  parts.push_back(text.part(begin, text.size()));
  return parts;
}

std::vector<Text> split_from_right(const Text& text, std::string_view separator, int64_t max_splits) {
  // rfind() may compare the whole separator at each place.
  ReadBudget::charge(text.size() * separator.size());
  std::vector<Text> parts;
  size_t end = text.size();
  while (end >= separator.size() && (max_splits < 0 || static_cast<int64_t>(parts.size()) < max_splits)) {
    const size_t at = text.bytes().rfind(separator, end - separator.size());
    if (at == std::string::npos) break;
    parts.push_back(text.part(at + separator.size(), end));
    end = at;
  }
  parts.push_back(text.part(0, end));
  return {parts.rbegin(), parts.rend()};
}

std::vector<Text> split_at_white_space(const Text& text, int64_t max_splits) {
  std::vector<Text> parts;
  const std::string_view bytes = text.bytes();
  size_t at = 0;
  ReadBudget::charge(bytes.size() * kBytesPerConvertedChar);
  const auto skip = [&](bool space) {
    while (at < bytes.size() && is_python_space(read_char(bytes, at).code) == space)
      at += read_char(bytes, at).bytes;
  };
  for (skip(true); at < bytes.size(); skip(true)) {
    const size_t begin = at;
    if (max_splits >= 0 && static_cast<int64_t>(parts.size()) == max_splits) {
      parts.push_back(strip(text.part(begin, bytes.size()), nullptr, Sides::kRight));
      break;
    }
    skip(false);
    parts.push_back(text.part(begin, at));
  }
  return parts;
}

std::vector<Text> split_lines(const Text& text) {
  std::vector<Text> lines;
  const std::string& bytes = text.bytes();
  for (size_t begin = 0; begin < bytes.size();) {
    const size_t end = std::min(bytes.find_first_of("\r\n", begin), bytes.size());
    ReadBudget::charge(end - begin + kBytesPerVisit);
    lines.push_back(text.part(begin, end));
    begin = end + (bytes.compare(end, 2, "\r\n") == 0 ? 2 : 1);
  }
  return lines;
}

Text replace(const Text& text, std::string_view old, const Text& with, int64_t count) {
  Text result;
  size_t begin = 0;
  // An empty text matches before each character and at the end.
  for (size_t from = 0; count != 0 && from <= text.size(); --count) {
    const size_t at = find(text, old, from);
    if (at == std::string::npos) break;
    result.append(text.part(begin, at));
    result.append(with);
    begin = at + old.size();
    from = begin;
    if (!old.empty()) continue;
    from += at < text.size() ? tokenizer::char_bytes(text.bytes()[at]) : 1;
  }
  result.append(text.part(begin, text.size()));
  return result;
}

Text to_case(const Text& text, Case to) {
  ReadBudget::charge(text.size() * kBytesPerConvertedChar);
  Text result;
  bool first = true;
  for (size_t at = 0; at < text.size();) {
    const Char c = read_char(text.bytes(), at);
    Case mapped = to;
    if (to == Case::kTitle || to == Case::kCapitalized) mapped = first ? to : Case::kLower;
    std::string bytes;
    tokenizer::append_char(bytes, map_char(c.code, mapped));
    result.append(bytes, text.from(at));
    first = to == Case::kTitle ? !is_cased(c.code) : false;
    at += c.bytes;
  }
  return result;
}

}  // namespace attend::chat_template
