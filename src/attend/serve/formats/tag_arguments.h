// Arguments that a model writes as text elements: converts each value to JSON by the tool's schema.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "attend/serve/formats/tool_format.h"
#include "attend/serve/json/fields.h"

namespace attend::serve {

// Returns the JSON of a parameter's text. `schema`: the tool's parameters. The type is looked up in type
// (a name or a list), anyOf, oneOf, allOf, enum, const and $ref. A text that no other type accepts is a
// string.
std::string tag_value_to_json(std::string_view text, std::string_view key, const Json& schema);

// Element of kElements: key_open KEY key_close CONTENT value_close KEY key_close.
struct Element {
  std::string_view key, content;
  size_t size = 0;  // bytes of the element
};
// Returns the element that the text begins with, or no value if its closing tag is missing. `end`: place
// where elements end without one, or npos.
std::optional<Element> first_element(std::string_view text, const ToolFormat::Tags& tags, size_t end);
// Returns the JSON of an element of kElements. Elements within it are members of an object, or items of a
// list if the schema has a list there or all of them are named "item".
std::string element_to_json(const Element& element, const ToolFormat::Tags& tags, const Json& schema);

// Returns the part of the schema `root` that a reference such as "#/$defs/name" names, or null.
const Json* resolve_reference(const Json& reference, const Json& root);

// Returns the JSON that a Python or JSON literal means, or "" if the text is not one literal.
std::string literal_to_json(std::string_view text);

}  // namespace attend::serve
