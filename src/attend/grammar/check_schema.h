// What a JSON schema asks for that its grammar would not keep.
#pragma once

#include <string>

namespace attend {

// Throws Error(kInvalidArgument) for what is no schema, and Error(kUnsupported) naming the keyword that
// xgrammar reads over, and where it stands. Unknown words, which JSON Schema ignores, are ignored.
void check_schema(const std::string& schema);
// The same of each schema in a structural tag.
void check_structural_tag(const std::string& tag);

}  // namespace attend
