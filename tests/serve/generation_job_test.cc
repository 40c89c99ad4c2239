// Request bodies of the three generation endpoints: accepted fields and errors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "attend/serve/protocols/endpoint.h"

namespace attend::serve {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const SamplingDefaults kDefaults{0.5f, 0.9f, 0.0f, 40, 1.0f};

// Adds a user message unless `fields` contains messages.
GenerationJob chat(std::string fields) {
  if (fields.find("\"messages\"") == std::string::npos)
    fields = R"("messages": [{"role": "user", "content": "Hi"}])" + (fields.empty() ? "" : ", " + fields);
  return kChatCompletions.read(parse_body("{" + fields + "}"), kDefaults, {});
}
GenerationJob completion(const std::string& body) {
  return kCompletions.read(parse_body(body), kDefaults, {});
}

template <class Fn>
ApiError error_text(Fn&& fn) {
  try {
    fn();
  } catch (const ApiError& error) {
    return error;
  }
  ADD_FAILURE() << "nothing was rejected";
  return {};
}

TEST(ChatJob, UsesModelDefaultsForAbsentFields) {
  const GenerationJob job = chat("");
  EXPECT_EQ(job.params.temperature, 0.5f);
  EXPECT_EQ(job.params.top_p, 0.9f);
  EXPECT_EQ(job.params.top_k, 40);
  EXPECT_FALSE(job.has_max_tokens);
  EXPECT_FALSE(job.stream);
  EXPECT_EQ(job.params.n, 1);
}

TEST(ChatJob, TreatsNullAsAbsent) {
  const GenerationJob job = chat(
      R"("model": null, "temperature": null, "top_p": null, "n": null, "stop": null, "seed": null, "stream": null,
         "stream_options": null, "logprobs": null, "top_logprobs": null, "logit_bias": null, "tools": null,
         "tool_choice": null, "response_format": null, "max_tokens": null, "max_completion_tokens": null, "user": null)");
  EXPECT_EQ(job.params.temperature, 0.5f);
  EXPECT_FALSE(job.has_max_tokens);
}

TEST(ChatJob, AcceptsNeutralValuesOfUnsupportedFields) {
  chat(
      R"("frequency_penalty": 0, "presence_penalty": 0.0, "repetition_penalty": 1.0, "logit_bias": {}, "min_tokens": 0,
          "tools": [], "response_format": {"type": "text"}, "logprobs": false, "skip_special_tokens": true, "unheard_of": 1)");
}

TEST(ChatJob, ReportsIgnoredAndUnknownFields) {
  EXPECT_THAT(
      chat(R"("user": "u", "separate_reasoning": true, "unheard_of": 1, "store": false, "nothing": null)")
          .ignored,
      ElementsAre("unheard_of"));
}

TEST(ChatJob, ReadsPriorityAndCacheSalt) {
  const GenerationJob job = chat(R"("priority": -3, "cache_salt": "a", "extra_key": "b")");
  EXPECT_EQ(job.priority, -3);
  EXPECT_NE(job.cache_salt, chat(R"("cache_salt": "ab")").cache_salt);
  EXPECT_NE(job.cache_salt, chat(R"("extra_key": "ab")").cache_salt);
  EXPECT_EQ(chat("").cache_salt, "");
}

// The prefix cache stores salts for as long as their pages.
TEST(ChatJob, LimitsTheSizeOfSalts) {
  for (const std::string field : {"cache_salt", "extra_key"}) {
    SCOPED_TRACE(field);
    const auto salt = [&](size_t num_chars) {
      std::string text;
      for (size_t i = 0; i < num_chars; ++i) text += "é";
      return "\"" + field + "\": \"" + text + "\"";
    };
    EXPECT_NO_THROW(chat(salt(200)));
    try {
      chat(salt(201));
      ADD_FAILURE() << "accepted";
    } catch (const ApiError& error) {
      EXPECT_EQ(error.param, field);
      EXPECT_EQ(error.message, field + " of 201 characters: expected at most 200");
    }
  }
}

TEST(ChatJob, LimitsLogprobsOverAllCompletions) {
  EXPECT_NO_THROW(chat(R"("logprobs": true, "top_logprobs": 20, "max_tokens": 1000, "n": 128)"));
  EXPECT_NO_THROW(chat(R"("logprobs": false, "max_tokens": 1000000, "n": 128)"));
  try {
    chat(R"("logprobs": true, "top_logprobs": 19, "max_tokens": 2000, "n": 128)");
    ADD_FAILURE() << "accepted";
  } catch (const ApiError& error) {
    EXPECT_EQ(error.param, "logprobs");
    EXPECT_EQ(
        error.message,
        "logprobs: 128 completions of 2000 tokens with 20 logprobs each: expected at most 4000000 together");
  }
}

TEST(ChatJob, ContinuesTheLastMessage) {
  const GenerationJob job = chat(
      R"("messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "He"}], "continue_final_message": true)");
  EXPECT_EQ(job.continued, "He");
  EXPECT_EQ(Json::parse(job.variables)["messages"].size(), 2u) << "the template renders the message";
  const GenerationJob empty = chat(
      R"("messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": " "}], "continue_final_message": true)");
  EXPECT_EQ(empty.continued, "");
  EXPECT_EQ(empty.variables, R"({"messages":[{"role":"user","content":"Hi"}]})");
  EXPECT_TRUE(empty.add_generation_prompt);
}

TEST(ChatJob, ReadsEveryFieldThatTheEngineSupports) {
  const GenerationJob job = chat(
      R"("model": "m", "temperature": 0, "top_p": 0.5, "top_k": -1, "min_p": 0.1, "max_tokens": 7, "max_completion_tokens": 9,
         "n": 2, "stop": "x", "stop_token_ids": [3, 4], "ignore_eos": true, "seed": -1, "stream": true, "rid": "r",
         "stream_options": {"include_usage": true, "continuous_usage_stats": true},
         "chat_template_kwargs": {"enable_thinking": false}, "add_generation_prompt": false)");
  EXPECT_EQ(job.model, "m");
  EXPECT_EQ(job.rid, "r");
  EXPECT_EQ(job.params.temperature, 0.0f);
  EXPECT_EQ(job.params.top_k, 0);
  EXPECT_EQ(job.params.min_p, 0.1f);
  EXPECT_EQ(job.params.max_new_tokens, 9);
  EXPECT_EQ(job.params.seed, UINT64_MAX);
  EXPECT_TRUE(job.params.ignore_eos);
  EXPECT_THAT(job.params.stop, ElementsAre("x"));
  EXPECT_THAT(job.params.stop_token_ids, ElementsAre(3, 4));
  EXPECT_EQ(job.params.n, 2);
  EXPECT_TRUE(job.stream && job.include_usage && job.continuous_usage && !job.add_generation_prompt);
  EXPECT_EQ(job.variables, R"({"enable_thinking":false,"messages":[{"role":"user","content":"Hi"}]})");
}

TEST(ChatJob, ReadsLogitBiasAndLogprobs) {
  const SamplingParams params =
      chat(R"("frequency_penalty": 0.5, "presence_penalty": -1, "repetition_penalty": 1.1,
      "min_tokens": 3, "logit_bias": {"5": -100, "6": 1.5}, "logprobs": true, "top_logprobs": 2,
      "skip_special_tokens": false)")
          .params;
  EXPECT_EQ(params.frequency_penalty, 0.5f);
  EXPECT_EQ(params.presence_penalty, -1.0f);
  EXPECT_EQ(params.repetition_penalty, 1.1f);
  EXPECT_EQ(params.min_tokens, 3);
  EXPECT_THAT(params.logit_bias, ElementsAre(std::pair(5, -100.0f), std::pair(6, 1.5f)));
  EXPECT_EQ(params.logprobs, 2);
  EXPECT_FALSE(params.skip_special_tokens);
  EXPECT_EQ(completion(R"({"prompt": "a", "logprobs": 0, "echo": true})").params.prompt_logprobs, 0);
  EXPECT_FALSE(completion(R"({"prompt": "a", "echo": true})").params.logprobs);
}

TEST(ChatJob, KeepsTheOrderOfKeysForTheTemplate) {
  EXPECT_THAT(chat(R"("tools": [{"z": 1, "a": 2}], "tool_choice": "none")").variables,
              HasSubstr(R"([{"z":1,"a":2}])"));
}

struct BadField {
  std::string fields, param, message;
  std::string code = {};

  friend void PrintTo(const BadField& bad, std::ostream* out) { *out << bad.fields; }
};

class RejectedChat : public testing::TestWithParam<BadField> {};

TEST_P(RejectedChat, NamesFieldValueAndAcceptedValues) {
  const ApiError error = error_text([] { chat(GetParam().fields); });
  EXPECT_EQ(error.status, 400);
  EXPECT_EQ(error.param, GetParam().param);
  EXPECT_EQ(error.code, GetParam().code);
  EXPECT_THAT(error.message, HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    Cases, RejectedChat,
    testing::Values(
        BadField{R"("temperature": "hot")", "temperature", "temperature \"hot\": expected a number"},
        BadField{R"("temperature": -1)", "temperature", "temperature -1: expected 0 to 100"},
        BadField{R"("top_p": -1)", "top_p", "expected 0 to 1"},
        BadField{R"("top_p": 1.5)", "top_p", "expected 0 to 1"},
        BadField{R"("max_tokens": -2)", "max_tokens", "expected an integer from -1"},
        BadField{R"("max_tokens": 1.5)", "max_tokens", "expected an integer"},
        BadField{R"("max_tokens": 1e300)", "max_tokens", "expected an integer"},
        BadField{R"("n": 1000)", "n", "n 1000: expected an integer from 1 to 128"},
        BadField{R"("stream": "yes")", "stream", "expected true or false"},
        BadField{R"("stream_options": {"include_usage": true})", "stream_options", "only with stream true"},
        BadField{R"("stop": [1])", "stop", "stop holds 1: expected strings"},
        BadField{R"("stop_token_ids": [-1])", "stop_token_ids", "integers from 0"},
        BadField{R"("frequency_penalty": 2.5)", "frequency_penalty", "expected -2 to 2"},
        BadField{R"("logit_bias": {"x": 1})", "logit_bias", "is not a token id"},
        BadField{R"("logit_bias": {"5": 101})", "logit_bias", "expected -100 to 100"},
        BadField{R"("top_logprobs": 2)", "top_logprobs", "only with logprobs"},
        BadField{R"("logprobs": true, "top_logprobs": 21)", "top_logprobs", "from 0 to 20"},
        BadField{R"("tools": [{"type": "function", "function": {"name": "f"}}])", "tools",
                 "--tool-call-parser", "unsupported"},
        BadField{R"("response_format": {"type": "xml"})", "response_format", "\"json_object\"",
                 "unsupported"},
        BadField{R"("tool_choice": "required")", "tool_choice", "only with tools"},
        BadField{R"("regex": "a+", "response_format": {"type": "json_object"})", "regex",
                 "response_format already sets"},
        BadField{R"("modalities": ["text", "audio"])", "modalities", "only", "unsupported"},
        BadField{R"("rid": "a\nb")", "rid", "ASCII"}, BadField{R"("rid": "")", "rid", "1 to 200"},
        BadField{R"("continue_final_message": true)", "continue_final_message", "last message"},
        BadField{R"("priority": "high")", "priority", "an integer"},
        BadField{R"("n": 0)", "n", "from 1 to 128"},
        BadField{R"("messages": [])", "messages", "at least one message"},
        BadField{R"("messages": [{"content": "x"}])", "messages[0].role", "missing"},
        BadField{R"("messages": [{"role": "user"}])", "messages[0].content", "missing"},
        BadField{R"("messages": [{"role": "user", "content": 5}])", "messages[0].content",
                 "expected a string"},
        BadField{R"("messages": [{"role": "user", "content": [{"type": "image_url"}]}])",
                 "messages[0].content[0].image_url", "missing"},
        BadField{
            R"("messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://a/b.png"}}]}])",
            "messages[0].content[0].image_url.url", "is not fetched", "unsupported"},
        BadField{
            R"("messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png,abc"}}]}])",
            "messages[0].content[0].image_url.url", "expected \"data:image/jpeg;base64,"},
        BadField{
            R"("messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,a?"}}]}])",
            "messages[0].content[0].image_url.url", "expected an image in base64"},
        BadField{R"("messages": [{"role": "assistant", "content": [{"type": "image_url"}]}])",
                 "messages[0].content[0].type", "image_url", "unsupported"},
        BadField{R"("messages": [{"role": "user", "content": [{"type": "input_audio"}]}])",
                 "messages[0].content[0].type", "input_audio", "unsupported"}));

TEST(ChatJob, TakesImagesOutOfMessages) {
  const GenerationJob job = chat(R"("messages": [
      {"role": "user", "content": [{"type": "text", "text": "A"},
         {"type": "image_url", "image_url": {"url": "data:image/png;base64,Zmlyc3Q=", "detail": "high"}}]},
      {"role": "assistant", "content": "B"},
      {"role": "user", "content": [{"type": "image_url", "image_url": "data:image/jpeg;base64,c2Vjb25k"}]}])");
  EXPECT_THAT(job.images, ElementsAre("first", "second"));
  EXPECT_EQ(Json::parse(job.variables)["messages"], Json::parse(R"([
      {"role": "user", "content": [{"type": "text", "text": "A"}, {"type": "image"}]},
      {"role": "assistant", "content": "B"},
      {"role": "user", "content": [{"type": "image"}]}])"));
}

TEST(ChatJob, PassesRefusalsOnAsTexts) {
  const GenerationJob job = chat(
      R"("messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}])");
  EXPECT_EQ(Json::parse(job.variables)["messages"][1]["content"],
            Json::parse(R"([{"type": "text", "text": "No."}])"));
}

TEST(CompletionJob, AcceptsFourPromptForms) {
  EXPECT_THAT(completion(R"({"prompt": "a"})").prompts, ElementsAre(PromptInput("a")));
  EXPECT_THAT(completion(R"({"prompt": ["a", "b"]})").prompts,
              ElementsAre(PromptInput("a"), PromptInput("b")));
  EXPECT_THAT(completion(R"({"prompt": [1, 2]})").prompts,
              ElementsAre(PromptInput(std::vector<int32_t>{1, 2})));
  EXPECT_THAT(completion(R"({"prompt": [[1], [2]]})").prompts,
              ElementsAre(PromptInput(std::vector<int32_t>{1}), PromptInput(std::vector<int32_t>{2})));
}

TEST(CompletionJob, AcceptsIntegralFloats) {
  EXPECT_THAT(completion(R"({"prompt": [1.0, 2e0]})").prompts,
              ElementsAre(PromptInput(std::vector<int32_t>{1, 2})));
  EXPECT_EQ(error_text([] { completion(R"({"prompt": [3e9]})"); }).param, "prompt");
}

TEST(CompletionJob, DefaultsToSixteenTokensLikeOpenAi) {
  EXPECT_EQ(completion(R"({"prompt": "a"})").params.max_new_tokens, 16);
}

TEST(CompletionJob, RejectsInvalidPrompts) {
  for (const char* body : {"{}", R"({"prompt": null})", R"({"prompt": 5})", R"({"prompt": []})",
                           R"({"prompt": [[]], "best_of": 3})", R"({"prompt": ["a", 5]})",
                           R"({"prompt": [1, "a"]})", R"({"prompt": [1.5]})"})
    EXPECT_THAT(error_text([&] { completion(body); }).status, 400) << body;
}

TEST(CompletionJob, BoundsTheCompletionsOfAllPrompts) {
  std::string many = R"({"n": 128, "prompt": ["a")";
  for (int i = 1; i < 32; ++i) many += R"(, "a")";
  EXPECT_EQ(completion(many + "]}").prompts.size(), 32u);
  EXPECT_THAT(error_text([&] { completion(many + R"(, "a"]})"); }).message, HasSubstr("at most 4096"));
}

// A body of 64 MiB may contain this stop string, and every completion copies it.
TEST(CompletionJob, LimitsTheMemoryOfSamplingParameters) {
  const std::string stop = R"("stop": [")" + std::string(3 << 20, 'x') + "\"]";
  EXPECT_EQ(completion(R"({"prompt": "a", "n": 32, )" + stop + "}").params.n, 32);
  const std::string many = R"({"prompt": "a", "n": 128, )" + stop + "}";
  EXPECT_THAT(error_text([&] { completion(many); }).message, HasSubstr("at most 268435456"));
  EXPECT_EQ(error_text([&] { chat(R"("n": 128, )" + stop); }).param, "n");
}

// One bias per token of the largest vocabularies. Reading must be linear; quadratic time would need hours.
TEST(CompletionJob, ReadsLogitBiasInLinearTime) {
  constexpr int kVocabulary = 1 << 18;
  std::string body = R"({"prompt": "a", "logit_bias": {"0": null)";
  for (int id = 1; id < kVocabulary; ++id) body += ",\"" + std::to_string(id) + "\":-1";
  const SamplingParams params = completion(body + "}}").params;
  ASSERT_EQ(params.logit_bias.size(), size_t{kVocabulary});
  EXPECT_EQ(params.logit_bias.front(), std::pair(0, 0.0f));
  EXPECT_EQ(params.logit_bias.back(), std::pair(kVocabulary - 1, -1.0f));
  EXPECT_NO_THROW(check(params));
}

TEST(CompletionJob, DropsRepeatedStopTokens) {
  EXPECT_THAT(completion(R"({"prompt": "a", "stop_token_ids": [7, 5, 7, 5]})").params.stop_token_ids,
              ElementsAre(5, 7));
}

TEST(CompletionJob, AcceptsBestOfEqualToN) {
  EXPECT_EQ(completion(R"({"prompt": "a", "n": 2, "best_of": 2})").params.n, 2);
  EXPECT_EQ(completion(R"({"prompt": "a", "best_of": 1, "n": 3})").params.n, 3);
  EXPECT_EQ(error_text([] { completion(R"({"prompt": "a", "best_of": 3, "n": 2})"); }).param, "best_of");
  EXPECT_EQ(error_text([] { completion(R"({"prompt": "a", "best_of": 0})"); }).param, "best_of");
}

TEST(NativeJob, ReadsLogprobOptions) {
  const auto read = [](const std::string& fields) {
    return kGenerate.read(parse_body(R"({"text": "a", )" + fields + "}"), kDefaults, {});
  };
  EXPECT_FALSE(read(R"("return_logprob": false, "logprob_start_len": 0)").params.logprobs);
  const GenerationJob answer = read(R"("return_logprob": true, "top_logprobs_num": 2)");
  EXPECT_EQ(answer.params.logprobs, 2);
  EXPECT_FALSE(answer.params.prompt_logprobs);
  const GenerationJob prompt = read(R"("return_logprob": true, "logprob_start_len": 3)");
  EXPECT_EQ(prompt.params.prompt_logprobs, 0);
  EXPECT_EQ(prompt.logprob_start, 3);
  EXPECT_EQ(error_text([&] { read(R"("top_logprobs_num": 2)"); }).param, "top_logprobs_num");
  EXPECT_EQ(error_text([&] { read(R"("return_logprob": [true])"); }).param, "return_logprob");
  EXPECT_EQ(read(R"("lora_path": "x")").adapter, "x");
  EXPECT_EQ(read(R"("lora_path": null)").adapter, "");
  EXPECT_EQ(error_text([&] { read(R"("lora_id": 1)"); }).code, "unsupported");
}

TEST(NativeJob, ReadsTextOrIdsAndSamplingParameters) {
  const auto read = [](const char* body) { return kGenerate.read(parse_body(body), kDefaults, {}); };
  const GenerationJob one =
      read(R"({"text": "a", "sampling_params": {"max_new_tokens": 3, "temperature": 0}})");
  EXPECT_EQ(one.params.max_new_tokens, 3);
  EXPECT_FALSE(one.is_batch);
  EXPECT_TRUE(read(R"({"text": ["a"]})").is_batch);
  EXPECT_TRUE(read(R"({"input_ids": [[1], [2]]})").is_batch);
  EXPECT_FALSE(read(R"({"input_ids": [1, 2]})").is_batch);
  EXPECT_EQ(error_text([&] { read(R"({"text": "a", "input_ids": [1]})"); }).param, "input_ids");
  EXPECT_EQ(error_text([&] { read("{}"); }).param, "text");
  EXPECT_EQ(error_text([&] { read(R"({"text": "a", "sampling_params": {"top_p": 2}})"); }).param,
            "sampling_params.top_p");
}

TEST(Body, RejectsInvalidJson) {
  EXPECT_THAT(error_text([] { parse_body("{\"a\": }"); }).message,
              HasSubstr("the body: expected JSON, line 1, column 7: "));
  EXPECT_THAT(error_text([] { parse_body("[1]"); }).message, HasSubstr("expected a JSON object"));
  EXPECT_THAT(error_text([] { parse_body("{\"a\": \"\xff\"}"); }).message, HasSubstr("expected JSON"));
  EXPECT_THAT(error_text([] { parse_body("{\"a\":" + std::string(10000, '[')); }).message,
              HasSubstr("64 levels"));
  EXPECT_THAT(error_text([] { parse_body(R"({"a": 1, "a": 2})"); }).message, HasSubstr("\"a\" occurs twice"));
  EXPECT_EQ(parse_body(R"({"b": {"z": 1, "y": [2]}, "a": null})").dump(),
            R"({"b":{"z":1,"y":[2]},"a":null})");
}

TEST(Body, LimitsTheListElementsOfAField) {
  const auto list = [](size_t size, const std::string& element) {
    std::string text = "[";
    for (size_t i = 0; i < size; ++i) text += (i > 0 ? "," : "") + element;
    return text + "]";
  };
  const auto check = [](const std::string& fields, const std::string& message) {
    const std::string body = "{" + fields + "}";
    if (message.empty()) return (void)parse_body(body, 10);
    const ApiError error = error_text([&] { parse_body(body, 10); });
    EXPECT_EQ(error.message, message) << fields;
    EXPECT_EQ(error.param, message.substr(0, message.find(' ')));
  };
  const std::string limit = " list elements: expected at most 10 (--max-request-items)";
  check("\"messages\": " + list(10, "{}") + ", \"tools\": " + list(10, "\"a\""), "");
  check("\"messages\": " + list(11, "{}"), "messages has 11" + limit);
  check("\"stop\": " + list(500, "\"a\"") + ", \"messages\": " + list(11, "[]"), "stop has 500" + limit);
  check("\"messages\": [{\"content\": " + list(6, "{}") + "}, {\"content\": " + list(3, "{}") + "}]",
        "messages has 11" + limit);
  check("\"prompt\": " + list(5, list(100, "7")) + ", \"logit_bias\": {\"1\": 2, \"3\": {}}", "");
  EXPECT_THAT(error_text([] { parse_body("{\"a\": [" + std::string(90, '[')); }).message,
              HasSubstr("64 levels"));
}

TEST(SamplingDefaults, AreReadFromGenerationConfig) {
  const auto folder = std::filesystem::path(testing::TempDir()) / "generation_defaults";
  std::filesystem::create_directories(folder);
  const auto write = [&](const char* text) { std::ofstream(folder / "generation_config.json") << text; };
  write(R"({"temperature": 0.6, "top_p": 0.95, "top_k": 20, "do_sample": true})");
  EXPECT_EQ(SamplingDefaults::read(folder).temperature, 0.6f);
  EXPECT_EQ(SamplingDefaults::read(folder).top_k, 20);
  write(R"({"temperature": 0.6, "do_sample": false})");
  EXPECT_EQ(SamplingDefaults::read(folder).temperature, 0.0f);
  EXPECT_EQ(SamplingDefaults::read(testing::TempDir()).temperature, 1.0f);
}

}  // namespace
}  // namespace attend::serve
