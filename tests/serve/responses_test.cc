// The Responses API: requests, replies, and streams.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "attend/serve/json/base64.h"
#include "attend/serve/protocols/endpoint.h"
#include "attend/serve/protocols/responses/custom_input.h"
#include "attend/serve/protocols/responses/input_items.h"
#include "attend/serve/protocols/responses/response_replies.h"
#include "attend/serve/protocols/responses/response_request.h"

namespace attend::serve {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

ChatFormats response_formats() {
  ChatFormats formats;
  formats.tools = &parse_tool_format("hermes");
  formats.reasoning = &parse_reasoning_format("qwen3");
  return formats;
}

// Reads a body with an input unless `fields` has one.
GenerationJob read_response(std::string fields, ResponseStore* store = nullptr) {
  if (fields.find("\"input\"") == std::string::npos)
    fields = R"("input": "Hi")" + (fields.empty() ? "" : ", " + fields);
  const Json body = parse_body("{" + fields + "}");
  const SamplingDefaults defaults{.temperature = 0.5f};
  return store ? kResponses.read_stored(body, defaults, response_formats(), *store)
               : kResponses.read(body, defaults, response_formats());
}

Json response_messages(const std::string& fields, ResponseStore* store = nullptr) {
  return Json::parse(read_response(fields, store).variables)["messages"];
}

std::string response_error(const std::string& fields, ResponseStore* store = nullptr) {
  try {
    read_response(fields, store);
  } catch (const ApiError& error) {
    return error.param + " | " + error.message;
  }
  return "";
}

TEST(ResponseInput, HasImages) {
  const std::string fields = R"("input": [{"role": "user", "content": [
      {"type": "input_text", "text": "A"}, {"type": "input_image", "image_url": "data:image/png;base64,Zmlyc3Q="}]}])";
  EXPECT_EQ(
      response_messages(fields),
      Json::parse(R"([{"role": "user", "content": [{"type": "text", "text": "A"}, {"type": "image"}]}])"));
  EXPECT_THAT(read_response(fields).images, ElementsAre("first"));
  EXPECT_THAT(
      response_error(R"("input": [{"role": "user", "content": [
                  {"type": "input_image", "image_url": "https://a/b.png"}]}])"),
      HasSubstr("input[0].content[0].image_url | input[0].content[0].image_url: \"https://a/b.png\" is "
                "not fetched"));
  EXPECT_THAT(response_error(R"("input": [{"role": "user", "content": [
                  {"type": "input_image", "file_id": "file_1"}]}])"),
              HasSubstr("input[0].content[0].file_id: not supported; expected image_url"));
}

TEST(ResponseInput, BecomesMessages) {
  EXPECT_EQ(response_messages(""), Json::parse(R"([{"role": "user", "content": "Hi"}])"));
  EXPECT_EQ(response_messages(R"("instructions": "Be kind.", "input": [
                {"role": "developer", "content": "Be brief."},
                {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "A"}, {"type": "input_text", "text": "B"}]},
                {"role": "assistant", "content": [{"type": "output_text", "text": "C", "annotations": []}, {"type": "refusal", "refusal": "D"}]},
                {"role": "system", "content": "Be slow."}])"),
            Json::parse(R"([{"role": "system", "content": "Be kind.\n\nBe brief."},
                {"role": "user", "content": [{"type": "text", "text": "A"}, {"type": "text", "text": "B"}]},
                {"role": "assistant", "content": [{"type": "text", "text": "C"}, {"type": "text", "text": "D"}]},
                {"role": "system", "content": "Be slow."}])"));
}

TEST(ResponseInput, JoinsTheItemsOfATurn) {
  EXPECT_EQ(response_messages(R"("input": [{"role": "user", "content": "When?"},
                {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]},
                {"role": "assistant", "content": "I look."},
                {"type": "function_call", "call_id": "c1", "name": "now", "arguments": "{}"},
                {"type": "custom_tool_call", "call_id": "c2", "name": "shell", "input": "ls \"a\""},
                {"type": "custom_tool_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]},
                {"type": "function_call_output", "call_id": "c1", "output": "noon"},
                {"type": "function_call", "call_id": "c3", "name": "now", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "c3", "output": "one"}])"),
            Json::parse(R"([{"role": "user", "content": "When?"},
                {"role": "assistant", "reasoning_content": "Hm.", "content": "I look.", "tool_calls": [
                    {"id": "c1", "type": "function", "function": {"name": "now", "arguments": "{}"}},
                    {"id": "c2", "type": "function", "function": {"name": "shell", "arguments": "{\"input\":\"ls \\\"a\\\"\"}"}}]},
                {"role": "tool", "tool_call_id": "c2", "name": "shell", "content": "a\nb"},
                {"role": "tool", "tool_call_id": "c1", "name": "now", "content": "noon"},
                {"role": "assistant", "tool_calls": [
                    {"id": "c3", "type": "function", "function": {"name": "now", "arguments": "{}"}}], "content": null},
                {"role": "tool", "tool_call_id": "c3", "name": "now", "content": "one"}])"));
}

TEST(ResponseInput, ReadsReasoningInEachForm) {
  const auto reasoning = [](const std::string& fields) {
    return response_messages(R"("input": [{"type": "reasoning", "id": "r", )" + fields +
                             R"(}, {"role": "assistant", "content": "A"}])")[0];
  };
  const std::string encoded = encode_reasoning("long é");
  EXPECT_EQ(reasoning(R"("summary": [{"type": "summary_text", "text": "short"}])")["reasoning_content"],
            "short");
  EXPECT_EQ(reasoning(R"("encrypted_content": ")" + encoded +
                      R"(", "summary": [{"type": "summary_text", "text": "short"}])")["reasoning_content"],
            "long é");
  EXPECT_FALSE(reasoning(R"("summary": [])").contains("reasoning_content"));
  EXPECT_THAT(response_error(R"("input": [{"type": "reasoning", "encrypted_content": "gAAAA"}])"),
              HasSubstr("input[0].encrypted_content | "));
}

struct ResponseRejection {
  const char *fields, *message;
};
class RejectedResponse : public testing::TestWithParam<ResponseRejection> {};

TEST_P(RejectedResponse, NamesTheFieldAndWhatIsAccepted) {
  EXPECT_THAT(response_error(GetParam().fields), HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    Cases, RejectedResponse,
    testing::Values(
        ResponseRejection{R"("input": 5)", "input | input 5: expected a text or a list"},
        ResponseRejection{R"("input": [5])", "input[0] | input[0] 5: expected an object"},
        ResponseRejection{R"("input": [{"text": "a"}])",
                          "input[0].type | input[0].type: missing; expected one of"},
        ResponseRejection{R"("input": [{"type": "computer_call"}])",
                          "items of type \"computer_call\" are not supported"},
        ResponseRejection{R"("input": [{"role": "tool", "content": "a"}])",
                          "input[0].role \"tool\": expected"},
        ResponseRejection{R"("input": [{"role": "user", "content": 5}])",
                          "input[0].content 5: expected a string"},
        ResponseRejection{R"("input": [{"role": "user", "content": [{"type": null, "text": "x"}]}])",
                          "input[0].content[0].type | input[0].content[0].type: parts of type \"\""},
        ResponseRejection{R"("input": [{"role": "user", "content": [{"type": {}, "text": "x"}]}])",
                          "input[0].content[0].type {}: expected a string"},
        ResponseRejection{
            R"("input": [{"role": "user", "content": [{"type": "input_file"}]}])",
            "input[0].content[0].type | input[0].content[0].type: parts of type \"input_file\""},
        ResponseRejection{R"("input": [{"type": "function_call", "call_id": "c", "name": "f"}])",
                          "input[0].arguments: missing"},
        ResponseRejection{
            R"("input": [{"id": "a", "role": "user", "content": "a"}, {"id": "a", "role": "user", "content": "b"}])",
            "input[1].id | input[1].id \"a\": another item"},
        ResponseRejection{R"("input": [{"type": "function_call_output", "call_id": "c", "output": "a"}])",
                          "input[0].call_id | input[0].call_id \"c\": no earlier call"},
        ResponseRejection{
            R"("input": [{"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}])",
            "no output for the call of f with call_id \"c\""},
        ResponseRejection{R"("tools": [{"type": "file_search"}])",
                          "tools[0].type | tools[0].type: \"file_search\""},
        ResponseRejection{R"("tools": [{"type": "function", "name": "a b"}])",
                          "tools[0].name | tools[0].name \"a b\""},
        ResponseRejection{R"("tools": [{"type": "function", "function": {"name": "a"}}])",
                          "tools[0].name \"\""},
        ResponseRejection{R"("tools": [{"type": "custom", "name": "a", "format": {"type": "grammar"}}])",
                          "tools[0].format.type: \"grammar\" is not supported"},
        ResponseRejection{
            R"("tools": [{"type": "function", "name": "a"}], "tool_choice": {"type": "custom", "name": "a"})",
            "tool_choice.type | tool_choice.type \"custom\": the tool \"a\" has another type"},
        ResponseRejection{
            R"("tools": [{"type": "function", "name": "a"}], "tool_choice": {"type": "web_search"})",
            "tool_choice.type: \"web_search\" is not supported"},
        ResponseRejection{
            R"("tools": [{"type": "function", "name": "a"}], "tool_choice": {"type": "allowed_tools", "tools": []})",
            "tool_choice.tools: expected a list"},
        ResponseRejection{R"("tool_choice": "required")", "tool_choice \"required\": only with tools"},
        ResponseRejection{R"("text": {"format": {"type": "json_schema"}})", "text.format.schema | "},
        ResponseRejection{R"("text": {"format": {"type": "xml"}})",
                          "text.format.type: \"xml\" is not supported"},
        ResponseRejection{R"("text": {"format": {"type": "json_object"}}, "regex": "a")",
                          "regex already sets"},
        ResponseRejection{R"("text": {"verbosity": "loud"})",
                          "text.verbosity \"loud\": expected one of \"low\""},
        ResponseRejection{R"("reasoning": {"summary": "concise"})",
                          "reasoning.summary: \"concise\" is not supported"},
        ResponseRejection{R"("include": ["all"])", "include holds \"all\""},
        ResponseRejection{R"("top_logprobs": 2)", "top_logprobs: only with include"},
        ResponseRejection{R"("truncation": "some")",
                          "truncation \"some\": expected one of \"auto\", \"disabled\""},
        ResponseRejection{R"("metadata": {"a": 5})", "metadata: \"a\" is 5"},
        ResponseRejection{R"("max_tokens": 5)",
                          "max_tokens: a field of /v1/chat/completions; expected max_output_tokens"},
        ResponseRejection{R"("n": 2)", "n 2: expected an integer from 1 to 1"},
        ResponseRejection{R"("prompt": {"id": "p"})", "prompt: stored prompts"},
        ResponseRejection{R"("stream_options": {})", "stream_options: only with stream true"},
        ResponseRejection{R"("stream": true, "stream_options": {"include_obfuscation": true})",
                          "expected false"}));

TEST(ResponseRequestFields, AcceptNeutralValuesAndReportUnknownOnes) {
  EXPECT_THAT(
      read_response(
          R"("background": false, "conversation": null, "context_management": [], "service_tier": "auto",
                      "prompt_cache_key": "k", "safety_identifier": "s", "max_tool_calls": 3, "unheard_of": 1)")
          .ignored,
      ElementsAre("unheard_of"));
}

TEST(ResponseRequestFields, SetTheVariablesOfTheTemplate) {
  const auto variables = [](const std::string& fields) {
    return Json::parse(read_response(fields).variables);
  };
  EXPECT_EQ(variables(R"("reasoning": {"effort": "high"})")["reasoning_effort"], "high");
  EXPECT_FALSE(variables(R"("reasoning": {"effort": "high"})").contains("enable_thinking"));
  EXPECT_EQ(variables(R"("reasoning": {"effort": "none"})")["enable_thinking"], false);
  EXPECT_EQ(variables(R"("reasoning": {"effort": "none"}, "chat_template_kwargs": {"enable_thinking": true})")
                ["enable_thinking"],
            true);
  EXPECT_EQ(
      variables(
          R"("tools": [{"type": "function", "name": "f", "description": "d", "parameters": {"type": "object"}, "strict": true},
                         {"type": "custom", "name": "c"}])")["tools"],
      Json::parse(
          R"([{"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}},
              {"type": "function", "function": {"name": "c", "parameters": {"type": "object",
                "properties": {"input": {"type": "string"}}, "required": ["input"], "additionalProperties": false}}}])"));
}

TEST(ResponseRequestFields, RestrictToolsToTheAllowedOnes) {
  const std::string tools =
      R"("tools": [{"type": "function", "name": "f"}, {"type": "function", "name": "g"}],
    "tool_choice": {"type": "allowed_tools", "mode": ")";
  const std::string g = R"(", "tools": [{"type": "function", "name": "g"}]})";
  const GenerationJob automatic = read_response(tools + "auto" + g),
                      required = read_response(tools + "required" + g);
  ASSERT_EQ(automatic.answer->tools.size(), 1u);
  EXPECT_EQ(automatic.answer->tools[0].name, "g");
  EXPECT_FALSE(automatic.grammar);
  EXPECT_THAT(required.grammar->grammar.text, testing::Not(HasSubstr("\\\"f\\\"")));
  EXPECT_EQ(Json::parse(automatic.variables)["tools"].size(), 2u) << "the prompt does not change";
}

TEST(ResponseRequestFields, AllowCallsAndTheRequestedText) {
  const GenerationJob job = read_response(
      R"("tools": [{"type": "function", "name": "f"}], "text": {"format": {"type": "json_schema", "schema": {"type": "integer"}}})");
  const Json format = Json::parse(job.grammar->grammar.text)["format"];
  EXPECT_EQ(format["type"], "or");
  EXPECT_EQ(format["elements"][0]["json_schema"], Json({{"type", "integer"}}));
  EXPECT_EQ(format["elements"][1]["at_least_one"], true);
}

// Stores a response with these items of output, as JSON.
void store_response(ResponseStore& store, const std::string& id, const std::vector<std::string>& output) {
  std::vector<ResponseItem> items;
  for (const std::string& json : output) items.push_back({Json::parse(json)["id"].get<std::string>(), json});
  store.add(
      id, "{}",
      {{"m0", R"({"id":"m0","type":"message","role":"user","content":[{"type":"input_text","text":"A"}]})"}},
      items);
}

TEST(ResponseConversation, ContinuesAStoredResponse) {
  ResponseStore store({});
  store_response(store, "resp_1",
                 {R"({"id":"f1","type":"function_call","call_id":"c","name":"f","arguments":"{}"})"});
  const std::string previous = R"("previous_response_id": "resp_1", "instructions": "B", )";
  EXPECT_EQ(
      response_messages(
          previous + R"("input": [{"type": "function_call_output", "call_id": "c", "output": "x"}])", &store),
      Json::parse(R"([{"role": "system", "content": "B"}, {"role": "user", "content": "A"},
              {"role": "assistant", "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}], "content": null},
              {"role": "tool", "tool_call_id": "c", "name": "f", "content": "x"}])"));
  EXPECT_THAT(response_error(previous + R"("input": "Hi")", &store),
              HasSubstr("no output for the call of f"));
  EXPECT_THAT(response_error(previous + R"("input": [{"id": "m0", "role": "user", "content": "A"}])", &store),
              HasSubstr("with previous_response_id, expected new items"));
  EXPECT_THAT(response_error(R"("previous_response_id": "resp_2")", &store),
              HasSubstr("previous_response_id | previous_response_id \"resp_2\": not stored"));
}

// The client does not know the items before its own.
TEST(ResponseConversation, ErrorsNameThePositionInTheRequest) {
  ResponseStore store({});
  store_response(store, "resp_1",
                 {R"({"id":"f1","type":"function_call","call_id":"c","name":"f","arguments":"{}"})",
                  R"({"id":"o1","type":"function_call_output","call_id":"c","output":"x"})"});
  const std::string previous = R"("previous_response_id": "resp_1", )";
  const std::string message = R"({"role": "user", "content": "A"})";
  EXPECT_THAT(response_error(previous + R"("input": [)" + message +
                                 R"(, {"type": "function_call_output", "call_id": "d", "output": "x"}])",
                             &store),
              HasSubstr("input[1].call_id | input[1].call_id \"d\": no earlier call"));
  EXPECT_THAT(
      response_error(previous + R"("input": [)" + message + R"(, {"role": "user", "content": 5}])", &store),
      HasSubstr("input[1].content"));
  EXPECT_THAT(response_error(previous + R"("input": [{"id": "m0", "role": "user", "content": "A"}])", &store),
              HasSubstr("input[0].id | input[0].id \"m0\""));
  EXPECT_THAT(response_error(previous + R"("input": [)" + message + R"(, {"id": "gone"}])", &store),
              HasSubstr("input[1].id | input[1].id \"gone\""));
}

// Another client might choose the same id, or guess it.
TEST(ResponseInput, IsCheckedBeforeTheModelsFormats) {
  const Json body = parse_body(R"({"tools": [{"type": "function", "name": "f"}],
      "input": [{"type": "function_call_output", "call_id": "call_9", "output": "3"}]})");
  try {
    kResponses.read(body, {}, ChatFormats{});
    FAIL() << "accepted";
  } catch (const ApiError& error) {
    EXPECT_THAT(error.message, HasSubstr("call_9"));
  }
}

TEST(ResponseInput, RefersToOutputItemsOnly) {
  ResponseStore store({});
  const std::string message =
      R"({"type": "message", "role": "user", "id": "ID", "content": [{"type": "input_text", "text": "A"}]})";
  const auto item = [&](const std::string& id, bool has_server_id) -> ResponseItem {
    return {id, std::string(message).replace(message.find("ID"), 2, id), has_server_id};
  };
  store.add("resp_1", "{}", {item("m0", false)}, {item("msg_1", true)});
  // A later response contains both as its input.
  store.add("resp_2", "{}", {item("m0", false), item("msg_1", false)}, {});
  EXPECT_EQ(response_messages(R"("input": [{"id": "msg_1"}])", &store)[0]["content"], "A");
  store.erase("resp_1");
  for (const std::string id : {"m0", "m9", "msg_1"})
    EXPECT_EQ(response_error(R"("input": [{"type": "item_reference", "id": ")" + id + R"("}])", &store),
              "input[0].id | input[0].id \"" + id + "\": no stored response has an output item with this id");
}

TEST(CustomInput, IsTheTextOfTheParameter) {
  EXPECT_EQ(custom_input(R"({"a": {"input": "no"}, "input": "l\"s\"\n\u00e9", "b": ["input", "no"]})"),
            "l\"s\"\né");
  EXPECT_EQ(custom_input(R"({"input": {"input": "a"}})"), R"({"input": {"input": "a"}})");
  EXPECT_EQ(custom_input(R"({"input": "cut)"), R"({"input": "cut)");
  EXPECT_EQ(custom_input(""), "");
}

TEST(Base64, ReadsWhatItWrites) {
  std::mt19937 random(1);
  for (size_t size = 0; size < 40; ++size) {
    std::string bytes, text;
    for (size_t i = 0; i < size; ++i) bytes += static_cast<char>(random());
    append_base64(bytes, text);
    EXPECT_EQ(text.size(), (size + 2) / 3 * 4);
    EXPECT_EQ(decode_base64(text), bytes);
  }
  for (const char* invalid : {"A", "AAA", "AAAAA", "A===", "====", "AB==A", "AA=A", "A B=", "AB=="})
    EXPECT_EQ(decode_base64(invalid), std::nullopt) << invalid;
}

// A request and its answer, as text pieces of the engine.
class ResponseStream {
 public:
  explicit ResponseStream(const std::string& fields) : job_(read_response(fields)), writer_(make()) {
    reset();
  }

  // Passes a piece to the parser and the writer.
  void push(std::string_view text, FinishReason reason = FinishReason::kNone) {
    choice_.finish_reason = reason;
    const auto& deltas =
        choice_.answer->push(text, reason == FinishReason::kNone   ? ChatAnswer::End::kNone
                                   : reason == FinishReason::kStop ? ChatAnswer::End::kComplete
                                                                   : ChatAnswer::End::kCut);
    writer_->add_events({.index = 0, .text = text, .deltas = deltas, .is_first = is_first_}, choice_,
                        events_);
    is_first_ = false;
  }
  void reset() {
    choice_ = {};
    choice_.answer = std::make_shared<ChatAnswer>(*job_.answer);
    choice_.num_prompt_tokens = 4;
    choice_.token_ids = {1, 2};
    events_.clear();
    is_first_ = true;
    writer_ = make();
  }
  Choice& choice() { return choice_; }
  ReplyWriter& writer() { return *writer_; }
  const GenerationJob& job() const { return job_; }
  Json whole() const { return Json::parse(writer_->reply({&choice_, 1})); }

  // Returns the events, after checking their form.
  std::vector<Json> events() const {
    std::vector<Json> all;
    for (size_t at = 0; at < events_.size();) {
      const size_t line = events_.find('\n', at), end = events_.find("\n\n", at);
      all.push_back(Json::parse(events_.substr(line + 7, end - line - 7)));
      EXPECT_EQ(events_.substr(at, line - at), "event: " + all.back()["type"].get<std::string>());
      EXPECT_EQ(events_.substr(line + 1, 6), "data: ");
      EXPECT_EQ(all.back()["sequence_number"], all.size() - 1);
      at = end + 2;
    }
    return all;
  }

 private:
  std::unique_ptr<ReplyWriter> make() const { return kResponses.make_writer({"resp_ab", "tiny", 5}, job_); }

  GenerationJob job_;
  std::unique_ptr<ReplyWriter> writer_;
  Choice choice_;
  std::string events_;
  bool is_first_ = true;
};

// Assembles output items from events, as clients do, and checks the order of the events.
class Assembler {
 public:
  void take(const Json& event) {
    const std::string type = event["type"].get<std::string>().substr(std::string("response.").size());
    if (type == "created" || type == "in_progress") {
      EXPECT_TRUE(output_.empty());
      EXPECT_EQ(event["response"]["status"], "in_progress");
      return;
    }
    if (type == "output_item.added") {
      EXPECT_FALSE(is_open_);
      EXPECT_EQ(event["output_index"], output_.size());
      EXPECT_EQ(event["item"]["status"], "in_progress");
      output_.push_back(event["item"]);
      is_open_ = true;
      return;
    }
    if (event.contains("response")) {
      EXPECT_FALSE(is_open_);
      response_ = event["response"];
      return;
    }
    ASSERT_TRUE(is_open_) << type;
    EXPECT_EQ(event["output_index"], output_.size() - 1);
    Json& item = output_.back();
    if (type == "output_item.done") {
      // Only the status and the encoded reasoning are not part of other events.
      item["status"] = event["item"]["status"];
      if (item.contains("encrypted_content")) item["encrypted_content"] = event["item"]["encrypted_content"];
      EXPECT_EQ(item, event["item"]);
      is_open_ = false;
      return;
    }
    EXPECT_EQ(event["item_id"], item["id"]);
    if (type == "content_part.added" || type == "reasoning_summary_part.added")
      item[type[0] == 'c' ? "content" : "summary"].push_back(event["part"]);
    else if (type == "output_text.delta" || type == "reasoning_text.delta")
      append(item["content"][0]["text"], event);
    else if (type == "reasoning_summary_text.delta")
      append(item["summary"][0]["text"], event);
    else if (type == "function_call_arguments.delta")
      append(item["arguments"], event);
    else if (type == "custom_tool_call_input.delta")
      append(item["input"], event);
    else if (type == "output_text.done" || type == "reasoning_text.done")
      EXPECT_EQ(event["text"], item["content"][0]["text"]);
    else if (type == "reasoning_summary_text.done")
      EXPECT_EQ(event["text"], item["summary"][0]["text"]);
    else if (type == "content_part.done")
      EXPECT_EQ(event["part"], item["content"][0]);
    else if (type == "reasoning_summary_part.done")
      EXPECT_EQ(event["part"], item["summary"][0]);
    else if (type == "function_call_arguments.done")
      EXPECT_EQ(event["arguments"], item["arguments"]);
    else if (type == "custom_tool_call_input.done")
      EXPECT_EQ(event["input"], item["input"]);
    else
      ADD_FAILURE() << "unknown event " << type;
  }
  const Json& output() const { return output_; }
  const Json& response() const { return response_; }

 private:
  static void append(Json& text, const Json& event) {
    EXPECT_NE(event["delta"], "");
    text = text.get<std::string>() + event["delta"].get<std::string>();
  }

  Json output_ = Json::array(), response_;
  bool is_open_ = false;
};

// Returns the value without ids of calls, which are random.
Json without_call_ids(Json output) {
  for (Json& item : output)
    if (item.contains("call_id")) item["call_id"] = "";
  return output;
}

TEST(ResponseStreamProperty, MatchesTheCompleteReplyForEverySplit) {
  const std::string tools =
      R"("tools": [{"type": "function", "name": "f"}, {"type": "custom", "name": "c"}])";
  constexpr std::string_view kPieces[] = {
      "<think>",
      "</think>",
      "Hm. ",
      "\n\n",
      "Text é ",
      "<tool_call>",
      "</tool_call>",
      "{",
      "\"",
      R"(<tool_call>{"name": "f", "arguments": {"a": [1, "b"]}}</tool_call>)",
      R"(<tool_call>{"name": "c", "arguments": {"input": "ls\n"}}</tool_call>)",
      R"(<tool_call>{"name": "g"}</tool_call>)"};
  std::mt19937 random(7);
  const auto below = [&](size_t limit) { return random() % limit; };
  size_t num_items = 0, num_calls = 0;
  for (int i = 0; i < 400; ++i) {
    std::string text;
    for (size_t j = below(9); j > 0; --j) text += kPieces[below(std::size(kPieces))];
    SCOPED_TRACE(text);
    ResponseStream stream(tools + (below(2) ? R"(, "reasoning": {"summary": "auto"})" : "") +
                          (below(2) ? R"(, "include": ["reasoning.encrypted_content"])" : "") +
                          (below(2) ? R"(, "parallel_tool_calls": false)" : ""));
    const FinishReason reason = below(3) ? FinishReason::kStop : FinishReason::kLength;
    stream.push(text, reason);
    const Json whole = stream.whole();
    stream.reset();
    for (size_t at = 0; at < text.size();) {
      size_t size = std::min(1 + below(4), text.size() - at);
      while ((text[at + size] & 0xc0) == 0x80) ++size;  // the engine never splits a character
      stream.push(std::string_view(text).substr(at, size));
      at += size;
    }
    stream.push("", reason);
    Assembler assembler;
    for (const Json& event : stream.events()) assembler.take(event);
    EXPECT_EQ(without_call_ids(assembler.output()), without_call_ids(whole["output"]));
    EXPECT_EQ(assembler.output(), assembler.response()["output"]);
    EXPECT_EQ(assembler.response()["status"], reason == FinishReason::kStop ? "completed" : "incomplete");
    for (const char* key : {"status", "usage", "incomplete_details", "tools"})
      EXPECT_EQ(assembler.response()[key], whole[key]);
    for (const Json& item : whole["output"]) num_calls += item.contains("call_id");
    num_items += whole["output"].size();
  }
  EXPECT_GT(num_items, 600u);
  EXPECT_GT(num_calls, 40u);
}

TEST(ResponseReply, RepeatsTheRequest) {
  ResponseStream stream(R"("metadata": {"a": "b"}, "max_output_tokens": 9, "user": "u", "store": false)");
  stream.push("Hello", FinishReason::kStop);
  const Json reply = stream.whole();
  EXPECT_EQ(reply["id"], "resp_ab");
  EXPECT_EQ(reply["object"], "response");
  EXPECT_EQ(reply["created_at"], 5);
  EXPECT_EQ(reply["error"], nullptr);
  EXPECT_EQ(reply["output"], Json::parse(R"([{"id": "msg_ab_0", "type": "message", "role": "assistant",
    "content": [{"type": "output_text", "text": "Hello", "annotations": [], "logprobs": []}], "status": "completed"}])"));
  EXPECT_EQ(reply["usage"], Json::parse(R"({"input_tokens": 4, "input_tokens_details": {"cached_tokens": 0},
    "output_tokens": 2, "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 6})"));
  EXPECT_EQ(reply["metadata"], Json({{"a", "b"}}));
  EXPECT_EQ(reply["max_output_tokens"], 9);
  EXPECT_EQ(reply["temperature"], 0.5);
  EXPECT_EQ(reply["text"], Json::parse(R"({"format": {"type": "text"}})"));
  EXPECT_EQ(reply["tool_choice"], "auto");
  EXPECT_EQ(reply["truncation"], "disabled");
  EXPECT_EQ(reply["store"], false);
  EXPECT_EQ(reply["user"], "u");
}

TEST(ResponseReply, HasAMessageIfTheModelOnlyReasoned) {
  ResponseStream stream("");
  stream.push("<think>Hm.</think>", FinishReason::kStop);
  const Json output = stream.whole()["output"];
  ASSERT_EQ(output.size(), 2u);
  EXPECT_EQ(output[0]["content"], Json::parse(R"([{"type": "reasoning_text", "text": "Hm."}])"));
  EXPECT_EQ(output[1]["content"][0]["text"], "");
  stream.reset();
  stream.push("<think>Hm.", FinishReason::kLength);
  EXPECT_EQ(stream.whole()["output"].size(), 1u);
  EXPECT_EQ(stream.whole()["output"][0]["status"], "incomplete");
}

TEST(ResponseReply, ReportsFailures) {
  ResponseStream stream("");
  stream.push("Hel");
  stream.choice().message = "no memory";
  stream.push("", FinishReason::kError);
  const Json last = stream.events().back();
  EXPECT_EQ(last["type"], "response.failed");
  EXPECT_EQ(last["response"]["status"], "failed");
  EXPECT_EQ(last["response"]["error"], Json::parse(R"({"code": "server_error", "message": "no memory"})"));
  EXPECT_EQ(last["response"]["output"][0]["status"], "incomplete");
  std::string events;
  stream.writer().add_failure({503, "full", "", "queue_full"}, events);
  EXPECT_THAT(events, HasSubstr(R"(event: error
data: {"type":"error","sequence_number":)"));
  EXPECT_THAT(events, HasSubstr(R"("code":"queue_full","message":"full","param":null})"));
}

TEST(ResponseReply, IsStoredWithItsConversation) {
  ResponseStore store({});
  ResponseStream stream("");
  stream.job().response->store = &store;
  stream.push("Hello", FinishReason::kStop);
  stream.writer().keep({&stream.choice(), 1});
  const auto stored = store.find("resp_ab");
  ASSERT_TRUE(stored);
  EXPECT_EQ(Json::parse(stored->json), stream.whole());
  ASSERT_EQ(stored->items.size(), 2u);
  EXPECT_EQ(stored->num_input, 1u);
  EXPECT_EQ(Json::parse(stored->items[1]->json), stream.whole()["output"][0]);
  EXPECT_EQ(response_messages(R"("previous_response_id": "resp_ab", "input": "More")", &store),
            Json::parse(R"([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"},
              {"role": "user", "content": "More"}])"));
}

TEST(ResponseReply, IsNotStoredIfTheRequestForbidsIt) {
  ResponseStore store({});
  ResponseStream stream(R"("store": false)");
  stream.job().response->store = &store;
  stream.push("Hello", FinishReason::kStop);
  stream.writer().keep({&stream.choice(), 1});
  EXPECT_EQ(store.num_responses(), 0u);
}

}  // namespace
}  // namespace attend::serve
