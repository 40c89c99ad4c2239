// Translates an Oniguruma pattern (the dialect of the `tokenizers` library) to a PCRE2 pattern with the same
// meaning.
//
// The dialects agree on most of what tokenizers contain. The translation rewrites these differences: \s \w \h
// \v and \b, POSIX brackets and property names, nested and intersected sets, (?m), the scope of (?i), {,n}
// and the meaning of a second quantifier. Constructs without a translation are rejected.
#pragma once

#include <string>
#include <string_view>

namespace attend::tokenizer {

// `pattern`: valid UTF-8. `where`: prefix of the message of the Error(kUnsupported) for a construct without a
// translation: back-references, calls, callouts, absent groups, extended mode, text segments.
std::string onig_to_pcre2(std::string_view pattern, std::string_view where);

}  // namespace attend::tokenizer
