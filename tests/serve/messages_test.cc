// Requests of Anthropic's /v1/messages.
#include "attend/serve/protocols/anthropic/messages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "attend/serve/protocols/anthropic/errors.h"
#include "attend/serve/protocols/anthropic/signature.h"
#include "attend/serve/protocols/endpoint.h"

namespace attend::serve {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

ChatFormats formats_of_qwen() {
  ChatFormats formats;
  formats.tools = &parse_tool_format("hermes");
  formats.reasoning = &parse_reasoning_format("qwen3");
  return formats;
}

// Reads a request with these fields; without "messages" among them, it has one.
GenerationJob messages_with(const std::string& fields) {
  Json body = Json::parse("{" + fields + "}");
  if (!body.contains("max_tokens")) body["max_tokens"] = 2000;
  if (!body.contains("messages")) body["messages"] = Json::parse(R"([{"role": "user", "content": "x"}])");
  return kMessages.read(body, {}, formats_of_qwen());
}

Json template_messages(const std::string& fields) {
  return Json::parse(messages_with(fields).variables)["messages"];
}

std::string rejection(const std::string& fields) {
  try {
    messages_with(fields);
  } catch (const ApiError& error) {
    EXPECT_EQ(error.status, 400);
    return error.message;
  }
  return "accepted";
}

constexpr char kTool[] = R"("tools": [{"name": "f", "description": "d", "input_schema":
  {"type": "object", "properties": {"b": {"type": "integer"}, "a": {}}}}])";
// A user's question and two calls.
constexpr char kCalls[] = R"({"role": "user", "content": "q"}, {"role": "assistant", "content": [
  {"type": "text", "text": "I look."}, {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"b": 1, "a": 2}},
  {"type": "tool_use", "id": "toolu_2", "name": "g", "input": {}}]})";

TEST(Messages, CheckTheHistoryBeforeTheModelsFormats) {
  const auto rejection_without_format = [](const std::string& messages) {
    try {
      kMessages.read(
          Json::parse(R"({"max_tokens": 9, )" + std::string(kTool) + R"(, "messages": [)" + messages + "]}"),
          {}, ChatFormats{});
    } catch (const ApiError& error) {
      return error.message;
    }
    return std::string("accepted");
  };
  EXPECT_THAT(rejection_without_format(R"({"role": "user", "content": "x"})"),
              HasSubstr("tool_choice that requires a call"));
  EXPECT_THAT(rejection_without_format(R"({"role": "user", "content": [
      {"type": "tool_result", "tool_use_id": "toolu_9", "content": "3"}]})"),
              HasSubstr("toolu_9"));
}

TEST(Messages, ImagesBecomePartsOfTheContent) {
  const std::string fields = R"("messages": [{"role": "user", "content": [
      {"type": "text", "text": "a"}, {"type": "text", "text": "b"},
      {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "Zmlyc3Q="}},
      {"type": "text", "text": "c"}]},
      {"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": "data:image/png;base64,c2Vjb25k"}}]}])";
  EXPECT_EQ(template_messages(fields), Json::parse(R"([{"role": "user", "content": [
      {"type": "text", "text": "a\nb"}, {"type": "image"}, {"type": "text", "text": "c"}, {"type": "image"}]}])"));
  EXPECT_THAT(messages_with(fields).images, ::testing::ElementsAre("first", "second"));
}

TEST(Messages, SystemAndTextsBecomeTemplateMessages) {
  EXPECT_EQ(template_messages(R"("system": "be short", "messages": [{"role": "user", "content": "hi"}])"),
            Json::parse(R"([{"role": "system", "content": "be short"}, {"role": "user", "content": "hi"}])"));
  EXPECT_EQ(
      template_messages(
          R"("system": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}, {"type": "text", "text": "b"}],
             "messages": [{"role": "user", "content": [{"type": "text", "text": "c"}]}, {"role": "user", "content": "d"},
                          {"role": "assistant", "content": "e"}, {"role": "system", "content": "f"}, {"role": "user", "content": "g"}])"),
      Json::parse(R"([{"role": "system", "content": "a\nb"}, {"role": "user", "content": "c\nd"},
                      {"role": "assistant", "content": "e"}, {"role": "system", "content": "f"}, {"role": "user", "content": "g"}])"));
}

TEST(Messages, CallsAndResultsBecomeToolMessages) {
  const std::string results = R"({"role": "user", "content": [
      {"type": "tool_result", "tool_use_id": "toolu_2", "content": "no such file", "is_error": true},
      {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "3"}, {"type": "text", "text": "4"}]},
      {"type": "text", "text": "go on"}]})";
  const Json messages = template_messages(R"("messages": [)" + std::string(kCalls) + "," + results + "]");
  ASSERT_EQ(messages.size(), 5u);
  EXPECT_EQ(messages[1], Json::parse(R"({"role": "assistant", "content": "I look.", "tool_calls": [
      {"id": "toolu_1", "type": "function", "function": {"name": "f", "arguments": {"b": 1, "a": 2}}},
      {"id": "toolu_2", "type": "function", "function": {"name": "g", "arguments": {}}}]})"));
  EXPECT_EQ(messages[1]["tool_calls"][0]["function"]["arguments"].dump(), R"({"b":1,"a":2})");
  EXPECT_EQ(messages[2], Json::parse(R"({"role": "tool", "tool_call_id": "toolu_2", "name": "g",
      "content": "Error: no such file"})"));
  EXPECT_EQ(messages[3]["content"], "3\n4");
  EXPECT_EQ(messages[4], Json::parse(R"({"role": "user", "content": "go on"})"));
}

TEST(Messages, EachCallHasOneResultInTheNextMessage) {
  const auto with = [](const std::string& rest) {
    return rejection(R"("messages": [)" + std::string(kCalls) + rest + "]");
  };
  const std::string one = R"({"type": "tool_result", "tool_use_id": "toolu_1"})";
  EXPECT_THAT(with(""), HasSubstr("\"toolu_1\" has no tool_result"));
  EXPECT_THAT(with(R"(, {"role": "user", "content": "x"})"), StartsWith("messages[2]: the tool_use"));
  EXPECT_THAT(with(R"(, {"role": "user", "content": [)" + one + "]}"), HasSubstr("\"toolu_2\""));
  EXPECT_THAT(with(R"(, {"role": "user", "content": [)" + one + "," + one + "]}"),
              StartsWith("messages[2].content[1].tool_use_id \"toolu_1\""));
  EXPECT_THAT(rejection(R"("messages": [{"role": "user", "content": [)" + one + "]}]"),
              StartsWith("messages[0].content[0].tool_use_id \"toolu_1\": expected the id of a tool_use"));
}

TEST(Messages, ThinkingIsCheckedAndPassedOn) {
  const auto with = [](const Json& block) {
    const Json messages = Json::array(
        {{{"role", "user"}, {"content", "q"}},
         {{"role", "assistant"}, {"content", Json::array({block, {{"type", "text"}, {"text", "a"}}})}},
         {{"role", "user"}, {"content", "r"}}});
    return R"("messages": )" + messages.dump();
  };
  const std::string text = "first, \xc3\xa9 then";
  const std::string signature = sign_thinking(text, /*with_text=*/false);
  const std::string long_signature = sign_thinking(text, /*with_text=*/true);
  const Json shown = {{"type", "thinking"}, {"thinking", text}, {"signature", signature}};
  const Json omitted = {{"type", "thinking"}, {"thinking", ""}, {"signature", long_signature}};
  const Json redacted = {{"type", "redacted_thinking"}, {"data", long_signature}};
  for (const Json& block : {shown, omitted, redacted}) {
    const Json messages = template_messages(with(block));
    EXPECT_EQ(messages[1], Json({{"role", "assistant"}, {"content", "a"}, {"reasoning_content", text}}));
  }
  for (Json block : {shown, omitted}) {
    block["thinking"] = text + "!";
    EXPECT_THAT(rejection(with(block)), StartsWith("messages[1].content[0].signature: not from this server"));
  }
  for (const std::string& data :
       {std::string(), signature, std::string("attend1.AAAA.????"), long_signature + "A"})
    EXPECT_THAT(rejection(with({{"type", "redacted_thinking"}, {"data", data}})),
                StartsWith("messages[1].content[0].data: not from this server"))
        << data;
}

TEST(Signatures, ContainTextsOfEveryLength) {
  std::string text;
  for (int size = 1; size < 40; ++size) {
    text += static_cast<char>('a' + size % 7);
    EXPECT_EQ(signed_thinking("", sign_thinking(text, true)), text);
    EXPECT_EQ(signed_thinking(text, sign_thinking(text, false)), text);
    EXPECT_EQ(signed_thinking(text + "x", sign_thinking(text, false)), std::nullopt);
  }
}

TEST(Messages, AreCountedWithAThinkingBudgetAndWithoutMaxTokens) {
  const Json body = Json::parse(R"({"messages": [{"role": "user", "content": "x"}],
                                    "thinking": {"type": "enabled", "budget_tokens": 1024}})");
  const GenerationJob job = read_countable(body, {}, formats_of_qwen());
  EXPECT_EQ(Json::parse(job.variables)["thinking_budget"], 1024);
}

TEST(Messages, ErrorsShowTheStartOfLongTypes) {
  const std::string type(100'000, 'x');
  for (const std::string& fields :
       {R"("messages": [{"role": "user", "content": [{"type": ")" + type + "\"}]}]",
        R"("tools": [{"name": "f", "type": ")" + type + "\"}]"}) {
    const std::string error = rejection(fields);
    EXPECT_THAT(error, HasSubstr("xxx"));
    EXPECT_LT(error.size(), 300u);
  }
}

TEST(Messages, ToolsReachTheTemplateAndTheParser) {
  const GenerationJob job = messages_with(kTool);
  ASSERT_TRUE(job.answer);
  EXPECT_EQ(job.answer->tools.at(0).name, "f");
  EXPECT_EQ(job.answer->call_id_prefix, "toolu_");
  EXPECT_FALSE(job.grammar) << "auto is free";
  EXPECT_EQ(Json::parse(job.variables)["tools"].dump(),
            R"([{"type":"function","function":{"name":"f","description":"d","parameters":)"
            R"({"type":"object","properties":{"b":{"type":"integer"},"a":{}}}}}])");
}

TEST(Messages, ToolChoiceIsHonored) {
  const auto with = [](const std::string& choice) {
    return messages_with(std::string(kTool) + R"(, "tool_choice": )" + choice);
  };
  const auto stops_after_first = [](const GenerationJob& job) {
    return Json::parse(job.grammar.value().grammar.text)["format"]["stop_after_first"].get<bool>();
  };
  EXPECT_TRUE(with(R"({"type": "none"})").answer->tools.empty());
  EXPECT_TRUE(with(R"({"type": "auto"})").answer->parallel);
  EXPECT_FALSE(with(R"({"type": "auto", "disable_parallel_tool_use": true})").answer->parallel);
  EXPECT_FALSE(stops_after_first(with(R"({"type": "any"})")));
  EXPECT_TRUE(stops_after_first(with(R"({"type": "any", "disable_parallel_tool_use": true})")));
  EXPECT_TRUE(stops_after_first(with(R"({"type": "tool", "name": "f"})")));
  const std::string tools = kTool;
  EXPECT_THAT(rejection(tools + R"(, "tool_choice": {"type": "tool", "name": "h"})"),
              HasSubstr("expected one of the tools"));
  EXPECT_THAT(rejection(tools + R"(, "tool_choice": "any")"), HasSubstr("expected an object"));
  EXPECT_THAT(rejection(tools + R"(, "tool_choice": {"type": "required"})"), HasSubstr("\"any\""));
  EXPECT_THAT(rejection(R"("tool_choice": {"type": "any"})"), HasSubstr("only with tools"));
}

TEST(Messages, LimitsAndSamplingAreRead) {
  const GenerationJob job = messages_with(
      R"("max_tokens": 7, "stop_sequences": ["a", "b"], "temperature": 0.5, "top_p": 0.25, "top_k": 3, "stream": true,
         "metadata": {"user_id": "u"}, "service_tier": "auto", "model": "m")");
  EXPECT_EQ(job.params.max_new_tokens, 7);
  EXPECT_EQ(job.params.stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(job.params.temperature, 0.5f);
  EXPECT_EQ(job.params.top_p, 0.25f);
  EXPECT_EQ(job.params.top_k, 3);
  EXPECT_TRUE(job.stream && job.ignored.empty());
  EXPECT_EQ(job.model, "m");
  const GenerationJob prompt_only = messages_with(R"("max_tokens": 0)");
  EXPECT_FALSE(prompt_only.message.has_answer);
  EXPECT_EQ(prompt_only.params.max_new_tokens, 1);
  EXPECT_THAT(rejection(R"("max_tokens": null)"), StartsWith("max_tokens: missing"));
  const Json to_count = Json::parse(R"({"messages": [{"role": "user", "content": "x"}]})");
  EXPECT_EQ(read_countable(to_count, {}, formats_of_qwen()).variables, messages_with("").variables);
}

TEST(Messages, ThinkingSetsTheSwitchesOfTheTemplate) {
  using Thinking = MessageOptions::Thinking;
  const auto variables = [](const GenerationJob& job) { return Json::parse(job.variables); };
  EXPECT_FALSE(variables(messages_with("")).contains("enable_thinking"));
  const GenerationJob enabled = messages_with(R"("thinking": {"type": "enabled", "budget_tokens": 1024})");
  EXPECT_EQ(variables(enabled)["enable_thinking"], true);
  EXPECT_EQ(variables(enabled)["thinking_budget"], 1024);
  EXPECT_EQ(enabled.answer->max_reasoning_tokens, 1024);
  EXPECT_EQ(enabled.message.thinking, Thinking::kShown);
  const GenerationJob adaptive = messages_with(
      R"("thinking": {"type": "adaptive", "display": "omitted"}, "output_config": {"effort": "low"})");
  EXPECT_EQ(variables(adaptive)["reasoning_effort"], "low");
  EXPECT_EQ(adaptive.message.thinking, Thinking::kOmitted);
  EXPECT_FALSE(adaptive.answer->max_reasoning_tokens);
  const GenerationJob disabled = messages_with(R"("thinking": {"type": "disabled"})");
  EXPECT_EQ(variables(disabled)["enable_thinking"], false);
  EXPECT_EQ(disabled.message.thinking, Thinking::kHidden);
  EXPECT_THAT(rejection(R"("thinking": {"type": "enabled"})"), StartsWith("thinking.budget_tokens: missing"));
  EXPECT_THAT(rejection(R"("thinking": {"type": "enabled", "budget_tokens": 2000})"),
              HasSubstr("less than max_tokens, 2000"));
  EXPECT_THAT(rejection(R"("thinking": {"type": "between_tools"})"), HasSubstr("\"adaptive\""));
}

TEST(Messages, OutputFormatsBecomeGrammars) {
  for (const char* fields :
       {R"("output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}})",
        R"("output_format": {"type": "json_schema", "schema": {"type": "object"}})"}) {
    const GenerationJob job = messages_with(fields);
    ASSERT_TRUE(job.grammar) << fields;
    EXPECT_EQ(job.grammar->grammar.text, R"({"type":"object"})");
  }
  EXPECT_THAT(rejection(R"("output_format": {"type": "regex"})"), HasSubstr("json_schema"));
}

TEST(Messages, AnAssistantsTextAtTheEndIsContinued) {
  const std::string talk =
      R"("messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": )";
  EXPECT_EQ(messages_with(talk + R"("The answer"}])").continued, "The answer");
  const GenerationJob blank = messages_with(talk + R"(" \n"}])");
  EXPECT_EQ(blank.continued, "");
  EXPECT_EQ(Json::parse(blank.variables)["messages"].size(), 1u);
}

TEST(Messages, CacheControlIsCheckedEverywhere) {
  EXPECT_FALSE(messages_with("").message.has_cache_control);
  const char* const kPlaces[] = {
      R"("cache_control": {})", R"("system": [{"type": "text", "text": "a", "cache_control": {}}])",
      R"("messages": [{"role": "user", "content": [{"type": "text", "text": "a", "cache_control": {}}]}])",
      R"("tools": [{"name": "f", "input_schema": {}, "cache_control": {}}])"};
  for (const std::string place : kPlaces) {
    const auto with = [&](const std::string& value) {
      return std::string(place).replace(place.find("{}", place.find("cache_control")), 2, value);
    };
    EXPECT_TRUE(messages_with(with(R"({"type": "ephemeral", "ttl": "1h"})")).message.has_cache_control)
        << place;
    EXPECT_THAT(rejection(place), HasSubstr("\"ephemeral\"")) << place;
    EXPECT_THAT(rejection(with(R"({"type": "ephemeral", "ttl": "2h"})")), HasSubstr("\"5m\" or \"1h\""))
        << place;
  }
}

TEST(Messages, UnsupportedFieldsAreRejectedByName) {
  struct Case {
    const char* fields;
    const char* message;
  };
  const Case kCases[] = {
      {R"("container": "c")", "container: "},
      {R"("stop_sequences": [""])", "stop_sequences holds \"\": expected at least one character"},
      {R"("mcp_servers": [{"url": "x"}])", "mcp_servers: "},
      {R"("inference_geo": "us")", "inference_geo: "},
      {R"("speed": "fast")", "speed: "},
      {R"("thread": {"type": "create"})", "thread: "},
      {R"("metadata": {"user_id": 5})", "metadata.user_id 5"},
      {R"("context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]})",
       "context_management.edits: "},
      {R"("tools": [{"type": "bash_20250124", "name": "bash"}])", "tools[0].type: \"bash_20250124\""},
      {R"("tools": [{"name": "f"}])", "tools[0].input_schema: missing"},
      {R"("tools": [{"name": "f", "input_schema": {}, "defer_loading": true}])", "tools[0].defer_loading: "},
      {R"("tools": [{"name": "f", "input_schema": {}, "allowed_callers": ["code_execution_20260120"]}])",
       "tools[0].allowed_callers: "},
      {R"("messages": [{"role": "tool", "content": "x"}])", "messages[0].role \"tool\""},
      {R"("messages": [])", "messages: expected a list"},
      {R"("messages": [{"role": "user"}])", "messages[0].content: missing"},
      {R"("messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}])",
       "messages[0].content[0].source.type: missing"},
      {R"("messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": "http://a/b"}}]}])",
       "messages[0].content[0].source.url: \"http://a/b\" is not fetched"},
      {R"("messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "file", "file_id": "f"}}]}])",
       "messages[0].content[0].source.type: \"file\" is not supported"},
      {R"("messages": [{"role": "assistant", "content": [{"type": "image"}]}])",
       "messages[0].content[0].type: \"image\": images are supported in messages of the user only"},
      {R"("messages": [{"role": "user", "content": [{"type": "document", "source": {}}]}])",
       "messages[0].content[0].type: \"document\""},
      {R"("messages": [{"role": "user", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {}}]}])",
       "messages[0].content[0].type: \"tool_use\" is not supported here"},
      {R"("messages": [{"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": "x"}]}])",
       "messages[0].content[0].input \"x\""},
      {R"("system": [{"type": "image"}])", "system[0].type: \"image\""},
  };
  for (const Case& each : kCases)
    EXPECT_THAT(rejection(each.fields), StartsWith(each.message)) << each.fields;
  EXPECT_EQ(rejection(R"("container": null, "mcp_servers": [], "speed": "standard", "diagnostics": null,
      "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]})"),
            "accepted");
}

TEST(AnthropicErrors, HaveTheTypesOfTheApi) {
  const auto type = [](int status) {
    const ErrorResponse response = anthropic_error_response({status, "m", {}, {}}, "req_1");
    const Json body = Json::parse(response.body);
    EXPECT_EQ(body["type"], "error");
    EXPECT_EQ(body["request_id"], "req_1");
    EXPECT_EQ(body["error"]["message"], "m");
    return std::to_string(response.status) + " " + body["error"]["type"].get<std::string>();
  };
  EXPECT_EQ(type(400), "400 invalid_request_error");
  EXPECT_EQ(type(401), "401 authentication_error");
  EXPECT_EQ(type(403), "403 permission_error");
  EXPECT_EQ(type(404), "404 not_found_error");
  EXPECT_EQ(type(405), "405 invalid_request_error");
  EXPECT_EQ(type(413), "413 request_too_large");
  EXPECT_EQ(type(429), "429 rate_limit_error");
  EXPECT_EQ(type(500), "500 api_error");
  EXPECT_EQ(type(503), "529 overloaded_error");
  EXPECT_EQ(Json::parse(anthropic_error_response({400, "m", {}, "context_length_exceeded"}, "").body),
            Json::parse(R"({"type": "error", "error": {"type": "invalid_request_error",
                "message": "prompt is too long: m", "details": {"error_code": "context_length_exceeded"}},
                "request_id": null})"));
}

TEST(ErrorResponse, HasTheFormatOfThePath) {
  for (const char* path : {"/v1/messages", "/v1/messages/count_tokens", "/v1/messages/batches"})
    EXPECT_THAT(error_response(path, {404, "m", {}, {}}).body, StartsWith(R"({"type":"error")")) << path;
  for (const char* path : {"", "/v1/chat/completions", "/v1/messagesx"})
    EXPECT_THAT(error_response(path, {404, "m", {}, {}}).body, StartsWith(R"({"error":)")) << path;
}

}  // namespace
}  // namespace attend::serve
