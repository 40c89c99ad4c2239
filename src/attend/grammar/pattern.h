// Pattern: a regular expression of a JSON schema (ECMA-262), as a tree.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "attend/grammar/code_points.h"

namespace attend {

struct PatternItem {
  // Characters, or alternatives if there are any.
  CodePoints characters;
  std::vector<std::vector<PatternItem>> alternatives;
  int min = 1;
  std::optional<int> max = 1;  // none: any number
};
using PatternSequence = std::vector<PatternItem>;

// Parses a pattern that is matched against a complete text, so that ^ and $ match at its ends only; anywhere
// else they are rejected. Lazy quantifiers and the names of groups are dropped. Throws
// Error(kInvalidArgument) for a malformed pattern, and Error(kUnsupported) that names what is not supported
// (assertions, back references, properties, ...), both with the position in characters, from 1.
std::vector<PatternSequence> parse_pattern(std::string_view pattern);

// Returns a regular expression for the text that JSON has between the quotes of a string that matches
// `pattern`: characters that JSON escapes are escaped there. It has only literals, classes without negation,
// groups and quantifiers. Throws like parse_pattern().
std::string json_string_regex(std::string_view pattern);
// Returns the same for a text that is not JSON.
std::string text_regex(std::string_view pattern);

}  // namespace attend
