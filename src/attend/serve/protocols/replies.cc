#include "attend/serve/protocols/replies.h"

#include <algorithm>
#include <iterator>
#include <span>

#include "attend/serve/protocols/json_text.h"

namespace attend::serve {
namespace {

constexpr std::string_view kData = "data: ", kEndOfEvent = "\n\n";

size_t num_chars(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char byte) { return (byte & 0xc0) != 0x80; }));
}

std::string_view object_name(Door door, bool chunk) {
  if (door == Door::kCompletions) return "text_completion";
  return chunk ? "chat.completion.chunk" : "chat.completion";
}

void add_usage(std::span<const Choice> choices, int n, JsonText& json) {
  int64_t prompt = 0, completion = 0, cached = 0;
  for (size_t i = 0; i < choices.size(); ++i) {
    completion += std::ssize(choices[i].token_ids);
    // A prompt counts once, however often it is completed.
    if (i % static_cast<size_t>(n) != 0) continue;
    prompt += choices[i].num_prompt_tokens;
    cached += choices[i].num_cached_tokens;
  }
  json.key("usage").begin_object();
  json.key("prompt_tokens").integer(prompt);
  json.key("completion_tokens").integer(completion);
  json.key("total_tokens").integer(prompt + completion);
  json.key("prompt_tokens_details").begin_object().key("cached_tokens").integer(cached).end_object();
  json.end_object();
}

// What stopped it, as SGLang tells it.
void add_matched_stop(const Choice& choice, JsonText& json) {
  if (!choice.matched_stop.empty())
    json.text(choice.matched_stop);
  else if (choice.matched_token)
    json.integer(*choice.matched_token);
  else
    json.null();
}

void add_end(const Choice& choice, JsonText& json) {
  const bool calls =
      choice.answer && choice.answer->has_calls() && choice.finish_reason == FinishReason::kStop;
  json.key("finish_reason").text_or_null(calls ? "tool_calls" : to_string(choice.finish_reason));
  json.key("matched_stop");
  add_matched_stop(choice, json);
}

void add_native_finish_reason(const Choice& choice, JsonText& json) {
  json.key("finish_reason");
  if (choice.finish_reason == FinishReason::kNone) {
    json.null();
    return;
  }
  json.begin_object().key("type");
  if (choice.finish_reason == FinishReason::kStop) {
    json.text("stop").key("matched");
    add_matched_stop(choice, json);
  } else if (choice.finish_reason == FinishReason::kLength) {
    json.text("length").key("length").integer(std::ssize(choice.token_ids));
  } else {
    json.text("abort").key("message").text(choice.message);
    json.key("status_code").integer(choice.finish_reason == FinishReason::kError ? 500 : 400);
  }
  json.end_object();
}

void add_logprob(const std::optional<float>& logprob, JsonText& json) {
  logprob ? json.number(*logprob) : json.null();
}

void add_chat_token(std::string_view text, const std::optional<float>& logprob, JsonText& json) {
  json.key("token").text(text).key("bytes").begin_array();
  for (const char byte : text) json.integer(static_cast<unsigned char>(byte));
  json.end_array().key("logprob");
  add_logprob(logprob, json);
}

void add_chat_logprobs(std::span<const ShownToken> tokens, JsonText& json) {
  json.begin_object().key("content").begin_array();
  for (const ShownToken& token : tokens) {
    json.begin_object();
    add_chat_token(token.text, token.logprob, json);
    json.key("top_logprobs").begin_array();
    for (const LikelyToken& top : token.top) {
      json.begin_object();
      add_chat_token(top.text, top.logprob, json);
      json.end_object();
    }
    json.end_array().end_object();
  }
  json.end_array().key("refusal").null().end_object();
}

// The likeliest by their texts; of tokens that look the same, the last.
void add_tops_by_text(const ShownToken& token, JsonText& json) {
  if (!token.logprob) {
    json.null();
    return;
  }
  json.begin_object();
  for (size_t i = 0; i < token.top.size(); ++i) {
    const auto is_same = [&](const LikelyToken& other) { return other.text == token.top[i].text; };
    if (std::any_of(token.top.begin(), token.top.begin() + static_cast<std::ptrdiff_t>(i), is_same)) continue;
    const auto last = std::find_if(token.top.rbegin(), token.top.rend(), is_same);
    json.key(last->text).number(last->logprob);
  }
  json.end_object();
}

void add_completion_logprobs(std::span<const ShownToken> shown, size_t offset, JsonText& json) {
  json.begin_object().key("text_offset").begin_array();
  for (const ShownToken& token : shown) {
    json.integer(static_cast<int64_t>(offset));
    offset += num_chars(token.text);
  }
  json.end_array().key("token_logprobs").begin_array();
  for (const ShownToken& token : shown) add_logprob(token.logprob, json);
  json.end_array().key("tokens").begin_array();
  for (const ShownToken& token : shown) json.text(token.text);
  json.end_array().key("top_logprobs").begin_array();
  for (const ShownToken& token : shown) add_tops_by_text(token, json);
  json.end_array().end_object();
}

// Those that no chunk had; null where none were asked for.
void add_logprobs(Door door, const Choice& choice, const GenerationJob& job, JsonText& json) {
  const std::span<const ShownToken> shown = std::span(choice.logprobs).subspan(choice.num_logprobs_sent);
  json.key("logprobs");
  if (!job.params.logprobs)
    json.null();
  else if (door == Door::kChat)
    add_chat_logprobs(shown, json);
  else
    add_completion_logprobs(shown, choice.num_chars_sent, json);
}

// As SGLang has them: [logprob, id, text or null] for each token, and lists of these for the likeliest. The
// first of a prompt has none.
void add_native_logprobs(const Choice& choice, const GenerationJob& job, JsonText& json) {
  if (!job.params.logprobs) return;
  const auto add_triple = [&](const std::optional<float>& logprob, int32_t id, std::string_view text) {
    json.begin_array();
    add_logprob(logprob, json);
    json.integer(id);
    job.logprob_text ? json.text(text) : json.null();
    json.end_array();
  };
  const auto add = [&](std::string_view tokens_key, std::string_view tops_key, size_t first, size_t last,
                       bool of_prompt) {
    const auto is_known = [&](size_t i) { return choice.logprobs[i].logprob && !(of_prompt && i == first); };
    json.key(tokens_key).begin_array();
    for (size_t i = first; i < last; ++i) {
      const ShownToken& token = choice.logprobs[i];
      add_triple(is_known(i) ? token.logprob : std::nullopt, token.id, token.text);
    }
    json.end_array();
    if (*job.params.logprobs == 0) return;
    json.key(tops_key).begin_array();
    for (size_t i = first; i < last; ++i) {
      if (!is_known(i)) {
        json.null();
        continue;
      }
      json.begin_array();
      for (const LikelyToken& likely : choice.logprobs[i].top)
        add_triple(likely.logprob, likely.id, likely.text);
      json.end_array();
    }
    json.end_array();
  };
  const size_t num_prompt = choice.num_prompt_logprobs;
  const auto start = static_cast<size_t>(job.logprob_start.value_or(0));
  add("input_token_logprobs", "input_top_logprobs", std::min(start, num_prompt), num_prompt, true);
  add("output_token_logprobs", "output_top_logprobs", num_prompt, choice.logprobs.size(), false);
}

// Nothing without speculation, as SGLang has it.
void add_draft_counts(const DraftCounts& drafts, JsonText& json) {
  if (drafts.num_steps == 0) return;
  json.key("spec_verify_ct").integer(drafts.num_steps);
  json.key("spec_draft_token_num").integer(drafts.num_drafted);
  json.key("spec_accept_token_num").integer(drafts.num_accepted);
  json.key("spec_accept_length").number(drafts.accept_length());
  json.key("spec_accept_rate").number(drafts.accept_rate());
}

void add_native_reply(const ReplyHead& head, const Choice& choice, size_t index, const GenerationJob& job,
                      JsonText& json) {
  const bool several = job.prompts.size() * static_cast<size_t>(job.params.n) > 1;
  json.begin_object().key("text").text(choice.text).key("output_ids").begin_array();
  for (const int32_t id : choice.token_ids) json.integer(id);
  json.end_array().key("meta_info").begin_object();
  json.key("id").text(several ? head.id + "-" + std::to_string(index) : head.id);
  add_native_finish_reason(choice, json);
  json.key("prompt_tokens").integer(choice.num_prompt_tokens);
  json.key("completion_tokens").integer(std::ssize(choice.token_ids));
  json.key("cached_tokens").integer(choice.num_cached_tokens);
  json.key("e2e_latency").number(choice.seconds);
  add_draft_counts(choice.drafts, json);
  add_native_logprobs(choice, job, json);
  json.end_object();
  if (several && job.stream) json.key("index").integer(static_cast<int64_t>(index));
  json.end_object();
}

// Up to the choices.
JsonText begun(const ReplyHead& head, bool chunk) {
  JsonText json;
  json.begin_object().key("id").text(head.id).key("object").text(object_name(head.door, chunk));
  json.key("created").integer(head.created).key("model").text(head.model).key("choices").begin_array();
  return json;
}

std::string ended_chunk(JsonText& json, const Choice& choice, const GenerationJob& job) {
  json.end_object().end_array();
  if (job.continuous_usage) add_usage({&choice, 1}, 1, json);
  return json.end_object().take();
}

}  // namespace

void Choice::count_logprobs_as_sent() {
  for (; num_logprobs_sent < logprobs.size(); ++num_logprobs_sent)
    num_chars_sent += num_chars(logprobs[num_logprobs_sent].text);
}

std::string whole_reply(const ReplyHead& head, const GenerationJob& job, const std::vector<Choice>& choices) {
  if (head.door == Door::kGenerate) {
    JsonText json;
    const bool is_list = job.is_batch || job.params.n > 1;
    if (is_list) json.begin_array();
    for (size_t i = 0; i < (is_list ? choices.size() : 1); ++i)
      add_native_reply(head, choices[i], i, job, json);
    if (is_list) json.end_array();
    return json.take();
  }
  JsonText json = begun(head, false);
  for (size_t i = 0; i < choices.size(); ++i) {
    json.begin_object().key("index").integer(static_cast<int64_t>(i));
    if (head.door == Door::kChat) {
      json.key("message").begin_object().key("role").text("assistant");
      if (choices[i].answer)
        choices[i].answer->add_message(json);
      else
        json.key("content").text(choices[i].text);
      json.end_object();
    } else {
      json.key("text").text(choices[i].text);
    }
    add_logprobs(head.door, choices[i], job, json);
    add_end(choices[i], json);
    json.end_object();
  }
  json.end_array();
  add_usage(choices, job.params.n, json);
  return json.end_object().take();
}

std::string text_chunk(const ReplyHead& head, size_t index, const Choice& choice, std::string_view text,
                       bool first, const GenerationJob& job) {
  if (head.door == Door::kGenerate) {
    JsonText native;
    add_native_reply(head, choice, index, job, native);
    return native.take();
  }
  JsonText json = begun(head, true);
  json.begin_object().key("index").integer(static_cast<int64_t>(index));
  if (head.door == Door::kChat) {
    json.key("delta").begin_object();
    if (first) json.key("role").text("assistant");
    json.key("content").text(text).end_object();
  } else {
    json.key("text").text(text);
  }
  add_logprobs(head.door, choice, job, json);
  json.key("finish_reason").null();
  return ended_chunk(json, choice, job);
}

std::string answer_chunk(const ReplyHead& head, size_t index, const Choice& choice, const AnswerDelta& delta,
                         bool first, const GenerationJob& job) {
  JsonText json = begun(head, true);
  json.begin_object().key("index").integer(static_cast<int64_t>(index));
  json.key("delta").begin_object();
  if (first) json.key("role").text("assistant");
  choice.answer->add_delta(delta, json);
  json.end_object();
  add_logprobs(head.door, choice, job, json);
  json.key("finish_reason").null();
  return ended_chunk(json, choice, job);
}

std::string finish_chunk(const ReplyHead& head, size_t index, const Choice& choice,
                         const GenerationJob& job) {
  if (head.door == Door::kGenerate) return text_chunk(head, index, choice, {}, false, job);
  JsonText json = begun(head, true);
  json.begin_object().key("index").integer(static_cast<int64_t>(index));
  if (head.door == Door::kChat)
    json.key("delta").begin_object().end_object();
  else
    json.key("text").text("");
  json.key("logprobs").null();
  add_end(choice, json);
  return ended_chunk(json, choice, job);
}

std::string usage_chunk(const ReplyHead& head, const GenerationJob& job, const std::vector<Choice>& choices) {
  JsonText json = begun(head, true);
  json.end_array();
  add_usage(choices, job.params.n, json);
  return json.end_object().take();
}

std::string error_reply(const ApiError& error) {
  const auto type = [&]() -> std::string_view {
    if (error.status == 401 || error.status == 403) return "authentication_error";
    if (error.status == 404) return "not_found_error";
    if (error.status == 503) return "overloaded_error";
    return error.status >= 500 ? "internal_error" : "invalid_request_error";
  };
  JsonText json;
  json.begin_object().key("error").begin_object();
  json.key("message").text(error.message).key("type").text(type());
  json.key("param").text_or_null(error.param).key("code").text_or_null(error.code);
  return json.end_object().end_object().take();
}

PlainChunks::PlainChunks(const ReplyHead& head) : chat_(head.door == Door::kChat) {
  start_ += kData;
  start_ += "{\"id\":";
  append_quoted(head.id, start_);
  start_ += ",\"object\":";
  append_quoted(object_name(head.door, true), start_);
  start_ += ",\"created\":";
  start_ += std::to_string(head.created);
  start_ += ",\"model\":";
  append_quoted(head.model, start_);
  start_ += ",\"choices\":[{\"index\":";
}

void PlainChunks::append_event(size_t index, std::string_view text, bool first, std::string& events) const {
  events += start_;
  events += std::to_string(index);
  if (chat_)
    events += first ? R"(,"delta":{"role":"assistant","content":)" : R"(,"delta":{"content":)";
  else
    events += R"(,"text":)";
  append_quoted(text, events);
  if (chat_) events += '}';
  events += R"(,"logprobs":null,"finish_reason":null}]})";
  events += kEndOfEvent;
}

std::string event(std::string_view json) {
  std::string line(kData);
  line += json;
  line += kEndOfEvent;
  return line;
}

}  // namespace attend::serve
