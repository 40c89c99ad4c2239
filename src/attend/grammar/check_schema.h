// Checks a JSON schema for constraints that its compiled grammar would ignore.
#pragma once

#include <string>

namespace attend {

// Throws Error(kInvalidArgument) for an invalid schema, and Error(kUnsupported) that names the keyword that
// xgrammar ignores and its path. Unknown keywords, which JSON Schema ignores, are ignored.
void check_schema(const std::string& schema);
// Like check_schema(), for each schema of a structural tag.
void check_structural_tag(const std::string& tag);

}  // namespace attend
