// Parsers of streamed answers: parts do not depend on where the text is split.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "attend/serve/formats/reasoning.h"
#include "attend/serve/formats/tool_format.h"
#include "attend/serve/protocols/openai/replies.h"

namespace attend::serve {
namespace {

using ::testing::ElementsAre;
using PartKind = AnswerPart::Kind;

const std::vector<Tool>& test_tools() {
  static const std::vector<Tool> all = {
      {"get_weather", Json::parse(R"({"type": "object", "properties": {"city": {"type": "string"},
         "days": {"type": "integer"}, "where": {"type": "object"}}})")},
      {"now", Json::object()}};
  return all;
}

enum class Reader { kHermes, kLlama3, kQwen3Coder, kReasoning, kInsideReasoning, kReasoningThenHermes };

std::unique_ptr<AnswerParser> calls_of(std::string_view format) {
  return make_call_parser(parse_tool_format(format), test_tools());
}

std::unique_ptr<AnswerParser> make_reader(Reader reader) {
  switch (reader) {
    case Reader::kHermes:
      return calls_of("hermes");
    case Reader::kLlama3:
      return calls_of("llama3");
    case Reader::kQwen3Coder:
      return calls_of("qwen3_coder");
    case Reader::kReasoning:
      return make_reasoning_parser(parse_reasoning_format("qwen3"), false, make_text_parser);
    case Reader::kInsideReasoning:
      return make_reasoning_parser(parse_reasoning_format("qwen3"), true, make_text_parser);
    case Reader::kReasoningThenHermes:
      return make_reasoning_parser(
          parse_reasoning_format("qwen3"), false, [] { return calls_of("hermes"); },
          parse_tool_format("hermes").opens);
  }
  return nullptr;
}

// Parts of a streamed text. Consecutive parts of one kind are joined, as clients do.
std::vector<AnswerPart> joined_parts(Reader reader, const std::vector<std::string>& pieces) {
  const auto parser = make_reader(reader);
  AnswerParts all, parts;
  for (const std::string& piece : pieces) {
    parts.clear();
    parser->push(piece, parts);
    for (const AnswerPart& part : parts.all()) all.add(part.kind, part.text);
  }
  parts.clear();
  parser->finish(parts, /*complete=*/true);
  for (const AnswerPart& part : parts.all()) all.add(part.kind, part.text);
  return all.all();
}

AnswerPart text_part(const std::string& text) { return {PartKind::kText, text}; }
AnswerPart reasoning_part(const std::string& text) { return {PartKind::kReasoning, text}; }
AnswerPart call_part(const std::string& name) { return {PartKind::kCall, name}; }
AnswerPart arguments_part(const std::string& json) { return {PartKind::kArguments, json}; }

struct AnswerCase {
  Reader reader;
  std::string text;
  std::vector<AnswerPart> parts;
};

std::vector<AnswerCase> answer_cases() {
  const std::string weather =
      R"({"name": "get_weather", "arguments": {"city": "Zürich \"}\" é", "days": [1, {}]}})";
  const std::string json = R"({"city": "Zürich \"}\" é", "days": [1, {}]})";
  return {
      {Reader::kHermes, "Just text. ", {text_part("Just text. ")}},
      {Reader::kHermes,
       "Hm.\n<tool_call>\n" + weather + "\n</tool_call>",
       {text_part("Hm."), call_part("get_weather"), arguments_part(json)}},
      {Reader::kHermes,
       "<tool_call>" + weather + "</tool_call>\n<tool_call>\n{\"name\": \"now\"}\n</tool_call>\n",
       {call_part("get_weather"), arguments_part(json), call_part("now"), arguments_part("{}")}},
      {Reader::kHermes,
       R"(<tool_call>{"arguments": {"city": "a"}, "id": [1, "x"], "name": "get_weather"}</tool_call> done)",
       {call_part("get_weather"), arguments_part(R"({"city": "a"})"), text_part(" done")}},
      {Reader::kHermes,
       R"(<tool_call>{"name": "now", "arguments": "{\"a\": 1}"}</tool_call>)",
       {call_part("now"), arguments_part(R"({"a": 1})")}},
      {Reader::kHermes,
       R"(<tool_call>{"name": "now", "arguments": null})",
       {call_part("now"), arguments_part("{}")}},
      {Reader::kHermes, "a < b <tool <tool_call", {text_part("a < b <tool <tool_call")}},
      {Reader::kHermes,
       "so: <tool_call>{\"name\": \"other\", \"arguments\": {}}</tool_call> ",
       {text_part("so: <tool_call>{\"name\": \"other\", \"arguments\": {}}</tool_call> ")}},
      {Reader::kHermes, "x <tool_call> no JSON", {text_part("x <tool_call> no JSON")}},
      {Reader::kHermes, "<tool_call>{\"na", {text_part("<tool_call>{\"na")}},
      {Reader::kHermes,
       "<tool_call>{\"name\": \"now\", \"arguments\": {\"a\": \"b",
       {call_part("now"), arguments_part("{\"a\": \"b\"}")}},
      {Reader::kHermes,
       "<tool_call>{\"name\": \"now\"}<tool_call>{\"name\": \"now\"}</tool_call>",
       {call_part("now"), arguments_part("{}"), call_part("now"), arguments_part("{}")}},
      {Reader::kLlama3,
       R"({"name": "get_weather", "parameters": {"city": "a;b"}}; {"name": "now", "parameters": {}})",
       {call_part("get_weather"), arguments_part(R"({"city": "a;b"})"), call_part("now"),
        arguments_part("{}")}},
      {Reader::kLlama3,
       R"( <|python_tag|>{"name": "now", "parameters": {}})",
       {call_part("now"), arguments_part("{}")}},
      {Reader::kLlama3, "No call {\"name\": \"now\"}", {text_part("No call {\"name\": \"now\"}")}},
      {Reader::kLlama3, " {\"a\": 1}", {text_part(" {\"a\": 1}")}},
      {Reader::kLlama3,
       "{\"name\": \"other\", \"parameters\": {}}",
       {text_part("{\"name\": \"other\", \"parameters\": {}}")}},
      {Reader::kLlama3, "<|pyth", {text_part("<|pyth")}},
      {Reader::kLlama3,
       "{\"name\": \"now\"} and more",
       {call_part("now"), arguments_part("{}"), text_part("and more")}},
      {Reader::kQwen3Coder,
       "I look.\n<tool_call>\n<function=get_weather>\n<parameter=city>\nA "
       "\"b\"\nc\n</parameter>\n<parameter=days>\n3\n"
       "</parameter>\n<parameter=where>\n{\"x\": 1}\n</parameter>\n</function>\n</tool_call>",
       {text_part("I look."), call_part("get_weather"),
        arguments_part("{\"city\": \"A \\\"b\\\"\\nc\", \"days\": 3, \"where\": {\"x\": 1}}")}},
      {Reader::kQwen3Coder,
       "<tool_call>\n<function=now>\n</function>\n</"
       "tool_call>\n<tool_call>\n<function=get_weather>\n<parameter=city>\n7\n"
       "</parameter>\n</function>\n</tool_call>",
       {call_part("now"), arguments_part("{}"), call_part("get_weather"),
        arguments_part("{\"city\": \"7\"}")}},
      {Reader::kQwen3Coder,
       "<tool_call>\n<function=other>\n</function>\n</tool_call>",
       {text_part("<tool_call>\n<function=other>\n</function>\n</tool_call>")}},
      {Reader::kQwen3Coder,
       "<tool_call><function=get_weather><parameter=days>many</parameter></function>",
       {call_part("get_weather"), arguments_part("{\"days\": \"many\"}")}},
      {Reader::kReasoning,
       "<think>\nLet me see.\n\nYes </thin\n</think>\n\nThe answer",
       {reasoning_part("Let me see.\n\nYes </thin"), text_part("The answer")}},
      {Reader::kReasoning, "No thoughts <think>x</think>", {text_part("No thoughts <think>x</think>")}},
      {Reader::kReasoning, "<think></think>\nA", {text_part("A")}},
      {Reader::kReasoning, "<think>endless ", {reasoning_part("endless ")}},
      {Reader::kReasoning, "<thi", {text_part("<thi")}},
      {Reader::kInsideReasoning, "so it is\n</think> B ", {reasoning_part("so it is"), text_part("B ")}},
      {Reader::kInsideReasoning, "<think>again</think>C", {reasoning_part("again"), text_part("C")}},
      {Reader::kInsideReasoning, "never ends", {reasoning_part("never ends")}},
      {Reader::kReasoningThenHermes,
       "<think>A tool: <tool_call></think>\n<tool_call>{\"name\": \"now\"}</tool_call>",
       {reasoning_part("A tool: <tool_call>"), call_part("now"), arguments_part("{}")}},
  };
}

TEST(AnswerParsers, ReadCallsReasoningAndText) {
  for (const AnswerCase& one : answer_cases()) {
    SCOPED_TRACE(one.text);
    EXPECT_EQ(joined_parts(one.reader, {one.text}), one.parts);
  }
}

TEST(AnswerParsers, DoNotDependOnWhereTheTextIsSplit) {
  for (const AnswerCase& one : answer_cases()) {
    SCOPED_TRACE(one.text);
    for (size_t at = 0; at <= one.text.size(); ++at)
      ASSERT_EQ(joined_parts(one.reader, {one.text.substr(0, at), one.text.substr(at)}), one.parts)
          << "split at " << at;
    std::vector<std::string> bytes;
    for (const char c : one.text) bytes.emplace_back(1, c);
    EXPECT_EQ(joined_parts(one.reader, bytes), one.parts);
  }
}

// Random texts composed of the tokens that parsers search for.
TEST(AnswerParsers, DoNotDependOnRandomSplits) {
  const std::vector<std::string> atoms = {"<tool_call>",
                                          "</tool_call>",
                                          "\n",
                                          " ",
                                          "{\"name\": \"now\"",
                                          "}",
                                          "{",
                                          "\"",
                                          ",",
                                          "\"arguments\": ",
                                          "<think>",
                                          "</think>",
                                          "<function=now>",
                                          "</function>",
                                          "now",
                                          "<parameter=a>",
                                          "</parameter>",
                                          "\\",
                                          ":",
                                          "a",
                                          ";",
                                          "<|python_tag|>",
                                          "<",
                                          "é"};
  std::mt19937 random(7);
  for (int i = 0; i < 3000; ++i) {
    std::string text;
    for (size_t atom = random() % 14; atom > 0; --atom) text += atoms[random() % atoms.size()];
    for (const Reader reader :
         {Reader::kHermes, Reader::kLlama3, Reader::kQwen3Coder, Reader::kReasoningThenHermes}) {
      std::vector<std::string> pieces;
      for (size_t at = 0, size = 0; at < text.size(); at += size)
        pieces.push_back(text.substr(at, size = 1 + random() % 5));
      ASSERT_EQ(joined_parts(reader, pieces), joined_parts(reader, {text})) << text;
    }
  }
}

TEST(AnswerParsers, StreamArgumentsIncrementally) {
  const auto parser = make_reader(Reader::kHermes);
  AnswerParts parts;
  parser->push("<tool_call>{\"name\": \"get_weather\", \"arguments\": {\"ci", parts);
  EXPECT_THAT(parts.all(), ElementsAre(call_part("get_weather"), arguments_part("{\"ci")));
}

TEST(ChatAnswer, NumbersCallsAndWritesDeltas) {
  AnswerFormat format;
  format.tools = test_tools();
  format.tool_format = &parse_tool_format("hermes");
  ChatAnswer answer(format);
  std::vector<std::string> deltas;
  const std::string whole =
      "A <tool_call>{\"name\": \"now\"}</tool_call><tool_call>{\"name\": \"get_weather\", \"arguments\": "
      "{\"days\": 1}}</tool_call>";
  for (const AnswerDelta& delta : answer.push(whole, ChatAnswer::End::kComplete)) {
    JsonText json;
    json.begin_object();
    add_delta(answer, delta, json);
    Json parsed = Json::parse(json.end_object().take());
    if (parsed.contains("tool_calls")) parsed["tool_calls"][0].erase("id");
    deltas.push_back(parsed.dump());
  }
  EXPECT_THAT(
      deltas,
      ElementsAre(
          R"({"content":"A"})",
          R"({"tool_calls":[{"index":0,"type":"function","function":{"name":"now","arguments":""}}]})",
          R"({"tool_calls":[{"index":0,"function":{"arguments":"{}"}}]})",
          R"({"tool_calls":[{"index":1,"type":"function","function":{"name":"get_weather","arguments":""}}]})",
          R"({"tool_calls":[{"index":1,"function":{"arguments":"{\"days\": 1}"}}]})"));
  JsonText message;
  message.begin_object();
  add_message(answer, message);
  const Json parsed = Json::parse(message.end_object().take());
  EXPECT_EQ(parsed["content"], "A");
  EXPECT_EQ(parsed["tool_calls"].size(), 2u);
  EXPECT_NE(parsed["tool_calls"][0]["id"], parsed["tool_calls"][1]["id"]);
  EXPECT_EQ(parsed["tool_calls"][1]["function"]["arguments"], "{\"days\": 1}");
}

}  // namespace
}  // namespace attend::serve
