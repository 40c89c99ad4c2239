#include "attend/text/tokenizer/pipeline/precompiled.h"

#include <array>

#include "attend/text/tokenizer/utf8.h"

namespace attend::tokenizer {
namespace {

std::optional<std::string> decode_base64(std::string_view text) {
  while (text.ends_with('=')) text.remove_suffix(1);
  std::array<int8_t, 256> values;
  values.fill(-1);
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (size_t i = 0; i < kDigits.size(); ++i)
    values[static_cast<unsigned char>(kDigits[i])] = static_cast<int8_t>(i);
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3 + 2);
  uint32_t bits = 0;
  int num_bits = 0;
  for (const char digit : text) {
    const int value = values[static_cast<unsigned char>(digit)];
    if (value < 0) return std::nullopt;
    bits = bits << 6 | static_cast<uint32_t>(value);
    num_bits += 6;
    if (num_bits < 8) continue;
    num_bits -= 8;
    bytes += static_cast<char>(bits >> num_bits & 0xFF);
  }
  return bytes;
}

uint32_t read_u32(std::string_view bytes, size_t at) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i)
    value |= static_cast<uint32_t>(static_cast<unsigned char>(bytes[at + i])) << (8 * i);
  return value;
}

// Fields of a unit.
bool has_leaf(uint32_t unit) { return (unit >> 8 & 1) != 0; }
uint32_t value_of(uint32_t unit) { return unit & 0x7FFFFFFF; }
uint32_t label_of(uint32_t unit) { return unit & 0x800000FF; }
uint32_t offset_of(uint32_t unit) { return unit >> 10 << ((unit & 0x200) >> 6); }

}  // namespace

PrecompiledTable::PrecompiledTable(const JsonNode& node) {
  const std::optional<std::string> bytes = decode_base64(node.string());
  constexpr size_t kHead = 4;
  if (!bytes || bytes->size() < kHead) node.corrupt("is not base64 of a table");
  const size_t trie_bytes = read_u32(*bytes, 0);
  if (trie_bytes == 0 || trie_bytes % 4 != 0 || trie_bytes > bytes->size() - kHead)
    node.corrupt("has a trie of ", trie_bytes, " bytes: expected a multiple of 4 up to ",
                 bytes->size() - kHead);
  for (size_t at = 0; at < trie_bytes; at += 4) trie_.push_back(read_u32(*bytes, kHead + at));
  replacements_ = bytes->substr(kHead + trie_bytes);
  if (!is_valid_utf8(replacements_)) node.corrupt("has replacements that are not UTF-8");
}

std::optional<std::string_view> PrecompiledTable::find(std::string_view text) const {
  size_t at = offset_of(trie_[0]);
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    at ^= byte;
    if (byte == 0 || at >= trie_.size() || label_of(trie_[at]) != byte) return std::nullopt;
    const uint32_t unit = trie_[at];
    at ^= offset_of(unit);
    if (!has_leaf(unit)) continue;
    const size_t begin = at < trie_.size() ? value_of(trie_[at]) : replacements_.size();
    if (begin >= replacements_.size()) return std::nullopt;
    const std::string_view rest = std::string_view(replacements_).substr(begin);
    return rest.substr(0, rest.find('\0'));
  }
  return std::nullopt;
}

}  // namespace attend::tokenizer
