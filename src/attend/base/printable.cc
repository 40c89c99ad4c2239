#include "attend/base/printable.h"

#include <fmt/format.h>

namespace attend {
namespace {

bool is_control(unsigned char byte) { return (byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7f; }

// Returns true for a UTF-8 continuation byte.
bool continues_utf8(char byte) { return (static_cast<unsigned char>(byte) & 0xc0) == 0x80; }

}  // namespace

std::string printable(std::string_view text) {
  std::string shown;
  shown.reserve(text.size());
  for (size_t at = 0; at < text.size(); ++at) {
    const auto byte = static_cast<unsigned char>(text[at]);
    const auto next = at + 1 < text.size() ? static_cast<unsigned char>(text[at + 1]) : 0;
    const bool is_c1_control = byte == 0xc2 && next >= 0x80 && next <= 0x9f;
    shown += is_control(byte) || is_c1_control ? '?' : text[at];
    if (is_c1_control) ++at;
  }
  return shown;
}

std::string elide(std::string_view text, size_t max_bytes) {
  if (text.size() <= max_bytes) return std::string(text);
  size_t head = max_bytes / 2, tail = text.size() - max_bytes / 2;
  while (head > 0 && continues_utf8(text[head])) --head;
  while (tail < text.size() && continues_utf8(text[tail])) ++tail;
  return std::string(text.substr(0, head)) + " [... " + std::to_string(tail - head) + " bytes ...] " +
         std::string(text.substr(tail));
}

std::string gigabytes_suffix(double num_bytes) {
  return num_bytes < 1e8 ? std::string() : fmt::format(" ({:.1f} GB)", 1e-9 * num_bytes);
}

}  // namespace attend
