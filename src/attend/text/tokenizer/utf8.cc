#include "attend/text/tokenizer/utf8.h"

#include <cstring>

namespace attend::tokenizer {
namespace {

enum class Form { kValid, kInvalid, kCut };

struct ByteSequence {
  Form form;
  size_t bytes;  // size of the character, of the maximal invalid part, or of the rest of the text
};

// Classifies the sequence at text[at] by table 3-7 of the Unicode standard.
ByteSequence scan_sequence(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(at);
  if (lead < 0x80) return {Form::kValid, 1};
  if (lead < 0xC2 || lead > 0xF4) return {Form::kInvalid, 1};
  const size_t bytes = char_bytes(text[at]);
  unsigned char low = 0x80;
  unsigned char high = 0xBF;
  if (lead == 0xE0) low = 0xA0;   // lower values: overlong
  if (lead == 0xED) high = 0x9F;  // higher values: surrogates
  if (lead == 0xF0) low = 0x90;   // lower values: overlong
  if (lead == 0xF4) high = 0x8F;  // higher values: beyond U+10FFFF
  for (size_t i = 1; i < bytes; ++i) {
    if (at + i == text.size()) return {Form::kCut, i};
    if (byte(at + i) < low || byte(at + i) > high) return {Form::kInvalid, i};
    low = 0x80;
    high = 0xBF;
  }
  return {Form::kValid, bytes};
}

// Returns the index of the first non-ASCII byte at or after `at`, or text.size().
size_t skip_ascii(std::string_view text, size_t at) {
  uint64_t word;
  while (at + sizeof word <= text.size()) {
    std::memcpy(&word, text.data() + at, sizeof word);
    if (word & 0x8080808080808080ull) break;
    at += sizeof word;
  }
  while (at < text.size() && static_cast<unsigned char>(text[at]) < 0x80) ++at;
  return at;
}

}  // namespace

Char read_char(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<char32_t>(static_cast<unsigned char>(text[at + i])); };
  const char32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xE0) return {(lead & 0x1F) << 6 | (byte(1) & 0x3F), 2};
  if (lead < 0xF0) return {(lead & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F), 3};
  return {(lead & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F), 4};
}

Char read_char_before(std::string_view text, size_t end) {
  size_t begin = end - 1;
  while ((static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) --begin;
  return read_char(text, begin);
}

size_t num_chars(std::string_view text) {
  size_t count = 0;
  for (size_t at = 0; at < text.size(); at += char_bytes(text[at])) ++count;
  return count;
}

void append_char(std::string& out, char32_t code) {
  const auto put = [&](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0 | code >> 6);
    put(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    put(0xE0 | code >> 12);
    put(0x80 | (code >> 6 & 0x3F));
    put(0x80 | (code & 0x3F));
  } else {
    put(0xF0 | code >> 18);
    put(0x80 | (code >> 12 & 0x3F));
    put(0x80 | (code >> 6 & 0x3F));
    put(0x80 | (code & 0x3F));
  }
}

bool is_valid_utf8(std::string_view text) {
  for (size_t at = skip_ascii(text, 0); at < text.size(); at = skip_ascii(text, at)) {
    const ByteSequence sequence = scan_sequence(text, at);
    if (sequence.form != Form::kValid) return false;
    at += sequence.bytes;
  }
  return true;
}

void Utf8Repair::append(std::string_view bytes, std::string& out) {
  std::string joined;
  if (!pending_.empty()) {
    joined = pending_;
    joined += bytes;
    bytes = joined;
    pending_.clear();
  }
  for (size_t at = 0; at < bytes.size();) {
    const ByteSequence sequence = scan_sequence(bytes, at);
    switch (sequence.form) {
      case Form::kValid:
        out += bytes.substr(at, sequence.bytes);
        break;
      case Form::kInvalid:
        out += kReplacementCharacter;
        break;
      case Form::kCut:
        pending_ = bytes.substr(at);
        return;
    }
    at += sequence.bytes;
  }
}

void Utf8Repair::finish(std::string& out) {
  if (!pending_.empty()) out += kReplacementCharacter;
  pending_.clear();
}

}  // namespace attend::tokenizer
