#include "attend/serve/json/partial_json.h"

#include <algorithm>

#include "attend/serve/json/fields.h"

namespace attend::serve {
namespace {

constexpr std::string_view kBetween = ": \n\t\r";  // characters between values that close none

// Returns the position after the string that begins at `begin`, or npos if the text ends first.
size_t string_end(std::string_view text, size_t begin) {
  for (size_t i = begin + 1; i < text.size(); ++i) {
    if (text[i] == '\\')
      ++i;
    else if (text[i] == '"')
      return i + 1;
  }
  return text.npos;
}

}  // namespace

std::string complete_json(std::string_view text) {
  std::string_view kept;  // up to the end of the last complete member
  std::string closers;    // of the open brackets, innermost last
  bool expects_key = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '{' || c == '[') {
      closers += c == '{' ? '}' : ']';
      expects_key = c == '{';
    } else if (c == '}' || c == ']') {
      if (closers.empty()) break;
      closers.pop_back();
      expects_key = false;
    } else if (c == ',') {
      kept = text.substr(0, i);
      expects_key = closers.ends_with('}');
      continue;
    } else if (c == '"') {
      const size_t end = string_end(text, i);
      if (end == text.npos) break;
      i = end - 1;
      if (expects_key) continue;
    } else if (kBetween.find(c) != kBetween.npos) {
      if (c == ':') expects_key = false;
      continue;
    } else {
      const size_t end = std::min(text.find_first_of(",:]} \n\t\r", i), text.size());
      if (!Json::accept(text.substr(i, end - i))) break;
      i = end - 1;
    }
    kept = text.substr(0, i + 1);
  }
  std::string json(kept);
  json.append(closers.rbegin(), closers.rend());
  return json.empty() ? "{}" : json;
}

}  // namespace attend::serve
