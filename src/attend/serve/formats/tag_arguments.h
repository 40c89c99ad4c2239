// Arguments that a model writes as text elements: converts each value to JSON by the tool's schema.
#pragma once

#include <string>
#include <string_view>

#include "attend/serve/json/fields.h"

namespace attend::serve {

// Returns the JSON of a parameter's text. `schema`: the tool's parameters. The type is looked up in type
// (a name or a list), anyOf, oneOf, allOf, enum, const and $ref. A text that no other type accepts is a
// string.
std::string tag_value_to_json(std::string_view text, std::string_view key, const Json& schema);

// Returns the JSON that a Python or JSON literal means, or "" if the text is not one literal.
std::string literal_to_json(std::string_view text);

}  // namespace attend::serve
