#include "attend/text/tokenizer/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <vector>

#include "attend/base/error.h"
#include "attend/text/tokenizer/utf8.h"

namespace attend::tokenizer {
namespace {

utf8proc_category_t category(char32_t code) { return utf8proc_category(static_cast<utf8proc_int32_t>(code)); }

bool is_ascii(char c) { return static_cast<unsigned char>(c) < 0x80; }

int utf8proc_options(NormalForm form) {
  switch (form) {
    case NormalForm::kNfc:
      return UTF8PROC_STABLE | UTF8PROC_COMPOSE;
    case NormalForm::kNfd:
      return UTF8PROC_STABLE | UTF8PROC_DECOMPOSE;
    case NormalForm::kNfkc:
      return UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT;
    case NormalForm::kNfkd:
      return UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT;
  }
  fail(ErrorCode::kInternal, "normal form ", static_cast<int>(form));
}

// Returns true if no normal form changes the character, regardless of its neighbors.
bool is_inert(char32_t code) {
  if (code >= 0x1100 && code <= 0x11FF) return false;  // Hangul jamo compose by rule, not by table
  if (code >= 0xAC00 && code <= 0xD7FF) return false;  // Hangul syllables decompose by rule
  const utf8proc_property_t* property = utf8proc_get_property(static_cast<utf8proc_int32_t>(code));
  return property->combining_class == 0 && property->decomp_seqindex == UINT16_MAX &&
         property->comb_index == UINT16_MAX;
}

bool all_inert(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const Char c = read_char(text, at);
    if (c.code >= 0x80 && !is_inert(c.code)) return false;
    at += c.bytes;
  }
  return true;
}

// Sorts combining marks canonically. utf8proc's implementation is quadratic in the length of a run of marks,
// and a text may consist of a single run.
void order_marks(std::vector<utf8proc_int32_t>& codes) {
  const auto combining_class = [](utf8proc_int32_t code) {
    return utf8proc_get_property(code)->combining_class;
  };
  const auto has_combining_class = [&](utf8proc_int32_t code) { return combining_class(code) != 0; };
  for (auto begin = codes.begin(); begin != codes.end();) {
    begin = std::find_if(begin, codes.end(), has_combining_class);
    const auto end = std::find_if_not(begin, codes.end(), has_combining_class);
    std::stable_sort(begin, end, [&](utf8proc_int32_t a, utf8proc_int32_t b) {
      return combining_class(a) < combining_class(b);
    });
    begin = end;
  }
}

void append_normalized(std::string_view text, NormalForm form, std::string& out) {
  if (all_inert(text)) {
    out += text;
    return;
  }
  const auto options = static_cast<utf8proc_option_t>(utf8proc_options(form));
  std::vector<utf8proc_int32_t> codes;
  for (size_t at = 0; at < text.size();) {
    const Char c = read_char(text, at);
    std::array<utf8proc_int32_t, 32> parts;  // Unicode's longest decomposition has 18
    int unused = 0;
    const utf8proc_ssize_t num_parts = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c.code),
                                                               parts.data(), parts.size(), options, &unused);
    ensure(num_parts >= 0 && num_parts <= std::ssize(parts), "Unicode normalization: ", num_parts, " parts");
    codes.insert(codes.end(), parts.begin(), parts.begin() + num_parts);
    at += c.bytes;
  }
  order_marks(codes);
  const utf8proc_ssize_t num_codes =
      utf8proc_normalize_utf32(codes.data(), static_cast<utf8proc_ssize_t>(codes.size()), options);
  ensure(num_codes >= 0, "Unicode normalization: ", utf8proc_errmsg(num_codes));
  for (utf8proc_ssize_t i = 0; i < num_codes; ++i)
    append_char(out, static_cast<char32_t>(codes[static_cast<size_t>(i)]));
}

}  // namespace

bool is_whitespace(char32_t code) {
  return (code >= 0x09 && code <= 0x0D) || code == 0x20 || code == 0x85 || code == 0xA0 || code == 0x1680 ||
         (code >= 0x2000 && code <= 0x200A) || code == 0x2028 || code == 0x2029 || code == 0x202F ||
         code == 0x205F || code == 0x3000;
}

bool is_number(char32_t code) {
  if (code < 0x80) return code >= '0' && code <= '9';
  const utf8proc_category_t c = category(code);
  return c == UTF8PROC_CATEGORY_ND || c == UTF8PROC_CATEGORY_NL || c == UTF8PROC_CATEGORY_NO;
}

bool is_punctuation(char32_t code) {
  if (code < 0x80) {
    return (code >= '!' && code <= '/') || (code >= ':' && code <= '@') || (code >= '[' && code <= '`') ||
           (code >= '{' && code <= '~');
  }
  const utf8proc_category_t c = category(code);
  return c >= UTF8PROC_CATEGORY_PC && c <= UTF8PROC_CATEGORY_PO;
}

bool is_mark(char32_t code) {
  if (code < 0x80) return false;
  const utf8proc_category_t c = category(code);
  return c == UTF8PROC_CATEGORY_MN || c == UTF8PROC_CATEGORY_MC || c == UTF8PROC_CATEGORY_ME;
}

bool is_nonspacing_mark(char32_t code) { return category(code) == UTF8PROC_CATEGORY_MN; }

bool is_control_or_private(char32_t code) {
  const utf8proc_category_t c = category(code);
  return c == UTF8PROC_CATEGORY_CC || c == UTF8PROC_CATEGORY_CF || c == UTF8PROC_CATEGORY_CO;
}

std::string to_lowercase(std::string_view text) {
  std::string lower;
  lower.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const Char c = read_char(text, at);
    if (c.code == 0x130) {
      lower += "i\xCC\x87";  // the only character with a full lowercase mapping of two: i and U+0307
    } else {
      append_char(lower, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c.code))));
    }
    at += c.bytes;
  }
  return lower;
}

size_t grapheme_end(std::string_view text, size_t at) {
  Char left = read_char(text, at);
  utf8proc_int32_t state = 0;
  for (at += left.bytes; at < text.size();) {
    const Char right = read_char(text, at);
    // Neighbors in ASCII are separate, except CR LF.
    const bool separate =
        left.code < 0x80 && right.code < 0x80
            ? left.code != '\r' || right.code != '\n'
            : utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(left.code),
                                               static_cast<utf8proc_int32_t>(right.code), &state);
    if (separate) break;
    at += right.bytes;
    left = right;
  }
  return at;
}

void normalize(std::string& text, NormalForm form) {
  // ASCII characters never change, and compose only as the first character. So it suffices to normalize runs
  // of other characters, each with the preceding ASCII character.
  std::string out;
  size_t copied = 0;
  for (size_t at = 0; at < text.size();) {
    if (is_ascii(text[at])) {
      ++at;
      continue;
    }
    const size_t begin = at > copied ? at - 1 : at;
    while (at < text.size() && !is_ascii(text[at])) ++at;
    if (out.empty()) out.reserve(text.size());
    out.append(text, copied, begin - copied);
    append_normalized(std::string_view(text).substr(begin, at - begin), form, out);
    copied = at;
  }
  if (copied == 0) return;
  out.append(text, copied);
  text = std::move(out);
}

}  // namespace attend::tokenizer
