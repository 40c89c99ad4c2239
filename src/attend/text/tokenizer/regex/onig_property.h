// Oniguruma's character class names as items of a PCRE2 set.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace attend::tokenizer {

// Property White_Space. PCRE2's \s also includes U+180E, which Unicode 6.3 removed.
inline constexpr std::string_view kSpaceItems =
    R"(\x{09}-\x{0D}\x{20}\x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})";
// Oniguruma's \w in a set: letters, marks, decimal digits and connectors.
inline constexpr std::string_view kWordItems = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";
// Additional characters of \w and \b outside of sets: the superscripts and fractions of Latin-1.
inline constexpr std::string_view kSingleWordItems = R"(\x{B2}\x{B3}\x{B9}\x{BC}-\x{BE})";
inline constexpr std::string_view kHexItems = "0-9A-Fa-f";

// Returns the items of \p{name}: general categories with short and long names, a few binary properties,
// scripts. Case, spaces, hyphens and underscores of the name are ignored. Returns no value for an invalid
// name.
std::optional<std::string> property_items(std::string_view name);

// Returns the items of [[:name:]].
std::optional<std::string> posix_items(std::string_view name);

}  // namespace attend::tokenizer
