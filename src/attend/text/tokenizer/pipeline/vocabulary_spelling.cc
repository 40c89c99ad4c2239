#include "attend/text/tokenizer/pipeline/vocabulary_spelling.h"

#include <array>
#include <cstdint>

#include "attend/text/tokenizer/utf8.h"

namespace attend::tokenizer {
namespace {

constexpr char32_t kAlphabetEnd = 0x100 + 68;  // 68 bytes are not printable in Latin-1

constexpr bool is_printable_byte(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || (byte >= 0xAE && byte <= 0xFF);
}

struct Alphabet {
  std::array<char32_t, 256> chars{};
  std::array<int16_t, kAlphabetEnd> bytes{};  // -1: not in the alphabet
};

constexpr Alphabet make_alphabet() {
  Alphabet alphabet;
  for (int16_t& byte : alphabet.bytes) byte = -1;
  char32_t next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const char32_t code = is_printable_byte(byte) ? static_cast<char32_t>(byte) : next++;
    alphabet.chars[static_cast<size_t>(byte)] = code;
    alphabet.bytes[code] = static_cast<int16_t>(byte);
  }
  return alphabet;
}

constexpr Alphabet kAlphabet = make_alphabet();
static_assert(kAlphabet.chars[' '] == 0x120 && kAlphabet.bytes[kAlphabetEnd - 1] == 0xAD);

}  // namespace

void append_byte_level(std::string_view text, std::string& out) {
  for (const char byte : text) append_char(out, kAlphabet.chars[static_cast<unsigned char>(byte)]);
}

std::optional<std::string> decode_byte_level(std::string_view token) {
  std::string bytes;
  bytes.reserve(token.size());
  for (size_t at = 0; at < token.size();) {
    const Char c = read_char(token, at);
    if (c.code >= kAlphabetEnd || kAlphabet.bytes[c.code] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(kAlphabet.bytes[c.code]));
    at += c.bytes;
  }
  return bytes;
}

int parse_byte_token(std::string_view token) {
  const auto digit = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if ((c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F')) return (c | 0x20) - 'a' + 10;
    return -1;
  };
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
  const int high = token[3] == '+' ? 0 : digit(token[3]);  // Rust's from_str_radix accepts a sign
  const int low = digit(token[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

Metaspace::Metaspace(const JsonNode& node) {
  replacement = node.at("replacement").character();
  if (const auto scheme = node.find("prepend_scheme")) {
    const std::string& name = scheme->string();
    if (name == "first") {
      prepend = Prepend::kFirst;
    } else if (name == "never") {
      prepend = Prepend::kNever;
    } else if (name != "always") {
      scheme->corrupt("\"", name, "\" is none of always, first and never");
    }
  }
  // Older form of "never" and "always". A file may contain both, which must agree.
  if (!node.boolean_or("add_prefix_space", true) && prepend != Prepend::kNever) {
    node.corrupt("add_prefix_space false contradicts prepend_scheme; it needs \"never\"");
  }
  split = node.boolean_or("split", true);
}

}  // namespace attend::tokenizer
