// Replies of Anthropic's /v1/messages, complete and as events.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "attend/serve/json/partial_json.h"
#include "attend/serve/protocols/anthropic/replies.h"
#include "attend/serve/protocols/anthropic/signature.h"

namespace attend::serve {
namespace {

using End = ChatAnswer::End;

const ReplyHead kHead{"msg_1", "tiny", 5, "req_1"};

GenerationJob job_with(std::string_view tools, std::string_view reasoning) {
  GenerationJob job;
  job.params.max_new_tokens = 3;
  AnswerFormat format;
  format.call_id_prefix = "toolu_";
  format.tools = {
      {"f", Json::parse(
                R"({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}})")},
      {"g", Json::object()}};
  format.tool_format = &parse_tool_format(tools);
  if (!reasoning.empty()) format.reasoning = &parse_reasoning_format(reasoning);
  job.answer = std::move(format);
  return job;
}

Choice choice_of(const GenerationJob& job) {
  Choice choice;
  choice.num_prompt_tokens = 9;
  choice.num_cached_tokens = 4;
  choice.token_ids = {1, 2, 3};
  if (job.answer) choice.answer = std::make_shared<ChatAnswer>(*job.answer);
  return choice;
}

// Events of a stream as {name, JSON}.
std::vector<std::pair<std::string, Json>> parse_events(const std::string& text) {
  std::vector<std::pair<std::string, Json>> events;
  for (size_t at = 0; at < text.size();) {
    const size_t line = text.find("\ndata: ", at), end = text.find("\n\n", at);
    EXPECT_EQ(text.substr(at, 7), "event: ");
    events.emplace_back(text.substr(at + 7, line - at - 7),
                        Json::parse(text.substr(line + 7, end - line - 7)));
    EXPECT_EQ(events.back().second["type"], events.back().first);
    at = end + 2;
  }
  return events;
}

// Message that a client assembles from the events. Checks their order.
Json assemble(const std::string& text) {
  Json message;
  std::string arguments;
  bool open = false;
  const auto events = parse_events(text);
  EXPECT_EQ(events.front().first, "message_start");
  EXPECT_EQ(events.back().first, "message_stop");
  for (const auto& [name, json] : events) {
    if (name == "message_start") {
      message = json["message"];
    } else if (name == "content_block_start") {
      EXPECT_FALSE(std::exchange(open, true));
      EXPECT_EQ(json["index"], message["content"].size());
      message["content"].push_back(json["content_block"]);
      arguments.clear();
    } else if (name == "content_block_delta") {
      EXPECT_TRUE(open);
      EXPECT_EQ(json["index"], message["content"].size() - 1);
      Json& block = message["content"].back();
      const Json& delta = json["delta"];
      if (delta["type"] == "text_delta")
        block["text"] = block["text"].get<std::string>() + delta["text"].get<std::string>();
      else if (delta["type"] == "thinking_delta")
        block["thinking"] = block["thinking"].get<std::string>() + delta["thinking"].get<std::string>();
      else if (delta["type"] == "signature_delta")
        block["signature"] = delta["signature"];
      else
        arguments += delta["partial_json"].get<std::string>();
    } else if (name == "content_block_stop") {
      EXPECT_TRUE(std::exchange(open, false));
      Json& block = message["content"].back();
      if (block["type"] == "tool_use") block["input"] = Json::parse(complete_json(arguments));
    } else if (name == "message_delta") {
      EXPECT_FALSE(open);
      for (const auto& item : json["delta"].items()) message[item.key()] = item.value();
      message["usage"] = json["usage"];
    }
  }
  return message;
}

// Streams the pieces and returns the assembled message and the complete reply of the same answer.
std::pair<Json, Json> both(const GenerationJob& job, const std::vector<std::string>& pieces,
                           FinishReason reason) {
  const auto writer = kMessages.make_writer(kHead, job);
  Choice choice = choice_of(job);
  std::string events;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const bool last = i + 1 == pieces.size();
    choice.text += pieces[i];
    if (last) choice.finish_reason = reason;
    const End end = !last ? End::kNone : reason == FinishReason::kStop ? End::kComplete : End::kCut;
    std::span<const AnswerDelta> deltas;
    if (choice.answer) deltas = choice.answer->push(pieces[i], end);
    writer->add_events({.index = 0, .text = pieces[i], .deltas = deltas, .is_first = i == 0}, choice, events);
  }
  writer->add_last_events({&choice, 1}, events);
  const Json whole = Json::parse(kMessages.make_writer(kHead, job)->reply({&choice, 1}));
  return {assemble(events), whole};
}

// Characters of a UTF-8 text: the engine never splits one.
std::vector<std::string> characters(std::string_view text) {
  std::vector<std::string> all;
  for (const char c : text) {
    const bool goes_on = (static_cast<unsigned char>(c) & 0xc0) == 0x80;
    if (!goes_on) all.emplace_back();
    all.back() += c;
  }
  return all;
}

std::string joined(std::span<const std::string> pieces) {
  std::string text;
  for (const std::string& piece : pieces) text += piece;
  return text;
}

struct Format {
  const char* tools;
  const char* reasoning;
  const char* text;
};
const Format kFormats[] = {
    {"hermes", "qwen3",
     "<think>\nI think \xc3\xa9.\n</think>\n\nLet me look. <tool_call>\n{\"name\": \"f\", \"arguments\": "
     "{\"a\": 1, "
     "\"b\": \"x\\\"y\"}}\n</tool_call><tool_call>{\"name\": \"g\", \"arguments\": {}}</tool_call> Done."},
    {"glm47", "glm45",
     "<think>plan</think>text<tool_call>f<arg_key>a</arg_key><arg_value>5</arg_value><arg_key>b</arg_key>"
     "<arg_value>z</arg_value></tool_call>"},
    {"gpt-oss", "gpt-oss",
     "<|channel|>analysis<|message|>plan<|end|><|start|>assistant<|channel|>commentary to=functions.f "
     "<|constrain|>json<|message|>{\"a\": "
     "2}<|call|><|start|>assistant<|channel|>analysis<|message|>more<|end|>"
     "<|start|>assistant<|channel|>final<|message|>answer<|return|>"},
    {"hermes", "", "Only text, no <tool_call> at all."},
};

TEST(MessageReplies, StreamedBlocksEqualTheWholeAnswerForEverySplit) {
  for (const Format& format : kFormats) {
    const GenerationJob job = job_with(format.tools, format.reasoning);
    const std::string text = format.text;
    const std::vector<std::string> all = characters(text);
    for (size_t size = 1; size <= all.size(); size += 3)
      for (const FinishReason reason : {FinishReason::kStop, FinishReason::kLength}) {
        // kLength cuts the text off after `size` characters.
        const std::vector<std::string> each(
            all.begin(), reason == FinishReason::kStop ? all.end() : all.begin() + ptrdiff_t(size));
        const std::vector<std::string> two = {joined(std::span(each).first(size / 2)),
                                              joined(std::span(each).subspan(size / 2))};
        for (const auto& pieces : {two, each}) {
          const auto [streamed, whole] = both(job, pieces, reason);
          ASSERT_EQ(streamed, whole) << format.tools << " " << size;
        }
      }
  }
}

TEST(MessageReplies, HaveTheBlocksInTheirOrder) {
  const auto [streamed, whole] = both(job_with("hermes", "qwen3"), {kFormats[0].text}, FinishReason::kStop);
  const Json& content = whole["content"];
  ASSERT_EQ(content.size(), 5u);
  EXPECT_EQ(content[0]["thinking"], "I think \xc3\xa9.");
  EXPECT_EQ(content[0]["signature"], sign_thinking("I think \xc3\xa9.", false));
  EXPECT_EQ(content[1], Json({{"type", "text"}, {"text", "Let me look."}}));
  EXPECT_TRUE(content[2]["id"].get<std::string>().starts_with("toolu_"));
  EXPECT_EQ(content[2]["input"], Json({{"a", 1}, {"b", "x\"y"}}));
  EXPECT_EQ(content[3]["input"], Json::object());
  EXPECT_EQ(content[4]["text"], " Done.");
  EXPECT_EQ(whole["stop_reason"], "tool_use");
  EXPECT_EQ(whole["stop_sequence"], nullptr);
  EXPECT_EQ(whole["role"], "assistant");
  EXPECT_EQ(whole["id"], "msg_1");
}

TEST(MessageReplies, ThinkingMayBeOmittedOrHidden) {
  GenerationJob job = job_with("hermes", "qwen3");
  job.message.thinking = MessageOptions::Thinking::kOmitted;
  auto [streamed, whole] = both(job, {"<think>pl", "an</think>hi"}, FinishReason::kStop);
  EXPECT_EQ(streamed, whole);
  EXPECT_EQ(whole["content"][0],
            Json({{"type", "thinking"}, {"thinking", ""}, {"signature", sign_thinking("plan", true)}}));
  job.message.thinking = MessageOptions::Thinking::kHidden;
  std::tie(streamed, whole) = both(job, {"<think>pl", "an</think>hi"}, FinishReason::kStop);
  EXPECT_EQ(streamed, whole);
  EXPECT_EQ(whole["content"], Json::parse(R"([{"type": "text", "text": "hi"}])"));
}

TEST(MessageReplies, StopReasonsFollowTheEndOfTheAnswer) {
  GenerationJob job;
  job.params.max_new_tokens = 3;
  const auto end_of = [&](const Choice& choice) {
    const Json reply = Json::parse(kMessages.make_writer(kHead, job)->reply({&choice, 1}));
    return reply["stop_reason"].get<std::string>() + " " + reply["stop_sequence"].dump();
  };
  Choice choice = choice_of(job);
  choice.text = "a";
  choice.finish_reason = FinishReason::kStop;
  choice.matched_token = 2;
  EXPECT_EQ(end_of(choice), "end_turn null");
  choice.matched_stop = "###";
  EXPECT_EQ(end_of(choice), "stop_sequence \"###\"");
  choice.matched_stop.clear();
  choice.finish_reason = FinishReason::kLength;
  EXPECT_EQ(end_of(choice), "max_tokens null");
  choice.token_ids.pop_back();
  EXPECT_EQ(end_of(choice), "model_context_window_exceeded null");
  job.message.has_answer = false;
  choice.token_ids = {1, 2, 3};
  const Json reply = Json::parse(kMessages.make_writer(kHead, job)->reply({&choice, 1}));
  EXPECT_EQ(reply["content"], Json::array());
  EXPECT_EQ(reply["stop_reason"], "max_tokens");
  EXPECT_EQ(reply["usage"]["output_tokens"], 0);
}

TEST(MessageReplies, UsageAddsUpToThePrompt) {
  GenerationJob job;
  Choice choice = choice_of(job);
  choice.finish_reason = FinishReason::kStop;
  const auto usage = [&] {
    return Json::parse(kMessages.make_writer(kHead, job)->reply({&choice, 1}))["usage"];
  };
  EXPECT_EQ(usage(),
            Json::parse(R"({"input_tokens": 5, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 4,
                                     "output_tokens": 3})"));
  choice.cache_miss = {6, "a ", "b"};
  EXPECT_EQ(usage()["cache_miss"], Json::parse(R"({"position": 6, "before": "a ", "after": "b"})"));
  choice.cache_miss.reset();
  job.message.has_cache_control = true;
  EXPECT_EQ(usage(),
            Json::parse(R"({"input_tokens": 0, "cache_creation_input_tokens": 5, "cache_read_input_tokens": 4,
                                     "output_tokens": 3})"));
}

TEST(MessageReplies, FailuresAreErrors) {
  const GenerationJob job;
  for (const FinishReason reason : {FinishReason::kError, FinishReason::kAbort}) {
    Choice choice = choice_of(job);
    choice.finish_reason = reason;
    choice.message = "why";
    EXPECT_THROW((void)kMessages.make_writer(kHead, job)->reply({&choice, 1}), ApiError);
    const auto writer = kMessages.make_writer(kHead, job);
    std::string events;
    writer->add_events({.index = 0, .text = {}, .deltas = {}, .is_first = true}, choice, events);
    writer->add_last_events({&choice, 1}, events);
    const auto parsed = parse_events(events);
    EXPECT_EQ(parsed.back().first, "error");
    const Json& error = parsed.back().second["error"];
    EXPECT_EQ(error["type"], "api_error");
    EXPECT_EQ(error["message"], "why");
    EXPECT_EQ(error["details"]["error_code"],
              reason == FinishReason::kError ? "generation_failed" : "aborted");
  }
}

TEST(CompleteJson, ClosesTextThatWasCutOff) {
  const std::string json = R"({"a": [1, {"b": "x\"]"}, 22], "c": {"d": null}, "e": "f"})";
  for (size_t size = 0; size <= json.size(); ++size) {
    const std::string completed = complete_json(json.substr(0, size));
    ASSERT_TRUE(Json::accept(completed)) << completed;
    if (size > 0) {
      EXPECT_TRUE(json.starts_with(completed.substr(0, completed.find_last_not_of("]}") + 1))) << completed;
    }
  }
  EXPECT_EQ(complete_json(json), json);
  EXPECT_EQ(complete_json(R"({"a": 1, "b": "x)"), R"({"a": 1})");
  EXPECT_EQ(complete_json(R"({"a": {"b": [1, 2)"), R"({"a": {"b": [1, 2]}})");
  EXPECT_EQ(complete_json(R"({"a": 1, "b": -2.5e3)"), R"({"a": 1, "b": -2.5e3})");
  EXPECT_EQ(complete_json(R"({"a": true, "b": -)"), R"({"a": true})");
  EXPECT_EQ(complete_json(R"({"a": 1, "b")"), R"({"a": 1})");
  EXPECT_EQ(complete_json(""), "{}");
}

}  // namespace
}  // namespace attend::serve
