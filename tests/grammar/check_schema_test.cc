// Schema keywords that a grammar cannot enforce are rejected with keyword and path.
#include "attend/grammar/check_schema.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "attend/base/error.h"

namespace attend {
namespace {

using ::testing::HasSubstr;

std::string error_text(const std::string& schema) {
  try {
    check_schema(schema);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(CheckSchema, AcceptsPydanticSchemas) {
  EXPECT_EQ(
      error_text(R"({"$defs": {"Colour": {"enum": ["red", "green"], "title": "Colour", "type": "string"}},
    "properties": {"name": {"title": "Name", "type": "string", "minLength": 1},
                   "colour": {"$ref": "#/$defs/Color", "description": "of the door"},
                   "size": {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "null"}], "default": null},
                   "kind": {"const": "door", "type": "string"}},
    "required": ["name", "colour"], "type": "object", "additionalProperties": false})"),
      "");
  EXPECT_EQ(error_text("true"), "");
  EXPECT_EQ(error_text(R"({"properties": {"not": {"type": "string"}, "if": {"type": "null"}}})"), "")
      << "names of properties are no keywords";
  EXPECT_EQ(error_text(R"({"allOf": [{"type": "string"}], "x-made-up": 5})"), "");
}

TEST(CheckSchema, ReportsTheKeywordAndItsPath) {
  EXPECT_EQ(error_text(R"({"properties": {"a": {"items": {"not": {}}}}})"),
            R"(#/properties/a/items: "not" is not supported in grammars)");
  EXPECT_THAT(error_text(R"({"anyOf": [true, {"uniqueItems": true}]})"),
              HasSubstr("#/anyOf/1: \"uniqueItems\""));
  EXPECT_THAT(error_text(R"({"allOf": [{}, {}]})"), HasSubstr("\"allOf\" of several schemas"));
  EXPECT_THAT(error_text(R"({"$ref": "http://example.com/a.json"})"), HasSubstr("expected a path within"));
  EXPECT_THAT(error_text(R"({"$ref": "#/$defs/a", "minimum": 5})"),
              HasSubstr("\"minimum\" together with \"$ref\""));
  EXPECT_THAT(error_text(R"({"enum": [1, "a"], "type": "string"})"),
              HasSubstr("\"type\" together with \"enum\""));
  EXPECT_THAT(error_text(R"({"minimum": 5})"), HasSubstr("\"minimum\" without a \"type\""));
  EXPECT_THAT(error_text(R"~({"type": "string", "pattern": "^(?!a)"})~"), HasSubstr("\"pattern\" with (?!"));
  EXPECT_THAT(error_text(R"({"type": "string", "pattern": "a+", "maxLength": 3})"),
              HasSubstr("\"maxLength\""));
  EXPECT_THAT(error_text(R"({"type": "object", "required": ["a"]})"), HasSubstr("names \"a\""));
}

TEST(CheckSchema, ReportsTheExpectedValueOfAKeyword) {
  EXPECT_EQ(error_text(R"({"type": "object", "properties": {"a": {}}, "required": ["a", 1]})"),
            R"(#: "required" ["a",1]: expected a list of strings)");
  EXPECT_EQ(error_text(R"({"type": "object", "required": null})"),
            R"(#: "required" null: expected a list of strings)");
  for (const char* keyword : {"pattern", "format"})
    EXPECT_THAT(error_text(R"({"type": "string", ")" + std::string(keyword) + "\": 5}"),
                HasSubstr(": expected a string"));
  for (const char* keyword : {"minLength", "maxLength", "minItems", "maxItems"})
    for (const char* value : {"-1", "1.5", "null", "\"1\""})
      EXPECT_THAT(error_text(R"({"type": "string", ")" + std::string(keyword) + "\": " + value + "}"),
                  HasSubstr(": expected an integer from 0"));
  EXPECT_EQ(error_text(R"({"type": "string", "minLength": 0, "maxLength": 5, "format": "date"})"), "");
}

TEST(CheckSchema, ChecksSchemasOfStructuralTags) {
  EXPECT_NO_THROW(
      check_structural_tag(R"({"format": {"tags": [{"content": {"json_schema": {"type": "null"}}}]}})"));
  EXPECT_THROW(check_structural_tag(R"({"format": {"tags": [{"content": {"json_schema": {"not": {}}}}]}})"),
               Error);
}

TEST(CheckSchema, RejectsInvalidJson) {
  EXPECT_THAT(error_text("{"), HasSubstr("the schema"));
  EXPECT_THAT(error_text(std::string(100'000, '[')), HasSubstr("the schema"));
}

}  // namespace
}  // namespace attend
