#include "attend/serve/http/head_text.h"

#include <fmt/format.h>

#include <utility>
//
#include <boost/beast/http/status.hpp>

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

namespace {

// Returns the position of the host in an absolute target, or 0.
size_t host_position(std::string_view target) {
  return target.starts_with("http://") ? 7 : target.starts_with("https://") ? 8 : 0;
}

}  // namespace

std::string_view parse_host(std::string_view target) {
  const size_t host = host_position(target);
  return host == 0 ? std::string_view() : target.substr(host, target.find_first_of("/?", host) - host);
}

std::string without_origin(std::string_view target) {
  const size_t host = host_position(target);
  if (host == 0) return std::string(target);
  const size_t path = target.find('/', host);
  return path == target.npos ? "/" : std::string(target.substr(path));
}

std::string path_of(std::string_view target) {
  const std::string local = without_origin(target.substr(0, target.find('?')));
  return percent_decoded(local);
}

std::string one_line(std::string_view text) {
  std::string line;
  for (const char c : text.substr(0, 200))
    if (c >= ' ' && c <= '~') line += c;
  return line;
}

std::string answer_head(int status, std::string_view content_type,
                        const std::vector<std::pair<std::string, std::string>>& headers,
                        std::string_view allowed_origin, bool keep_alive) {
  namespace http = boost::beast::http;
  constexpr int kOverloaded = 529;  // of Anthropic's API, without a standard reason
  const std::string reason = status == kOverloaded
                                 ? "Overloaded"
                                 : std::string(http::obsolete_reason(static_cast<http::status>(status)));
  std::string head = fmt::format("HTTP/1.1 {} {}\r\nServer: attend\r\n", status, reason);
  if (!content_type.empty()) head += fmt::format("Content-Type: {}\r\n", content_type);
  for (const auto& [name, value] : headers) head += fmt::format("{}: {}\r\n", name, value);
  if (!allowed_origin.empty())
    head += fmt::format(
        "Access-Control-Allow-Origin: {}\r\nAccess-Control-Allow-Headers: *, Authorization\r\n"
        "Access-Control-Allow-Methods: GET, POST, DELETE, OPTIONS\r\n{}",
        allowed_origin, allowed_origin == "*" ? "" : "Vary: Origin\r\n");
  head += keep_alive ? "Connection: keep-alive\r\n\r\n" : "Connection: close\r\n\r\n";
  return head;
}

}  // namespace attend::serve
