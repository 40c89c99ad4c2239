#include "attend/grammar/check_schema.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "attend/base/error.h"
#include "attend/checkpoint/parse_json.h"
#include "attend/grammar/pattern.h"

namespace attend {
namespace {

// Keywords that xgrammar 0.2.8 ignores, found by sampling texts of schemas with each keyword.
constexpr std::string_view kNotKept[] = {"not",
                                         "if",
                                         "then",
                                         "else",
                                         "contains",
                                         "minContains",
                                         "maxContains",
                                         "dependentRequired",
                                         "dependentSchemas",
                                         "dependencies",
                                         "$dynamicRef",
                                         "$recursiveRef"};
// Keywords that constrain a value further. They are ignored next to a keyword that defines the value
// completely.
constexpr std::string_view kConstraints[] = {"$ref",
                                             "enum",
                                             "const",
                                             "anyOf",
                                             "oneOf",
                                             "allOf",
                                             "properties",
                                             "required",
                                             "items",
                                             "prefixItems",
                                             "minimum",
                                             "maximum",
                                             "multipleOf",
                                             "minItems",
                                             "maxItems",
                                             "minLength",
                                             "maxLength",
                                             "pattern",
                                             "format",
                                             "exclusiveMinimum",
                                             "minProperties",
                                             "maxProperties",
                                             "propertyNames",
                                             "uniqueItems",
                                             "exclusiveMaximum",
                                             "type",
                                             "contains",
                                             "not",
                                             "additionalProperties",
                                             "patternProperties"};
constexpr std::string_view kSelfContainedKeywords[] = {"$ref", "const", "enum", "anyOf", "oneOf", "allOf"};
// Keywords of numbers and strings, which are ignored without a type.
constexpr std::string_view kNeedType[] = {"minimum",          "maximum",    "exclusiveMinimum",
                                          "exclusiveMaximum", "multipleOf", "minLength",
                                          "maxLength",        "pattern",    "format"};

[[noreturn]] void reject(const std::string& where, std::string_view keyword, std::string_view why) {
  fail(ErrorCode::kUnsupported, where, ": \"", keyword, "\" ", why);
}

bool has_type(const OrderedJson& value, std::string_view type) {
  if (type == "string") return value.is_string();
  if (type == "number") return value.is_number();
  if (type == "integer") return value.is_number_integer();
  if (type == "boolean") return value.is_boolean();
  if (type == "null") return value.is_null();
  return type == "object" ? value.is_object() : type == "array" && value.is_array();
}

bool has_any_type(const OrderedJson& value, const OrderedJson& types) {
  if (types.is_string()) return has_type(value, types.get<std::string>());
  return std::any_of(types.begin(), types.end(), [&](const OrderedJson& type) {
    return type.is_string() && has_type(value, type.get<std::string>());
  });
}

// Returns true if all listed values have the type, so that the type adds no constraint.
bool is_type_redundant(const OrderedJson& schema) {
  const auto type = schema.find("type");
  if (const auto values = schema.find("enum"); values != schema.end())
    return values->is_array() && std::all_of(values->begin(), values->end(), [&](const OrderedJson& value) {
             return has_any_type(value, *type);
           });
  const auto value = schema.find("const");
  return value != schema.end() && has_any_type(*value, *type);
}

bool is_string(const OrderedJson& value) { return value.is_string(); }
bool is_count(const OrderedJson& value) { return value.is_number_unsigned(); }
bool is_list_of_strings(const OrderedJson& value) {
  return value.is_array() && std::all_of(value.begin(), value.end(), is_string);
}

// Keywords with values that xgrammar does not check, or rejects without a name.
struct KeywordValue {
  std::string_view keyword;
  bool (*accepts)(const OrderedJson& value);
  std::string_view expected;
};
constexpr KeywordValue kKeywordValues[] = {
    {"required", is_list_of_strings, "a list of strings"},
    {"pattern", is_string, "a string"},
    {"format", is_string, "a string"},
    {"minLength", is_count, "an integer from 0"},
    {"maxLength", is_count, "an integer from 0"},
    {"minItems", is_count, "an integer from 0"},
    {"maxItems", is_count, "an integer from 0"},
};

void check_one(const OrderedJson& schema, const std::string& where) {
  for (const auto& [keyword, accepts, expected] : kKeywordValues)
    if (const auto value = schema.find(keyword); value != schema.end() && !accepts(*value))
      fail(ErrorCode::kInvalidArgument, where, ": \"", keyword, "\" ", excerpt(*value), ": expected ",
           expected);
  for (const std::string_view keyword : kNotKept)
    if (schema.contains(keyword)) reject(where, keyword, "is not supported in grammars");
  if (const auto unique = schema.find("uniqueItems"); unique != schema.end() && *unique == true)
    reject(where, "uniqueItems", "is not supported in grammars");
  if (const auto all = schema.find("allOf"); all != schema.end() && all->is_array() && all->size() > 1)
    reject(where, "allOf", "of several schemas is not supported in grammars");
  if (const auto ref = schema.find("$ref"); ref != schema.end() && ref->is_string())
    if (const auto to = ref->get<std::string>(); to != "#" && !to.starts_with("#/"))
      reject(where, "$ref",
             "of " + excerpt(*ref) + ": expected a path within the schema, such as #/$defs/name");
  for (const std::string_view keyword : kSelfContainedKeywords) {
    if (!schema.contains(keyword)) continue;
    for (const std::string_view other : kConstraints)
      if (other != keyword && schema.contains(other) && !(other == "type" && is_type_redundant(schema)))
        reject(where, other, "together with \"" + std::string(keyword) + "\" is not supported in grammars");
    break;
  }
  if (!schema.contains("type"))
    for (const std::string_view keyword : kNeedType)
      if (schema.contains(keyword)) reject(where, keyword, "without a \"type\" is not supported in grammars");
  if (schema.contains("pattern"))
    for (const char* length : {"minLength", "maxLength"})
      if (schema.contains(length))
        reject(where, length, "together with \"pattern\" is not supported in grammars");
  const auto required = schema.find("required"), properties = schema.find("properties");
  if (required != schema.end() && required->is_array())
    for (const OrderedJson& name : *required)
      if (name.is_string() && (properties == schema.end() || !properties->contains(name.get<std::string>())))
        reject(where, "required", "names " + excerpt(name) + ", which is not one of its \"properties\"");
}

std::string escape_pattern(const std::string& pattern, const std::string& where, std::string_view keyword) {
  try {
    return json_string_regex(pattern);
  } catch (const Error& error) {
    reject(where, keyword, error.what());
  }
}

// Replaces patterns; see check_schema().
void escape_patterns(OrderedJson& schema, const std::string& where) {
  if (const auto pattern = schema.find("pattern"); pattern != schema.end() && pattern->is_string()) {
    const std::string regex = escape_pattern(pattern->get<std::string>(), where, "pattern");
    // xgrammar compiles no empty pattern.
    if (regex.empty()) {
      schema.erase("pattern");
      schema["maxLength"] = 0;
    } else {
      *pattern = regex;
    }
  }
  const auto by_pattern = schema.find("patternProperties");
  if (by_pattern == schema.end() || !by_pattern->is_object()) return;
  OrderedJson escaped = OrderedJson::object();
  for (const auto& item : by_pattern->items()) {
    std::string regex = escape_pattern(item.key(), where, "patternProperties");
    if (regex.empty())
      reject(where, "patternProperties", "with an empty pattern is not supported in grammars");
    escaped[std::move(regex)] = item.value();
  }
  *by_pattern = std::move(escaped);
}

void check_at(OrderedJson& schema, const std::string& where) {
  if (!schema.is_object()) return;  // true and false; xgrammar rejects the rest
  check_one(schema, where);
  for (const char* named_schemas_key : {"properties", "patternProperties", "$defs", "definitions"})
    if (const auto found = schema.find(named_schemas_key); found != schema.end() && found->is_object())
      for (const auto& item : found->items())
        check_at(item.value(), where + '/' + named_schemas_key + '/' + item.key());
  for (const char* single_schema_key :
       {"items", "additionalProperties", "propertyNames", "unevaluatedProperties"})
    if (const auto found = schema.find(single_schema_key); found != schema.end())
      check_at(*found, where + '/' + single_schema_key);
  for (const char* schema_list_key : {"anyOf", "oneOf", "allOf", "prefixItems"})
    if (const auto found = schema.find(schema_list_key); found != schema.end() && found->is_array())
      for (size_t i = 0; i < found->size(); ++i)
        check_at((*found)[i], where + '/' + schema_list_key + '/' + std::to_string(i));
  escape_patterns(schema, where);
}

void check_tag(OrderedJson& part) {
  if (part.is_object())
    if (const auto schema = part.find("json_schema"); schema != part.end()) return check_at(*schema, "#");
  if (part.is_structured())
    for (OrderedJson& inner : part) check_tag(inner);
}

OrderedJson read_json(const std::string& text, const std::string& what) {
  try {
    return parse_ordered_json(text, what);
  } catch (const Error& error) {
    fail(ErrorCode::kInvalidArgument, error.what());
  }
}

}  // namespace

std::string check_schema(const std::string& schema) {
  OrderedJson json = read_json(schema, "the schema");
  check_at(json, "#");
  return json.dump();
}

std::string check_structural_tag(const std::string& tag) {
  OrderedJson json = read_json(tag, "the tag");
  check_tag(json);
  return json.dump();
}

}  // namespace attend
