#include "attend/serve/formats/tag_arguments.h"

#include <algorithm>

#include "attend/serve/formats/held_back.h"
#include "attend/serve/formats/literal_reader.h"
#include "attend/serve/json/json_text.h"

namespace attend::serve {
namespace {

// JSON types that a schema accepts.
struct Types {
  bool text = false, number = false, integer = false, boolean = false, null = false, array = false,
       object = false;
  bool any() const { return text || number || integer || boolean || null || array || object; }

  void add(std::string_view name) {
    text |= name == "string";
    number |= name == "number";
    integer |= name == "integer" || name == "number";
    boolean |= name == "boolean";
    null |= name == "null";
    array |= name == "array";
    object |= name == "object";
  }
  void add_type(const Json& value) {
    add(value.is_string()    ? "string"
        : value.is_boolean() ? "boolean"
        : value.is_number()  ? "number"
        : value.is_null()    ? "null"
        : value.is_array()   ? "array"
                             : "object");
  }
  bool accept(const Json& value) const {
    if (value.is_string()) return text;
    if (value.is_boolean()) return boolean;
    if (value.is_number_integer()) return integer;
    if (value.is_number()) return number;
    if (value.is_null()) return null;
    return value.is_array() ? array : object;
  }
};

const Json* member(const Json& object, std::string_view key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(std::string(key));
  return found == object.end() ? nullptr : &*found;
}

// Resolves references within the document: "#/$defs/name".
const Json* resolve(const Json& reference, const Json& root) {
  if (!reference.is_string()) return nullptr;
  const std::string text = reference.get<std::string>();
  if (!text.starts_with("#/")) return nullptr;
  const Json* at = &root;
  for (size_t begin = 2; at && begin <= text.size();) {
    const size_t end = std::min(text.find('/', begin), text.size());
    at = member(*at, std::string_view(text).substr(begin, end - begin));
    begin = end + 1;
  }
  return at;
}

void add_types(const Json& schema, const Json& root, int level, Types& types) {
  constexpr int kMaxLevels = 16;  // of references that may be cyclic
  if (!schema.is_object() || level > kMaxLevels) return;
  if (const Json* type = member(schema, "type")) {
    if (type->is_string()) types.add(type->get<std::string>());
    if (type->is_array())
      for (const Json& one : *type)
        if (one.is_string()) types.add(one.get<std::string>());
    return;
  }
  if (const Json* value = member(schema, "const")) types.add_type(*value);
  if (const Json* values = member(schema, "enum"); values && values->is_array())
    for (const Json& value : *values) types.add_type(value);
  for (const char* key : {"anyOf", "oneOf", "allOf"})
    if (const Json* choices = member(schema, key); choices && choices->is_array())
      for (const Json& choice : *choices) add_types(choice, root, level + 1, types);
  if (const Json* reference = member(schema, "$ref"))
    if (const Json* target = resolve(*reference, root)) add_types(*target, root, level + 1, types);
  if (!types.any() && schema.contains("properties")) types.object = true;
  if (!types.any() && schema.contains("items")) types.array = true;
}

// Returns true if the schema lists the text as a value.
bool is_listed(const Json& schema, std::string_view text) {
  const Json* value = member(schema, "const");
  if (value && value->is_string() && *value == text) return true;
  const Json* values = member(schema, "enum");
  return values && values->is_array() &&
         std::ranges::any_of(*values, [&](const Json& one) { return one.is_string() && one == text; });
}

}  // namespace

std::string literal_to_json(std::string_view text) {
  text = trim_front(text.substr(0, trimmed_size(text, text.size())));
  if (text.empty()) return {};
  if (Json::accept(text)) return std::string(text);
  // A line break ends the last word.
  LiteralReader reader;
  const size_t num_read = reader.push(std::string(text) + "\n");
  if (reader.state() != LiteralReader::State::kDone || num_read < text.size()) return {};
  return reader.release();
}

std::string tag_value_to_json(std::string_view text, std::string_view key, const Json& schema) {
  Types types;
  const Json* properties = member(schema, "properties");
  const Json* property = properties ? member(*properties, key) : nullptr;
  if (property) {
    add_types(*property, schema, 0, types);
    // Spaces around a value of a list are not part of it.
    const std::string_view inner = trim_front(text.substr(0, trimmed_size(text, text.size())));
    if (is_listed(*property, inner) && !is_listed(*property, text)) text = inner;
  }
  const auto as_text = [&] {
    std::string quoted;
    append_quoted(text, quoted);
    return quoted;
  };
  if (types.any() &&
      !(types.number || types.integer || types.boolean || types.null || types.array || types.object))
    return as_text();
  const std::string json = literal_to_json(text);
  if (json.empty()) return as_text();
  const Json value = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (value.is_string()) {
    // A word without quotes is text. Quoted text is unquoted only for a parameter that is not text.
    if (!text.starts_with('"') || types.text) return as_text();
    return json;
  }
  return types.text && !types.accept(value) ? as_text() : json;
}

}  // namespace attend::serve
