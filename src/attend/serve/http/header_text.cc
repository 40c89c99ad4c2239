#include "attend/serve/http/header_text.h"

namespace attend::serve {

std::string percent_decoded(std::string_view text) {
  std::string decoded;
  const auto digit = [](char c) {
    return c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
  };
  for (size_t i = 0; i < text.size(); ++i) {
    const bool escaped =
        text[i] == '%' && i + 2 < text.size() && digit(text[i + 1]) >= 0 && digit(text[i + 2]) >= 0;
    decoded += escaped ? static_cast<char>(digit(text[i + 1]) * 16 + digit(text[i + 2])) : text[i];
    if (escaped) i += 2;
  }
  return decoded;
}

std::string without_origin(std::string_view target) {
  const size_t host = target.starts_with("http://") ? 7 : target.starts_with("https://") ? 8 : 0;
  if (host == 0) return std::string(target);
  const size_t path = target.find('/', host);
  return path == target.npos ? "/" : std::string(target.substr(path));
}

std::string one_line(std::string_view text) {
  std::string line;
  for (const char c : text.substr(0, 200))
    if (c >= ' ' && c <= '~') line += c;
  return line;
}

}  // namespace attend::serve
