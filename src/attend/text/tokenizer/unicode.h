// Character properties and mappings as defined by the `tokenizers` library (Rust's char).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace attend::tokenizer {

bool is_whitespace(char32_t code);          // property White_Space
bool is_number(char32_t code);              // general categories Nd, Nl, No
bool is_punctuation(char32_t code);         // ASCII punctuation, or general category P*
bool is_mark(char32_t code);                // general categories Mn, Mc, Me
bool is_nonspacing_mark(char32_t code);     // general category Mn
bool is_control_or_private(char32_t code);  // general categories Cc, Cf, Co

// Returns the full, context-free lowercase mapping of valid UTF-8 text (final sigma is not special).
std::string to_lowercase(std::string_view text);

// Returns the end of the extended grapheme cluster that starts at byte `at` of valid UTF-8 text.
size_t grapheme_end(std::string_view text, size_t at);

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };

// Converts valid UTF-8 text to a Unicode normal form.
void normalize(std::string& text, NormalForm form);

}  // namespace attend::tokenizer
