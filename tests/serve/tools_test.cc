// Tool definitions of requests, and grammars of required tool calls.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "attend/base/error.h"
#include "attend/serve/formats/reasoning.h"
#include "attend/serve/formats/tool_format.h"
#include "attend/serve/protocols/endpoint.h"
#include "attend/serve/protocols/truncate_messages.h"
#include "attend/text/chat_template/chat_template.h"
#include "tests/support/test_files.h"

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
  EXPECT_THAT(tools_error(R"("tools": [{"function": {"name": "a"}}])"),
              HasSubstr("tools[0].type: missing; expected"));
  for (const char* type : {"allowed_tools", "custom", "any", "zzz"})
    EXPECT_THAT(
        tools_error(std::string(kTwoTools) + R"(, "tool_choice": {"function": {"name": "f"}, "type": ")" +
                    type + "\"}"),
        HasSubstr(std::string("tool_choice.type | tool_choice.type: \"") + type + "\" is not supported"));
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

// A conversation whose earlier call has these arguments, in each API and form.
std::vector<GenerationJob> read_call(const std::string& arguments) {
  const std::string user = R"({"role": "user", "content": "x"})", text = Json(arguments).dump();
  const std::string tool = R"({"role": "tool", "tool_call_id": "a", "content": "1"})";
  std::vector<GenerationJob> jobs;
  for (const std::string& form : {arguments, text})
    jobs.push_back(kChatCompletions.read(
        parse_body(R"({"messages": [)" + user + R"(, {"role": "assistant", "content": null, "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "f", "arguments": )" +
                   form + "}}]}, " + tool + "]}"),
        {}, hermes_formats()));
  jobs.push_back(kMessages.read(
      parse_body(R"({"max_tokens": 9, "messages": [)" + user + R"(, {"role": "assistant", "content": [
          {"type": "tool_use", "id": "a", "name": "f", "input": )" +
                 arguments + R"(}]}, {"role": "user", "content": [
          {"type": "tool_result", "tool_use_id": "a", "content": "1"}]}]})"),
      {}, hermes_formats()));
  jobs.push_back(kResponses.read(
      parse_body(R"({"input": [{"type": "function_call", "call_id": "a", "name": "f", "arguments": )" + text +
                 R"(}, {"type": "function_call_output", "call_id": "a", "output": "1"}]})"),
      {}, hermes_formats()));
  return jobs;
}

// Arguments of the call in the prompt.
std::string rendered_arguments(const GenerationJob& job, const std::string& variables) {
  static const ChatTemplate chat = [] {
    const test::TempDir folder;
    const std::filesystem::path path =
        folder.write("calls.jinja",
                     "{% for message in messages %}{% for call in message.tool_calls or [] %}"
                     "{{ call.function.arguments | tojson }}{% endfor %}{% endfor %}");
    return *ChatTemplate::find(ATTEND_SOURCE_DIR "/tests/data/chat_templates", path.string());
  }();
  std::string text;
  for (const ChatTemplate::Part& part : chat.render(variables, job.add_generation_prompt)) text += part.text;
  return text;
}

// The same variables in each API.
TEST(Tools, ResultsHaveTheNamesOfTheirTools) {
  for (const GenerationJob& job : read_call("{}"))
    EXPECT_EQ(nlohmann::json::parse(job.variables)["messages"].back(),
              nlohmann::json::parse(R"({"role": "tool", "tool_call_id": "a", "content": "1", "name": "f"})"));
}

// Integers of any size, and the last of equal keys, at any depth.
TEST(Tools, ArgumentsOfEarlierCallsReachThePromptUnchanged) {
  std::mt19937 random(3);
  for (int i = 0; i < 50; ++i) {
    std::string digits = random() % 2 ? "-" : "";
    digits += static_cast<char>('1' + random() % 9);
    for (size_t left = random() % 200; left > 0; --left) digits += static_cast<char>('0' + random() % 10);
    for (const GenerationJob& job :
         read_call("{\"a\": 1, \"b\": [" + digits + ", 2.5], \"a\": " + digits + "}")) {
      const std::string expected = "{\"a\": " + digits + ", \"b\": [" + digits + ", 2.5]}";
      EXPECT_EQ(rendered_arguments(job, job.variables), expected);
      EXPECT_EQ(rendered_arguments(job, write_call_ids(parse_tool_format("kimi_k2"), job.variables)),
                expected);
      EXPECT_EQ(rendered_arguments(job, MessageTruncation(job.variables).without_oldest(0)), expected);
    }
  }
}

TEST(Tools, ArgumentsOfEarlierCallsAreEquallyDeepInEachApi) {
  const auto nested = [](int depth) {
    return R"({"[\"]": )" + std::string(static_cast<size_t>(depth - 1), '[') +
           std::string(static_cast<size_t>(depth - 1), ']') + "}";
  };
  for (const GenerationJob& job : read_call(nested(kMaxArgumentDepth)))
    EXPECT_EQ(rendered_arguments(job, job.variables), nested(kMaxArgumentDepth));
  for (const int depth : {kMaxArgumentDepth + 1, 1000})
    for (const bool text : {false, true}) {
      const std::string arguments = text ? Json(nested(depth)).dump() : nested(depth);
      try {
        read_call(arguments);
        ADD_FAILURE() << "accepted";
      } catch (const ApiError& error) {
        EXPECT_THAT(error.message, HasSubstr("expected arguments of a call nested at most 180 levels deep"));
      }
    }
}

// Ids of a conversation with two calls at once and a later call, and of their results.
std::vector<std::string> written_ids(std::string_view format, const std::string& first,
                                     const std::string& second) {
  const auto call = [](const std::string& id, const std::string& name) {
    return Json{{"id", id}, {"type", "function"}, {"function", {{"name", name}, {"arguments", "{}"}}}};
  };
  const auto called = [](Json calls) {
    return Json{{"role", "assistant"}, {"tool_calls", std::move(calls)}};
  };
  const auto result = [](const std::string& id) {
    Json message = {{"role", "tool"}, {"content", "1"}};
    if (!id.empty()) message["tool_call_id"] = id;
    return message;
  };
  const Json messages = Json::array({{{"role", "user"}, {"content", "x"}},
                                     called(Json::array({call(first, "f"), call(second, "g")})),
                                     result(second),
                                     result(first),
                                     called(Json::array({call(first, "g")})),
                                     result("")});
  const Json written = Json::parse(
      write_call_ids(parse_tool_format(format), Json{{"messages", messages}, {"tools", nullptr}}.dump()));
  std::vector<std::string> ids;
  for (const Json& message : written["messages"]) {
    for (const Json& one : message.value("tool_calls", Json::array())) ids.push_back(one["id"]);
    if (message.contains("tool_call_id")) ids.push_back("=" + message["tool_call_id"].get<std::string>());
  }
  return ids;
}

TEST(Tools, CallsHaveIdsInTheFormOfTheModel) {
  using ::testing::ElementsAre;
  EXPECT_THAT(written_ids("kimi_k2", "call_a", "toolu_b"),
              ElementsAre("functions.f:0", "functions.g:1", "=functions.g:1", "=functions.f:0",
                          "functions.g:2", "=functions.g:2"));
  EXPECT_THAT(written_ids("mistral_v3", "abcdefgh1", "ABCDEFGH2"),
              ElementsAre("abcdefgh1", "ABCDEFGH2", "=ABCDEFGH2", "=abcdefgh1", "abcdefgh1", "=abcdefgh1"));
  for (const char* format : {"mistral", "mistral_v3"}) {
    const std::vector<std::string> ids = written_ids(format, "call_86ff2cc1", "toolu_1");
    EXPECT_THAT(ids, ElementsAre(ids[0], ids[1], "=" + ids[1], "=" + ids[0], ids[0], "=" + ids[0]));
    EXPECT_NE(ids[0], ids[1]);
    for (const std::string& id : {ids[0], ids[1]})
      EXPECT_TRUE(id.size() == 9 && std::ranges::all_of(id, [](unsigned char c) { return std::isalnum(c); }))
          << id;
  }
  EXPECT_THAT(written_ids("hermes", "a", "b"), ElementsAre("a", "b", "=b", "=a", "a"));
}

TEST(Tools, OneCallIsReturnedIfTheTemplateRejectsTwo) {
  EXPECT_TRUE(chat_with(kTwoTools).answer->parallel);
  ChatFormats formats = hermes_formats();
  formats.single_calls = true;
  EXPECT_FALSE(chat_with(kTwoTools, formats).answer->parallel);
  const GenerationJob required =
      chat_with(std::string(kTwoTools) + R"(, "tool_choice": "required")", formats);
  EXPECT_EQ(Json::parse(required.grammar->grammar.text)["format"]["stop_after_first"], true);
}

// A model that prefers spaces would write them up to max_tokens.
TEST(Tools, GrammarsLimitSpaces) {
  const std::vector<Tool> tools = {
      {"f",
       Json::parse(R"({"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]})")}};
  const ToolChoice required{.kind = ToolChoice::Kind::kRequired, .name = {}, .parallel = true};
  const std::function<void(const Json&)> check = [&](const Json& part) {
    if (part.is_object() && part.contains("json_schema")) {
      EXPECT_EQ(part.value("max_whitespace_cnt", 0), 32) << part;
    } else if (part.is_structured()) {
      for (const Json& item : part) check(item);
    }
  };
  for (const ToolFormat& format : tool_formats()) {
    SCOPED_TRACE(format.name());
    check(Json::parse(tool_grammar(format, tools, required).text));
  }
}

TEST(Tools, RejectFieldsOfTheWrongType) {
  const auto error = [](const Endpoint& endpoint, const std::string& fields) {
    try {
      endpoint.read(parse_body("{" + fields + "}"), {}, hermes_formats());
    } catch (const ApiError& rejected) {
      return rejected.param;
    }
    return std::string();
  };
  const auto chat = [&](const std::string& message) {
    return error(kChatCompletions, R"("messages": [{"role": "user", "content": "x"}, )" + message + "]");
  };
  EXPECT_EQ(chat(R"({"role": "", "content": "x"})"), "messages[1].role");
  EXPECT_EQ(chat(R"({"role": "user", "content": "x", "name": 5})"), "messages[1].name");
  for (const std::string key : {"reasoning_content", "reasoning", "thinking"})
    EXPECT_EQ(chat(R"({"role": "assistant", "content": "x", ")" + key + R"(": ["x"]})"),
              "messages[1]." + key);
  EXPECT_EQ(chat(R"({"role": "assistant", "tool_calls": [{"type": "custom", "function": {"name": "f"}}]})"),
            "messages[1].tool_calls[0].type");
  EXPECT_EQ(chat(R"({"role": "assistant", "tool_calls": [{"function": {"name": "f"}}]})"), "");

  const std::string bad[][2] = {
      {R"({"type": "array"})", ".type"},         {R"({"type": 5})", ".type"},
      {R"({"properties": [1]})", ".properties"}, {R"({"properties": {"a": "string"}})", ".properties"},
      {R"({"required": "a"})", ".required"},     {R"({"required": [1]})", ".required"}};
  const auto tool_errors = [&](const std::string& schema) {
    return std::vector{
        error(kChatCompletions, R"("messages": [{"role": "user", "content": "x"}], "tools": [{"type":
                                   "function", "function": {"name": "f", "parameters": )" +
                                    schema + "}}]"),
        error(kResponses,
              R"("input": "x", "tools": [{"type": "function", "name": "f", "parameters": )" + schema + "}]"),
        error(kMessages,
              R"("max_tokens": 9, "messages": [{"role": "user", "content": "x"}], "tools": [{"name": "f",
                            "input_schema": )" +
                  schema + "}]")};
  };
  for (const auto& [schema, key] : bad)
    EXPECT_EQ(tool_errors(schema),
              (std::vector<std::string>{"tools[0].function.parameters" + key, "tools[0].parameters" + key,
                                        "tools[0].input_schema" + key}))
        << schema;
  for (const char* schema : {R"({"type": ["object", "null"], "properties": {"a": true}, "required": []})",
                             R"({"type": null, "properties": null, "required": null})", "{}"})
    EXPECT_EQ(tool_errors(schema), std::vector<std::string>(3)) << schema;
  EXPECT_EQ(
      error(kMessages, R"("max_tokens": 9, "messages": [{"role": "user", "content": "x"}], "tools": [{"name":
                                "f", "input_schema": {}, "input_examples": [1]}])"),
      "tools[0].input_examples");
  EXPECT_EQ(error(kChatCompletions, R"("messages": [{"role": "user", "content": "x"}], "tools": [{"type":
                                       "function", "function": {"name": "f", "description": 5}}])"),
            "tools[0].function.description");
}

// Faults of tools and calls have the same codes in all APIs.
TEST(Tools, ErrorsHaveCodes) {
  const auto code_of = [](const Endpoint& endpoint, const std::string& fields) {
    ChatFormats formats = hermes_formats();
    if (fields.find("unknown format") != std::string::npos) formats.tools = nullptr;
    try {
      endpoint.read(parse_body("{" + fields + "}"), {}, formats);
    } catch (const ApiError& error) {
      EXPECT_FALSE(error.param.empty()) << error.message;
      return std::to_string(error.status) + " " + error.code;
    }
    return std::string("accepted");
  };
  const auto chat = [&](const std::string& messages) {
    return code_of(kChatCompletions, R"("messages": [{"role": "user", "content": "x"}, )" + messages + "]");
  };
  const auto response = [&](const std::string& items) {
    return code_of(kResponses, R"("input": [{"role": "user", "content": "x"}, )" + items + "]");
  };
  const auto message = [&](const std::string& messages) {
    return code_of(kMessages,
                   R"("max_tokens": 9, "messages": [{"role": "user", "content": "x"}, )" + messages + "]");
  };
  EXPECT_EQ(chat(R"({"role": "tool", "tool_call_id": "a", "content": "1"})"), "400 tool_call_not_found");
  EXPECT_EQ(response(R"({"type": "function_call_output", "call_id": "a", "output": "1"})"),
            "400 tool_call_not_found");
  EXPECT_EQ(message(R"({"role": "assistant", "content": "y"},
                        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a"}]})"),
            "400 tool_call_not_found");

  EXPECT_EQ(
      chat(
          R"({"role": "assistant", "content": "", "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": 3}}]})"),
      "400 invalid_tool_call");
  // Arguments that are not a JSON object are rejected. They may break the tool's schema, and be empty.
  for (const auto& [arguments, expected] : std::initializer_list<std::pair<const char*, const char*>>{
           {R"("{\"a\": ")", "400 invalid_tool_call"},
           {R"("[1]")", "400 invalid_tool_call"},
           {R"("text")", "400 invalid_tool_call"},
           {R"("{} {}")", "400 invalid_tool_call"},
           {R"(" {\"unknown\": [null]}\n")", "accepted"},
           {R"("")", "accepted"},
           {R"("null")", "accepted"}}) {
    SCOPED_TRACE(arguments);
    EXPECT_EQ(
        chat(R"({"role": "assistant", "content": "", "tool_calls": [{"id": "a", "function": {"name": "f",
                       "arguments": )" +
             std::string(arguments) + "}}]}"),
        expected);
    EXPECT_EQ(response(R"({"type": "function_call", "call_id": "a", "name": "f", "arguments": )" +
                       std::string(arguments) +
                       R"(}, {"type": "function_call_output", "call_id": "a", "output": ""})"),
              expected);
  }
  // The server's own call, which max_output_tokens cut off.
  EXPECT_EQ(response(R"({"type": "function_call", "call_id": "a", "name": "f", "arguments": "{\"a", "status":
                         "incomplete"}, {"type": "function_call_output", "call_id": "a", "output": ""})"),
            "accepted");
  for (const char* call : {R"({"type": "function_call", "call_id": "a", "name": "f"})",
                           R"({"type": "function_call", "call_id": "a", "name": "f", "arguments": null})",
                           R"({"type": "custom_tool_call", "call_id": "a", "name": "", "input": "x"})"})
    EXPECT_EQ(response(call), "400 invalid_tool_call") << call;
  for (const char* call : {R"({"type": "tool_use", "id": "a", "name": "f", "input": "{}"})",
                           R"({"type": "tool_use", "id": "a", "name": "", "input": {}})"})
    EXPECT_EQ(message(R"({"role": "assistant", "content": [)" + std::string(call) + "]}"),
              "400 invalid_tool_call");

  const std::string call = R"({"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"})";
  EXPECT_EQ(response(call), "400 tool_result_not_found");
  const std::string output = R"({"type": "function_call_output", "call_id": "a", "output": "1"})";
  EXPECT_EQ(response(call + ", " + output), "accepted");
  EXPECT_EQ(response(call + ", " + output + ", " + output), "400 duplicate_tool_result");
  EXPECT_EQ(response(call + R"(, {"type": "custom_tool_call_output", "call_id": "a", "output": "1"})"),
            "400 tool_call_not_found");
  EXPECT_EQ(response(call + ", " + call), "400 duplicate_tool_call");
  const std::string use = R"({"type": "tool_use", "id": "a", "name": "f", "input": {}})";
  EXPECT_EQ(message(R"({"role": "assistant", "content": [)" + use + "]}"), "400 tool_result_not_found");
  EXPECT_EQ(message(R"({"role": "assistant", "content": [)" + use + ", " + use + "]}"),
            "400 duplicate_tool_call");
  const std::string result = R"({"type": "tool_result", "tool_use_id": "a", "content": "1"})",
                    used = R"({"role": "assistant", "content": [)" + use +
                           R"(]}, {"role": "user", "content": [)";
  EXPECT_EQ(message(used + result + "]}"), "accepted");
  EXPECT_EQ(message(used + result + ", " + result + "]}"), "400 duplicate_tool_result");
  EXPECT_EQ(message(used + result + "]}, " + used + result + "]}"), "accepted");

  const std::string function = R"({"type": "function", "name": "f"})",
                    tool = R"({"type": "function", "function": {"name": "f"}})",
                    message_tool = R"({"name": "f", "input_schema": {}})";
  const std::string chat_start = R"("messages": [{"role": "user", "content": "x"}], "tools": [)",
                    response_start = R"("input": "x", "tools": [)";
  EXPECT_EQ(code_of(kChatCompletions, chat_start + tool + ", " + tool + "]"), "400 duplicate_tool");
  EXPECT_EQ(code_of(kResponses, response_start + function + ", " + function + "]"), "400 duplicate_tool");
  EXPECT_EQ(
      code_of(kMessages, R"("max_tokens": 9, )" + chat_start + message_tool + ", " + message_tool + "]"),
      "400 duplicate_tool");
  EXPECT_EQ(
      code_of(kChatCompletions,
              chat_start + tool + R"(], "tool_choice": {"type": "function", "function": {"name": "g"}})"),
      "400 unknown_tool");
  EXPECT_EQ(code_of(kResponses,
                    response_start + function + R"(], "tool_choice": {"type": "function", "name": "g"})"),
            "400 unknown_tool");
  EXPECT_EQ(code_of(kMessages, R"("max_tokens": 9, )" + chat_start + message_tool +
                                   R"(], "tool_choice": {"type": "tool", "name": "g"})"),
            "400 unknown_tool");
  const std::string no_format = R"(], "user": "unknown format")";
  EXPECT_EQ(code_of(kChatCompletions, chat_start + tool + no_format), "400 unsupported");
  EXPECT_EQ(code_of(kResponses, response_start + function + no_format), "400 unsupported");
  EXPECT_EQ(code_of(kMessages, R"("max_tokens": 9, )" + chat_start + message_tool + no_format),
            "400 unsupported");
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
