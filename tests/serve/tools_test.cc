// Tool definitions of requests, and grammars of required tool calls.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "attend/base/error.h"
#include "attend/serve/formats/reasoning.h"
#include "attend/serve/formats/tool_format.h"
#include "attend/serve/protocols/endpoint.h"

namespace attend::serve {
namespace {

using ::testing::HasSubstr;

constexpr char kTwoTools[] = R"("tools": [{"type": "function", "function": {"name": "f", "parameters":
  {"type": "object", "properties": {"b": {"type": "integer"}, "a": {"type": "string"}}, "required": ["b", "a"]}}},
  {"type": "function", "function": {"name": "g"}}])";
ChatFormats hermes_formats() {
  ChatFormats formats;
  formats.tools = &parse_tool_format("hermes");
  return formats;
}

GenerationJob chat_with(const std::string& fields, const ChatFormats& formats = hermes_formats()) {
  return kChatCompletions.read(
      parse_body(R"({"messages": [{"role": "user", "content": "x"}], )" + fields + "}"), {}, formats);
}

std::string tools_error(const std::string& fields, const ChatFormats& formats = hermes_formats()) {
  try {
    chat_with(fields, formats);
  } catch (const ApiError& error) {
    return error.param + " | " + error.message;
  }
  return "";
}

TEST(Tools, ArePassedToTheTemplateInOrder) {
  const GenerationJob job = chat_with(kTwoTools);
  ASSERT_TRUE(job.answer.has_value());
  EXPECT_EQ(job.answer->tools[0].name, "f");
  EXPECT_EQ(job.answer->tools[1].parameters, Json::object());
  EXPECT_FALSE(job.grammar) << "auto is free";
  EXPECT_THAT(job.variables, HasSubstr(R"("properties":{"b":{"type":"integer"},"a":{"type":"string"}})"));
  EXPECT_FALSE(chat_with(std::string(kTwoTools) + R"(, "tool_choice": "none")").answer);
  EXPECT_FALSE(chat_with(R"("tools": [], "tool_choice": "auto")").answer);
}

TEST(Tools, RequiredToolsBecomeAGrammar) {
  const GenerationJob required = chat_with(std::string(kTwoTools) + R"(, "tool_choice": "required")");
  ASSERT_TRUE(required.grammar.has_value());
  const Json tag = Json::parse(required.grammar->grammar.text);
  EXPECT_EQ(tag["format"]["tags"].size(), 2u);
  EXPECT_EQ(tag["format"]["tags"][0]["begin"], "<tool_call>\n{\"name\": \"f\", \"arguments\": ");
  EXPECT_EQ(tag["format"]["stop_after_first"], false);
  const GenerationJob named = chat_with(
      std::string(kTwoTools) + R"(, "tool_choice": {"type": "function", "function": {"name": "g"}})");
  const Json one = Json::parse(named.grammar->grammar.text);
  EXPECT_EQ(one["format"]["tags"].size(), 1u);
  EXPECT_EQ(one["format"]["stop_after_first"], true);
  const GenerationJob single =
      chat_with(std::string(kTwoTools) + R"(, "tool_choice": "required", "parallel_tool_calls": false)");
  EXPECT_EQ(Json::parse(single.grammar->grammar.text)["format"]["stop_after_first"], true);
}

TEST(Tools, UnknownFormatAllowsRequiredOnly) {
  EXPECT_THAT(tools_error(kTwoTools, {}), HasSubstr("--tool-call-parser"));
  EXPECT_EQ(chat_with(std::string(kTwoTools) + R"(, "tool_choice": "required")", {}).answer->tool_format,
            &parse_tool_format("llama3"));
}

TEST(Tools, InvalidToolsAreRejectedByName) {
  EXPECT_THAT(tools_error(R"("tools": 5)"), HasSubstr("tools 5: expected a list"));
  EXPECT_THAT(tools_error(R"("tools": [{"type": "retrieval"}])"), HasSubstr("tools[0].type | "));
  EXPECT_THAT(tools_error(R"("tools": [{"type": "function", "function": {"name": "a b"}}])"),
              HasSubstr("letters"));
  EXPECT_THAT(tools_error(R"("tools": [{"type": "function", "function": {"name": "a", "parameters": 5}}])"),
              HasSubstr("expected a JSON schema"));
  EXPECT_THAT(tools_error(std::string(kTwoTools) +
                          R"(, "tool_choice": {"type": "function", "function": {"name": "h"}})"),
              HasSubstr("\"h\": expected one of the tools"));
  EXPECT_THAT(tools_error(R"("tool_choice": "required")"), HasSubstr("only with tools"));
  EXPECT_THAT(tools_error(std::string(kTwoTools) + R"(, "tool_choice": "sometimes")"),
              HasSubstr("\"required\" or"));
  EXPECT_THAT(tools_error(std::string(kTwoTools) + R"(, "tool_choice": "required", "regex": "a")"),
              HasSubstr("regex already sets"));
}

TEST(Tools, ResultsWithoutTheirCallsAreRejected) {
  const auto error = [](const std::string& messages) {
    try {
      kChatCompletions.read(
          parse_body(R"({"messages": [{"role": "user", "content": "x"}, )" + messages + "]}"), {}, {});
    } catch (const ApiError& rejected) {
      return rejected.param + " | " + rejected.message;
    }
    return std::string();
  };
  const std::string result = R"({"role": "tool", "tool_call_id": "a", "content": "1"})";
  const auto call = [](const std::string& id, const std::string& arguments) {
    return R"({"role": "assistant", "content": null, "tool_calls": [{"id": ")" + id +
           R"(", "type": "function", "function": {"name": "f", "arguments": )" + arguments + "}}]}, ";
  };
  EXPECT_THAT(error(result), HasSubstr("messages[1] | messages[1]: the result of a tool without a call"));
  EXPECT_THAT(error(call("b", "\"{}\"") + result),
              HasSubstr("messages[2].tool_call_id \"a\": expected the id of an earlier call"));
  EXPECT_EQ(error(call("a", "\"{}\"") + result), "");
  EXPECT_EQ(error(call("a", "{}") + result), "");
  EXPECT_THAT(error(call("a", "[1]") + result),
              HasSubstr("messages[1].tool_calls[0].function.arguments [1]"));
  EXPECT_THAT(error(R"({"role": "assistant", "content": "", "tool_calls": [{"id": "a"}]})"),
              HasSubstr("messages[1].tool_calls[0].function: missing"));
}

TEST(Tools, StrictToolsRestrictAnAnswerThatMayContainCalls) {
  const std::string strict = R"("tools": [{"type": "function", "function": {"name": "f", "strict": true}}])";
  EXPECT_FALSE(chat_with(strict).grammar) << "no grammar library";
  ChatFormats formats = hermes_formats();
  formats.grammars = true;
  const GenerationJob job = chat_with(strict, formats);
  ASSERT_TRUE(job.grammar.has_value());
  const Json format = Json::parse(job.grammar->grammar.text)["format"];
  EXPECT_EQ(format["type"], "triggered_tags");
  EXPECT_EQ(format["at_least_one"], false);
  EXPECT_FALSE(chat_with(kTwoTools, formats).grammar);
  formats.tools = &parse_tool_format("pythonic");
  EXPECT_TRUE(chat_with(strict, formats).grammar.has_value());
  formats.tools = &parse_tool_format("gpt-oss");
  EXPECT_FALSE(chat_with(strict, formats).grammar) << "the vocabulary has no channels";
}

TEST(Tools, OneCallIsReturnedIfCallsAreNotParallel) {
  const GenerationJob job = chat_with(std::string(kTwoTools) + R"(, "parallel_tool_calls": false)");
  ChatAnswer answer(*job.answer);
  answer.push(R"(<tool_call>{"name": "f"}</tool_call><tool_call>{"name": "g"}</tool_call>)",
              ChatAnswer::End::kComplete);
  ASSERT_EQ(answer.blocks().size(), 1u);
  EXPECT_EQ(answer.blocks()[0].text, "{}");
}

TEST(Tools, MarkersThatAreSpecialTokensAreDecoded) {
  EXPECT_TRUE(chat_with(kTwoTools).params.skip_special_tokens);
  ChatFormats formats;
  formats.tools = &parse_tool_format("kimi_k2");
  EXPECT_FALSE(chat_with(kTwoTools, formats).params.skip_special_tokens);
}

TEST(Tools, HaveALimitedNumberAndShortErrors) {
  Json tools = Json::array();
  for (int i = 0; i < 2049; ++i)
    tools.push_back({{"type", "function"}, {"function", {{"name", "f" + std::to_string(i)}}}});
  EXPECT_THAT(tools_error("\"tools\": " + tools.dump()), HasSubstr("tools: expected at most 2048"));
  tools.erase(0);
  EXPECT_EQ(chat_with("\"tools\": " + tools.dump()).answer->tools.size(), 2048u);
  const std::string type(100'000, 'x');
  EXPECT_LT(tools_error(R"("tools": [{"type": ")" + type + "\"}]").size(), 300u);
}

TEST(Reasoning, TagsThatAreSpecialTokensAreDecoded) {
  ChatFormats formats;
  formats.reasoning = &parse_reasoning_format("qwen3");
  EXPECT_TRUE(chat_with(R"("n": 1)", formats).params.skip_special_tokens);
  formats.has_special_reasoning = true;
  EXPECT_FALSE(chat_with(R"("n": 1)", formats).params.skip_special_tokens);
  EXPECT_TRUE(chat_with(R"("separate_reasoning": false)", formats).params.skip_special_tokens);
  const Tokenizer tokenizer = Tokenizer::from_path(ATTEND_SOURCE_DIR "/models/attend-tiny");
  EXPECT_FALSE(has_special_tags(*formats.reasoning, tokenizer));
  EXPECT_TRUE(has_special_tags({.open = "<|begin|>", .close = "</think>"}, tokenizer));
}

TEST(Reasoning, IsReturnedSeparatelyIfTheServerHasAParser) {
  ChatFormats formats;
  formats.reasoning = &parse_reasoning_format("qwen3");
  EXPECT_TRUE(chat_with(R"("n": 1)", formats).answer->reasoning);
  EXPECT_FALSE(chat_with(R"("separate_reasoning": false)", formats).answer);
  EXPECT_FALSE(chat_with(R"("separate_reasoning": true)").answer);
}

}  // namespace
}  // namespace attend::serve
