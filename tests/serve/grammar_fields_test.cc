// Grammar fields of the APIs of OpenAI, SGLang and vLLM.
#include "attend/serve/protocols/fields/grammar_fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace attend::serve {
namespace {

using ::testing::HasSubstr;

std::optional<RequestedGrammar> requested_grammar(const std::string& body) {
  const Json json = parse_body(body);
  return read_grammar(Fields(json));
}

Grammar grammar_in(const std::string& body) { return requested_grammar(body).value().grammar; }

std::string grammar_error(const std::string& body) {
  try {
    requested_grammar(body);
  } catch (const ApiError& error) {
    EXPECT_EQ(error.status, 400);
    return error.param + ": " + error.message;
  }
  return "";
}

TEST(GrammarFields, ReadsTheFieldsOfOpenAi) {
  EXPECT_EQ(grammar_in(R"({"response_format": {"type": "json_object"}})"), json_object_grammar());
  const auto requested = requested_grammar(R"({"response_format": {"type": "json_schema", "json_schema":
    {"name": "x", "strict": true, "schema": {"type": "object", "properties": {"b": {}, "a": {}}}}}})");
  EXPECT_EQ(requested->grammar,
            (Grammar{GrammarKind::kJsonSchema, R"({"type":"object","properties":{"b":{},"a":{}}})"}))
      << "keys keep their order";
  EXPECT_EQ(requested->param, "response_format");
  EXPECT_FALSE(requested_grammar(R"({"response_format": {"type": "text"}})"));
  EXPECT_FALSE(requested_grammar(R"({"response_format": null})"));
}

TEST(GrammarFields, ReadsTheFieldsOfSglang) {
  EXPECT_EQ(grammar_in(R"({"json_schema": "{\"type\": \"null\"}"})"),
            (Grammar{GrammarKind::kJsonSchema, R"({"type": "null"})"}));
  EXPECT_EQ(grammar_in(R"({"regex": "a+"})"), (Grammar{GrammarKind::kRegex, "a+"}));
  EXPECT_EQ(grammar_in(R"({"ebnf": "root ::= \"a\""})"), (Grammar{GrammarKind::kEbnf, "root ::= \"a\""}));
  EXPECT_EQ(grammar_in(R"({"structural_tag": "{}"})").kind, GrammarKind::kStructuralTag);
  const Grammar older = grammar_in(R"({"response_format": {"type": "structural_tag", "triggers": ["<f"],
    "structures": [{"begin": "<f>", "schema": {"type": "null"}, "end": "</f>"}]}})");
  EXPECT_EQ(
      older.text,
      R"({"type":"structural_tag","format":{"type":"triggered_tags","triggers":["<f"],"tags":[{"type":"tag",)"
      R"("begin":"<f>","content":{"type":"json_schema","json_schema":{"type":"null"}},"end":"</f>"}]}})");
}

TEST(GrammarFields, ReadsTheFieldsOfVllm) {
  EXPECT_EQ(grammar_in(R"({"guided_json": {"type": "null"}})").text, R"({"type":"null"})");
  EXPECT_EQ(grammar_in(R"({"guided_regex": "a+"})"), (Grammar{GrammarKind::kRegex, "a+"}));
  EXPECT_EQ(grammar_in(R"({"guided_grammar": "x"})"), (Grammar{GrammarKind::kEbnf, "x"}));
  EXPECT_EQ(grammar_in(R"({"guided_choice": ["a\"b", "c\n"]})").text, R"(root ::= "a\"b" | "c\x0a")");
  EXPECT_EQ(grammar_in(R"({"structured_outputs": {"choice": ["a"]}})"), choice_grammar({{"a"}}));
  EXPECT_EQ(grammar_in(R"({"structured_outputs": {"json": {"type": "null"}, "regex": null}})").text,
            R"({"type":"null"})");
  EXPECT_EQ(grammar_in(R"({"structured_outputs": {"json_object": true}})"), json_object_grammar());
}

TEST(GrammarFields, IgnoresEmptyFields) {
  EXPECT_FALSE(requested_grammar(
      R"({"regex": "", "guided_choice": [], "json_schema": null, "structured_outputs": {}})"));
}

TEST(GrammarFields, NamesInvalidFields) {
  EXPECT_THAT(grammar_error(R"({"regex": 5})"), HasSubstr("regex 5: expected a string"));
  EXPECT_THAT(grammar_error(R"({"guided_json": 5})"), HasSubstr("expected a JSON schema"));
  EXPECT_THAT(grammar_error(R"({"response_format": {"type": "json_schema"}})"),
              HasSubstr("json_schema: missing"));
  EXPECT_THAT(grammar_error(R"({"response_format": {"type": "json_schema", "json_schema": {"schema": 5}}})"),
              HasSubstr("expected a JSON schema, an object"));
  EXPECT_THAT(grammar_error(R"({"structured_outputs": {"regex": "a", "choice": ["b"]}})"),
              HasSubstr("structured_outputs.regex already sets"));
  EXPECT_THAT(grammar_error(R"({"guided_choice": [1]})"), HasSubstr("guided_choice holds 1"));
}

}  // namespace
}  // namespace attend::serve
