// Translates a pattern of Oniguruma (as the `tokenizers` library uses it) into one of PCRE2 with the same
// meaning.
//
// The two agree on most of what tokenizers contain. They differ in \s \w \h \v and \b, in POSIX brackets and
// property names, in sets (Oniguruma nests and intersects them), in (?m), in the reach of (?i), in {,n} and
// in what a second quantifier means; those are rewritten. What can not be is refused.
#pragma once

#include <string>
#include <string_view>

namespace attend::tokenizer {

// `pattern`: valid UTF-8. `where` begins the message of the Error(kUnsupported) for a construct that has no
// translation: back-references, calls, callouts, absent groups, extended mode, text segments.
std::string onig_to_pcre2(std::string_view pattern, std::string_view where);

}  // namespace attend::tokenizer
