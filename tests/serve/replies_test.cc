// JSON of replies and stream chunks.
#include "attend/serve/protocols/openai/replies.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "attend/serve/protocols/chat_answer.h"
#include "attend/serve/protocols/errors.h"

namespace attend::serve {
namespace {

// An endpoint and the fields that its replies share.
struct Replies {
  const Endpoint& endpoint;
  ReplyHead head;
};
const Replies kChat{kChatCompletions, {"chatcmpl-1", "tiny", 5}};
const Replies kCompletion{kCompletions, {"cmpl-1", "tiny", 5}};
const Replies kNative{kGenerate, {"1", "tiny", 5}};

std::string full_reply(const Replies& to, const GenerationJob& job, const std::vector<Choice>& choices) {
  return to.endpoint.make_writer(to.head, job)->reply(choices);
}
OpenAiReplies open_ai(const Replies& to, const GenerationJob& job) {
  using Kind = OpenAiReplies::Kind;
  return {&to.endpoint == &kChatCompletions ? Kind::kChat : Kind::kCompletion, to.head, job};
}
std::string text_chunk(const Replies& to, size_t index, const Choice& choice, std::string_view text,
                       bool first, const GenerationJob& job) {
  return open_ai(to, job).text_chunk(index, choice, text, first);
}
std::string finish_chunk(const Replies& to, size_t index, const Choice& choice, const GenerationJob& job) {
  return open_ai(to, job).finish_chunk(index, choice);
}
std::string usage_chunk(const Replies& to, const GenerationJob& job, const std::vector<Choice>& choices) {
  return open_ai(to, job).usage_chunk(choices);
}
// The single event of a /generate chunk.
std::string native_chunk(size_t index, Choice choice, std::string_view text, bool first,
                         const GenerationJob& job) {
  std::string events;
  kGenerate.make_writer(kNative.head, job)
      ->add_events({.index = index, .text = text, .deltas = {}, .is_first = first}, choice, events);
  EXPECT_TRUE(events.starts_with("data: ") && events.ends_with("\n\n")) << events;
  return events.substr(6);
}

Choice finished(FinishReason reason = FinishReason::kStop) {
  Choice choice;
  choice.text = "a \"b\"";
  choice.token_ids = {7, 8, 9};
  choice.num_prompt_tokens = 4;
  choice.finish_reason = reason;
  if (reason == FinishReason::kStop) choice.matched_token = 9;
  return choice;
}

TEST(WholeReply, WritesAChat) {
  EXPECT_EQ(
      full_reply(kChat, {}, {finished()}),
      R"({"id":"chatcmpl-1","object":"chat.completion","created":5,"model":"tiny","choices":[{"index":0,)"
      R"("message":{"role":"assistant","content":"a \"b\""},"logprobs":null,"finish_reason":"stop","matched_stop":9}],)"
      R"("usage":{"prompt_tokens":4,"completion_tokens":3,"total_tokens":7,"prompt_tokens_details":{"cached_tokens":0}}})");
}

// A stop string within a call does not make it a complete call.
TEST(WholeReply, EndsWithCallsOnlyIfTheyAreComplete) {
  const AnswerFormat format{.tools = {{"f", Json::object()}}, .tool_format = &parse_tool_format("qwen25")};
  const auto reply = [&](const std::string& text) {
    Choice choice = finished();
    choice.answer = std::make_shared<ChatAnswer>(format);
    choice.answer->push(text, ChatAnswer::End::kCut);
    choice.matched_stop = "/u";
    return Json::parse(full_reply(kChat, {}, {choice}))["choices"][0];
  };
  const std::string call = R"(<tool_call>{"name": "f", "arguments": {"b": "rm -rf /home)";
  EXPECT_EQ(reply(call)["finish_reason"], "stop");
  EXPECT_EQ(reply(call)["message"]["tool_calls"][0]["function"]["arguments"], R"({"b": "rm -rf /home)");
  EXPECT_EQ(reply(call + "\"}}")["finish_reason"], "tool_calls");
  EXPECT_EQ(reply("<tool_call>\n{\"name\": \"f")["message"]["content"], "");
}

TEST(WholeReply, CountsTheTokensOfTheReasoning) {
  const AnswerFormat format;
  Choice choice = finished();
  choice.answer = std::make_shared<ChatAnswer>(format);
  choice.num_reasoning_tokens = 2;
  const Json usage = Json::parse(full_reply(kChat, {}, {choice, choice}))["usage"];
  EXPECT_EQ(usage["completion_tokens_details"], Json::parse(R"({"reasoning_tokens": 4})"));
}

TEST(WholeReply, WritesACompletion) {
  const Json reply = Json::parse(full_reply(kCompletion, {}, {finished(FinishReason::kLength)}));
  EXPECT_EQ(reply["object"], "text_completion");
  EXPECT_EQ(reply["choices"][0]["text"], "a \"b\"");
  EXPECT_EQ(reply["choices"][0]["finish_reason"], "length");
}

TEST(WholeReply, ReportsWhereThePromptDiffersFromCachedOnes) {
  Choice choice = finished();
  const Json miss = Json::parse(R"({"position": 3, "before": "a", "after": "b"})");
  choice.cache_miss = {3, "a", "b"};
  for (const Replies& to : {kChat, kCompletion})
    EXPECT_EQ(Json::parse(full_reply(to, {}, {choice}))["usage"]["prompt_tokens_details"]["cache_miss"],
              miss);
  EXPECT_EQ(Json::parse(full_reply(kNative, {}, {choice}))["meta_info"]["cache_miss"], miss);
}

TEST(WholeReply, CountsAPromptOnceForAllItsCompletions) {
  GenerationJob job;
  job.params.n = 2;
  const Json reply = Json::parse(full_reply(kChat, job, {finished(), finished(), finished(), finished()}));
  EXPECT_EQ(reply["usage"]["prompt_tokens"], 8);
  EXPECT_EQ(reply["usage"]["completion_tokens"], 12);
  EXPECT_EQ(reply["choices"][3]["index"], 3);
}

TEST(WholeReply, GenerateReturnsAListForABatch) {
  GenerationJob job;
  const Json one = Json::parse(full_reply(kNative, job, {finished()}));
  EXPECT_EQ(one["meta_info"]["finish_reason"], Json({{"type", "stop"}, {"matched", 9}}));
  EXPECT_EQ(one["output_ids"], Json({7, 8, 9}));
  job.is_batch = true;
  EXPECT_TRUE(Json::parse(full_reply(kNative, job, {finished()})).is_array());
  const Json failed = Json::parse(full_reply(kNative, {}, {finished(FinishReason::kError)}));
  EXPECT_EQ(failed["meta_info"]["finish_reason"]["type"], "abort");
  EXPECT_EQ(failed["meta_info"]["finish_reason"]["status_code"], 500);
}

TEST(WholeReply, GenerateReportsSpeculation) {
  Choice choice = finished();
  EXPECT_FALSE(Json::parse(full_reply(kNative, {}, {choice}))["meta_info"].contains("spec_verify_ct"));
  choice.drafts = {.num_steps = 4, .num_drafted = 10, .num_accepted = 5};
  const Json meta = Json::parse(full_reply(kNative, {}, {choice}))["meta_info"];
  EXPECT_EQ(meta["spec_verify_ct"], 4);
  EXPECT_EQ(meta["spec_draft_token_num"], 10);
  EXPECT_EQ(meta["spec_accept_token_num"], 5);
  EXPECT_EQ(meta["spec_accept_length"], 2.25);
  EXPECT_EQ(meta["spec_accept_rate"], 0.5);
}

TEST(Chunks, StateTheRoleOnceAndEndWithAnEmptyDelta) {
  Choice choice = finished(FinishReason::kNone);
  EXPECT_EQ(Json::parse(text_chunk(kChat, 0, choice, "a", true, {}))["choices"][0]["delta"],
            Json({{"role", "assistant"}, {"content", "a"}}));
  EXPECT_EQ(Json::parse(text_chunk(kChat, 0, choice, "b", false, {}))["choices"][0]["delta"],
            Json({{"content", "b"}}));
  const Json last = Json::parse(finish_chunk(kChat, 0, finished(), {}))["choices"][0];
  EXPECT_EQ(last["delta"], Json::object());
  EXPECT_EQ(last["finish_reason"], "stop");
}

// Most chunks are written without the serializer. Their bytes must match it.
TEST(Chunks, HandWrittenJsonMatchesTheSerializer) {
  GenerationJob with_usage;
  with_usage.continuous_usage = true;
  const std::string texts[] = {"",
                               "a",
                               " \"b\"\\\n\t\x01\x7f",
                               "é 漢字 🙂",
                               "</script>",
                               "\xff\xc3 cut \xe6\xbc",
                               std::string("\0x", 2)};
  for (const Endpoint* endpoint : {&kChatCompletions, &kCompletions})
    for (const std::string& text : texts)
      for (const bool first : {true, false}) {
        const Replies head{*endpoint, {"id " + text, "model " + text, -7}};
        Json longer = Json::parse(text_chunk(head, 12, finished(), text, first, with_usage));
        EXPECT_EQ(longer.erase("usage"), 1u);
        EXPECT_EQ(text_chunk(head, 12, finished(), text, first, {}), longer.dump());
        std::string events = "before ";
        open_ai(head, {}).add_plain_event(12, text, first, events);
        EXPECT_EQ(events, "before " + event(longer.dump()));
      }
}

TEST(Chunks, AlwaysContainTextForCompletions) {
  // Benchmark clients read choices[0].text of every chunk.
  EXPECT_EQ(Json::parse(text_chunk(kCompletion, 1, finished(), "x", true, {}))["choices"][0]["text"], "x");
  EXPECT_EQ(Json::parse(finish_chunk(kCompletion, 1, finished(), {}))["choices"][0]["text"], "");
}

TEST(Chunks, IncludeUsageOnlyOnRequest) {
  GenerationJob job;
  EXPECT_FALSE(Json::parse(text_chunk(kChat, 0, finished(), "x", true, job)).contains("usage"));
  job.continuous_usage = true;
  EXPECT_EQ(Json::parse(text_chunk(kChat, 0, finished(), "x", true, job))["usage"]["completion_tokens"], 3);
  const Json usage = Json::parse(usage_chunk(kChat, job, {finished()}));
  EXPECT_EQ(usage["choices"], Json::array());
  EXPECT_EQ(usage["usage"]["total_tokens"], 7);
}

TEST(Chunks, GenerateSendsTheWholeTextEachTime) {
  EXPECT_EQ(Json::parse(native_chunk(0, finished(), "b\"", false, {}))["text"], "a \"b\"");
}

TEST(Logprobs, MatchTheFormatsOfChatAndCompletion) {
  GenerationJob job;
  job.params.logprobs = 1;
  Choice choice = finished();
  choice.logprobs = {{"Hi", 3, std::nullopt, {}}, {" é", 4, -0.5f, {{" é", 4, -0.5f}, {" e", 5, -2.0f}}}};
  EXPECT_EQ(Json::parse(full_reply(kChat, job, {choice}))["choices"][0]["logprobs"]["content"][1],
            Json::parse(R"({"token": " é", "bytes": [32, 195, 169], "logprob": -0.5, "top_logprobs": [
                {"token": " é", "bytes": [32, 195, 169], "logprob": -0.5}, {"token": " e", "bytes": [32, 101], "logprob": -2.0}]})"));
  EXPECT_EQ(Json::parse(full_reply(kCompletion, job, {choice}))["choices"][0]["logprobs"],
            Json::parse(R"({"text_offset": [0, 2], "token_logprobs": [null, -0.5], "tokens": ["Hi", " é"],
                "top_logprobs": [null, {" é": -0.5, " e": -2.0}]})"));
  // Offsets count characters and continue from chunk to chunk.
  choice.count_logprobs_as_sent();
  for (const char* text : {"!", "?"}) choice.logprobs.push_back({text, 6, -1.0f, {}});
  EXPECT_EQ(Json::parse(
                text_chunk(kCompletion, 0, choice, "", false, job))["choices"][0]["logprobs"]["text_offset"],
            Json({4, 5}));
}

TEST(Logprobs, GenerateReturnsTriplesForPromptAndAnswer) {
  GenerationJob job;
  job.params.logprobs = 1;
  job.logprob_start = 1;
  Choice choice = finished();
  choice.logprobs = {{"a", 3, std::nullopt, {}},
                     {"b", 4, -0.25f, {{"b", 4, -0.25f}}},
                     {"c", 5, -0.5f, {{"c", 5, -0.5f}}},
                     {"d", 6, -0.75f, {{"e", 7, -0.125f}}}};
  choice.num_prompt_logprobs = 3;
  const Json meta = Json::parse(full_reply(kNative, job, {choice}))["meta_info"];
  // The first returned token has no logprob, as in SGLang.
  EXPECT_EQ(meta["input_token_logprobs"], Json::parse("[[null, 4, null], [-0.5, 5, null]]"));
  EXPECT_EQ(meta["input_top_logprobs"], Json::parse("[null, [[-0.5, 5, null]]]"));
  EXPECT_EQ(meta["output_token_logprobs"], Json::parse("[[-0.75, 6, null]]"));
  EXPECT_EQ(meta["output_top_logprobs"], Json::parse("[[[-0.125, 7, null]]]"));
  job.logprob_text = true;
  job.logprob_start = 9;
  const Json behind = Json::parse(full_reply(kNative, job, {choice}))["meta_info"];
  EXPECT_EQ(behind["input_token_logprobs"], Json::array());
  EXPECT_EQ(behind["output_token_logprobs"][0][2], "d");
  EXPECT_FALSE(Json::parse(full_reply(kNative, {}, {choice}))["meta_info"].contains("output_token_logprobs"));
}

TEST(Chunks, GenerateIdentifiesCompletions) {
  GenerationJob job;
  job.prompts.resize(2);
  job.stream = true;
  const Json chunk = Json::parse(native_chunk(1, finished(), "", false, job));
  EXPECT_EQ(chunk["index"], 1);
  EXPECT_EQ(chunk["meta_info"]["id"], "1-1");
}

TEST(ErrorReply, HasTheFieldsThatTheOpenAiClientReads) {
  EXPECT_EQ(error_reply({400, "n 0", "n", ""}),
            R"({"error":{"message":"n 0","type":"invalid_request_error","param":"n","code":null}})");
  EXPECT_EQ(Json::parse(error_reply({503, "full", "", "queue_full"}))["error"]["type"], "overloaded_error");
  EXPECT_EQ(Json::parse(error_reply({401, "", "", ""}))["error"]["type"], "authentication_error");
  // Replies are valid JSON whatever the message quotes.
  EXPECT_TRUE(Json::accept(error_reply({400, "\xff\"", "", ""})));
}

TEST(Event, IsOneLineFollowedByAnEmptyLine) { EXPECT_EQ(event("{}"), "data: {}\n\n"); }

}  // namespace
}  // namespace attend::serve
