#include "attend/serve/formats/tag_arguments.h"

#include <algorithm>
#include <vector>

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
        : value.is_binary()  ? "integer"  // of more than 64 bits
        : value.is_number()  ? "number"
        : value.is_null()    ? "null"
        : value.is_array()   ? "array"
                             : "object");
  }
  bool accept(const Json& value) const {
    if (value.is_string()) return text;
    if (value.is_boolean()) return boolean;
    if (value.is_number_integer() || value.is_binary()) return integer;
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

// Schemas that are visited for one value, since references may be cyclic and branch.
constexpr int kMaxSchemas = 256;

void add_types(const Json& schema, const Json& root, int& num_left, Types& types) {
  if (!schema.is_object() || --num_left < 0) return;
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
      for (const Json& choice : *choices) add_types(choice, root, num_left, types);
  if (const Json* reference = member(schema, "$ref"))
    if (const Json* target = resolve_reference(*reference, root)) add_types(*target, root, num_left, types);
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

const Json* resolve_reference(const Json& reference, const Json& root) {
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

namespace {

// Returns the JSON of a text. `property`: the schema of the value, a part of the schema `root`; null:
// unknown.
std::string text_to_json(std::string_view text, const Json* property, const Json& schema) {
  Types types;
  if (property) {
    int num_left = kMaxSchemas;
    add_types(*property, schema, num_left, types);
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
  // The parser reads an integer of more than 64 bits as a float.
  const bool is_big = value.is_number_float() && json.find_first_of(".eE") == json.npos;
  return types.text && !types.accept(is_big ? Json(0) : value) ? as_text() : json;
}

// Returns the schema of a member, or of the items of a list if `key` is kItems; null: unknown.
const Json* part_schema(const Json* schema, std::string_view key, bool is_item, const Json& root,
                        int& num_left) {
  if (!schema || !schema->is_object() || --num_left < 0) return nullptr;
  const Json* properties = member(*schema, "properties");
  const Json* found = is_item ? member(*schema, "items") : properties ? member(*properties, key) : nullptr;
  if (!found && !is_item) found = member(*schema, "additionalProperties");
  if (found && found->is_object()) return found;
  for (const char* choice : {"anyOf", "oneOf", "allOf"})
    if (const Json* choices = member(*schema, choice); choices && choices->is_array())
      for (const Json& one : *choices)
        if (const Json* part = part_schema(&one, key, is_item, root, num_left)) return part;
  const Json* reference = member(*schema, "$ref");
  return reference ? part_schema(resolve_reference(*reference, root), key, is_item, root, num_left) : nullptr;
}

// Returns the text from the next opening tag on, or "".
std::string_view from_next_open(std::string_view text, const ToolFormat::Tags& tags) {
  for (size_t at = text.find(tags.key_open); at != text.npos; at = text.find(tags.key_open, at + 1))
    if (!text.substr(at).starts_with(tags.value_close)) return text.substr(at);
  return {};
}

// Returns the first of the elements within an element. The end of the text closes the last one.
Element first_part(std::string_view text, const ToolFormat::Tags& tags) {
  if (const auto element = first_element(text, tags, text.size())) return *element;
  return {.key = text.substr(tags.key_open.size()), .content = "", .size = text.size()};
}

// `property`: the schema of the value, or null.
std::string content_to_json(std::string_view content, const ToolFormat::Tags& tags, const Json* property,
                            const Json& root, int level) {
  constexpr int kMaxLevels = 32;  // deeper elements are text
  Types types;
  int num_left = kMaxSchemas;
  if (property) add_types(*property, root, num_left, types);
  const bool is_text = types.text && !types.array && !types.object;
  const bool is_list = types.array && !types.object && !types.text;
  const bool is_object = types.object && !types.array && !types.text;
  const std::string_view start = trim_front(content);
  if (start.empty() && (is_list || is_object)) return is_list ? "[]" : "{}";
  if (is_text || level > kMaxLevels || !start.starts_with(tags.key_open) ||
      start.starts_with(tags.value_close))
    return text_to_json(content, property, root);
  std::vector<Element> parts;
  bool all_items = true;
  for (std::string_view rest = start; !rest.empty(); rest = from_next_open(rest, tags)) {
    parts.push_back(first_part(rest, tags));
    all_items &= parts.back().key == "item";
    rest.remove_prefix(parts.back().size);
  }
  const bool list = is_list || (all_items && !is_object);
  std::string json = list ? "[" : "{";
  for (const Element& part : parts) {
    if (json.size() > 1) json += ", ";
    if (!list) {
      append_quoted(part.key, json);
      json += ": ";
    }
    num_left = kMaxSchemas;
    json += content_to_json(part.content, tags, part_schema(property, part.key, list, root, num_left), root,
                            level + 1);
  }
  return json + (list ? ']' : '}');
}

}  // namespace

std::string tag_value_to_json(std::string_view text, std::string_view key, const Json& schema) {
  const Json* properties = member(schema, "properties");
  return text_to_json(text, properties ? member(*properties, key) : nullptr, schema);
}

std::optional<Element> first_element(std::string_view text, const ToolFormat::Tags& tags, size_t end) {
  // The marker itself may contain key_close.
  const size_t key_end = text.find(tags.key_close, tags.key_open.size());
  if (key_end == text.npos) return std::nullopt;
  const size_t begin = key_end + tags.key_close.size();
  std::vector<std::string_view> open = {text.substr(tags.key_open.size(), key_end - tags.key_open.size())};
  for (size_t at = begin;;) {
    const size_t tag = text.find(tags.key_open, at);
    if (tag >= end && end != text.npos)
      return Element{open.front(), text.substr(begin, std::max(begin, end) - begin), std::max(begin, end)};
    if (tag == text.npos) return std::nullopt;
    const size_t tag_end = text.find(tags.key_close, tag + tags.key_open.size());
    if (tag_end == text.npos) return std::nullopt;
    at = tag_end + tags.key_close.size();
    const bool closes = text.substr(tag).starts_with(tags.value_close);
    const size_t name = tag + (closes ? tags.value_close : tags.key_open).size();
    const std::string_view key = text.substr(name, tag_end - name);
    if (!closes) open.push_back(key);
    const auto own = closes ? std::ranges::find(open.rbegin(), open.rend(), key) : open.rend();
    if (own == open.rend()) continue;
    // It closes the elements within it, too.
    open.erase(own.base() - 1, open.end());
    if (open.empty())
      return Element{text.substr(tags.key_open.size(), key_end - tags.key_open.size()),
                     text.substr(begin, tag - begin), at};
  }
}

std::string element_to_json(const Element& element, const ToolFormat::Tags& tags, const Json& schema) {
  int num_left = kMaxSchemas;
  return content_to_json(element.content, tags, part_schema(&schema, element.key, false, schema, num_left),
                         schema, 0);
}

}  // namespace attend::serve
