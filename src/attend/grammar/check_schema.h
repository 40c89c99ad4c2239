// Checks a JSON schema for constraints that its compiled grammar would ignore.
#pragma once

#include <string>

namespace attend {

// Returns the schema with patterns that xgrammar compiles correctly: it copies a pattern into the grammar of
// the JSON text, where quotes, backslashes and control characters have escapes (see pattern.h).
// Throws Error(kInvalidArgument) for an invalid schema, and Error(kUnsupported) that names the keyword that
// xgrammar ignores and its path. Unknown keywords, which JSON Schema ignores, are ignored.
std::string check_schema(const std::string& schema);
// Like check_schema(), for each schema of a structural tag.
std::string check_structural_tag(const std::string& tag);

}  // namespace attend
