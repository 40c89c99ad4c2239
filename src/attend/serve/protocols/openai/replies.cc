#include "attend/serve/protocols/openai/replies.h"

#include <algorithm>
#include <iterator>
#include <span>

#include "attend/serve/protocols/errors.h"

namespace attend::serve {
namespace {

std::string_view object_name(bool is_chat, bool chunk) {
  if (!is_chat) return "text_completion";
  return chunk ? "chat.completion.chunk" : "chat.completion";
}

void add_usage(std::span<const Choice> choices, int n, JsonText& json) {
  int64_t prompt = 0, completion = 0, cached = 0, reasoning = 0;
  bool has_reasoning = false;
  for (size_t i = 0; i < choices.size(); ++i) {
    completion += std::ssize(choices[i].token_ids);
    reasoning += choices[i].num_reasoning_tokens;
    has_reasoning |= choices[i].answer != nullptr;
    // A prompt counts once, regardless of its number of completions.
    if (i % static_cast<size_t>(n) != 0) continue;
    prompt += choices[i].num_prompt_tokens;
    cached += choices[i].num_cached_tokens;
  }
  json.key("usage").begin_object();
  json.key("prompt_tokens").integer(prompt);
  json.key("completion_tokens").integer(completion);
  json.key("total_tokens").integer(prompt + completion);
  json.key("prompt_tokens_details").begin_object().key("cached_tokens").integer(cached);
  if (choices.size() == static_cast<size_t>(n)) add_cache_miss(choices.front(), json);
  json.end_object();
  if (has_reasoning)
    json.key("completion_tokens_details")
        .begin_object()
        .key("reasoning_tokens")
        .integer(reasoning)
        .end_object();
  json.end_object();
}

void add_end(const Choice& choice, JsonText& json) {
  const bool calls = choice.answer && choice.answer->has_calls() && !choice.answer->is_cut_in_call() &&
                     choice.finish_reason == FinishReason::kStop;
  json.key("finish_reason").text_or_null(calls ? "tool_calls" : to_string(choice.finish_reason));
  json.key("matched_stop");
  add_matched_stop(choice, json);
}

void add_chat_logprobs(std::span<const ShownToken> tokens, JsonText& json) {
  json.begin_object().key("content").begin_array();
  for (const ShownToken& token : tokens) add_token(token, json);
  json.end_array().key("refusal").null().end_object();
}

// Writes the most likely tokens as an object keyed by text. If texts are equal, the last token wins.
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
    offset += num_chars(token);
  }
  json.end_array().key("token_logprobs").begin_array();
  for (const ShownToken& token : shown) add_logprob(token.logprob, json);
  json.end_array().key("tokens").begin_array();
  for (const ShownToken& token : shown) json.text(token.text);
  json.end_array().key("top_logprobs").begin_array();
  for (const ShownToken& token : shown) add_tops_by_text(token, json);
  json.end_array().end_object();
}

}  // namespace

void add_message(const ChatAnswer& answer, JsonText& json) {
  const std::string text = answer.joined(AnswerPart::Kind::kText);
  const std::string reasoning = answer.joined(AnswerPart::Kind::kReasoning);
  json.key("content");
  // As in OpenAI's API, the content is null if the answer has only calls.
  text.empty() && answer.has_calls() ? json.null() : json.text(text);
  if (!reasoning.empty()) json.key("reasoning_content").text(reasoning);
  if (!answer.has_calls()) return;
  json.key("tool_calls").begin_array();
  for (const AnswerBlock& block : answer.blocks()) {
    if (block.kind != AnswerPart::Kind::kCall) continue;
    json.begin_object().key("id").text(block.id).key("type").text("function");
    json.key("function").begin_object().key("name").text(block.name);
    json.key("arguments").text(block.text).end_object().end_object();
  }
  json.end_array();
}

void add_delta(const ChatAnswer& answer, const AnswerDelta& delta, JsonText& json) {
  const AnswerPart& part = delta.part;
  switch (part.kind) {
    case AnswerPart::Kind::kText:
      json.key("content").text(part.text);
      return;
    case AnswerPart::Kind::kReasoning:
      json.key("reasoning_content").text(part.text);
      return;
    case AnswerPart::Kind::kCall:
    case AnswerPart::Kind::kArguments:
      break;
  }
  const bool begins = part.kind == AnswerPart::Kind::kCall;
  json.key("tool_calls").begin_array().begin_object().key("index").integer(static_cast<int64_t>(delta.call));
  if (begins) json.key("id").text(answer.blocks()[delta.block].id).key("type").text("function");
  json.key("function").begin_object();
  if (begins) json.key("name").text(part.text);
  json.key("arguments").text(begins ? "" : part.text).end_object().end_object().end_array();
}

OpenAiReplies::OpenAiReplies(Kind kind, const ReplyHead& head, const GenerationJob& job)
    : is_chat_(kind == Kind::kChat), head_(head), job_(job) {
  plain_start_ = "data: {\"id\":";
  append_quoted(head.id, plain_start_);
  plain_start_ += ",\"object\":";
  append_quoted(object_name(is_chat_, true), plain_start_);
  plain_start_ += ",\"created\":";
  plain_start_ += std::to_string(head.created);
  plain_start_ += ",\"model\":";
  append_quoted(head.model, plain_start_);
  plain_start_ += ",\"choices\":[{\"index\":";
}

// Writes all fields before the choices.
JsonText OpenAiReplies::begin_reply(bool chunk) const {
  JsonText json;
  json.begin_object().key("id").text(head_.id).key("object").text(object_name(is_chat_, chunk));
  json.key("created").integer(head_.created).key("model").text(head_.model).key("choices").begin_array();
  return json;
}

std::string OpenAiReplies::ended_chunk(JsonText& json, const Choice& choice) const {
  json.end_object().end_array();
  if (job_.continuous_usage) add_usage({&choice, 1}, 1, json);
  return json.end_object().take();
}

// Writes the logprobs that no chunk has contained yet, or null if none were requested.
void OpenAiReplies::add_logprobs(const Choice& choice, JsonText& json) const {
  const std::span<const ShownToken> shown = std::span(choice.logprobs).subspan(choice.num_logprobs_sent);
  json.key("logprobs");
  if (!job_.params.logprobs)
    json.null();
  else if (is_chat_)
    add_chat_logprobs(shown, json);
  else
    add_completion_logprobs(shown, choice.num_chars_sent, json);
}

std::string OpenAiReplies::reply(std::span<const Choice> choices) const {
  JsonText json = begin_reply(false);
  for (size_t i = 0; i < choices.size(); ++i) {
    json.begin_object().key("index").integer(static_cast<int64_t>(i));
    if (is_chat_) {
      json.key("message").begin_object().key("role").text("assistant");
      if (choices[i].answer)
        add_message(*choices[i].answer, json);
      else
        json.key("content").text(choices[i].text);
      json.end_object();
    } else {
      json.key("text").text(choices[i].text);
    }
    add_logprobs(choices[i], json);
    add_end(choices[i], json);
    json.end_object();
  }
  json.end_array();
  add_usage(choices, job_.params.n, json);
  return json.end_object().take();
}

std::string OpenAiReplies::text_chunk(size_t index, const Choice& choice, std::string_view text,
                                      bool first) const {
  JsonText json = begin_reply(true);
  json.begin_object().key("index").integer(static_cast<int64_t>(index));
  if (is_chat_) {
    json.key("delta").begin_object();
    if (first) json.key("role").text("assistant");
    json.key("content").text(text).end_object();
  } else {
    json.key("text").text(text);
  }
  add_logprobs(choice, json);
  json.key("finish_reason").null();
  return ended_chunk(json, choice);
}

std::string OpenAiReplies::answer_chunk(size_t index, const Choice& choice, const AnswerDelta& delta,
                                        bool first) const {
  JsonText json = begin_reply(true);
  json.begin_object().key("index").integer(static_cast<int64_t>(index));
  json.key("delta").begin_object();
  if (first) json.key("role").text("assistant");
  add_delta(*choice.answer, delta, json);
  json.end_object();
  add_logprobs(choice, json);
  json.key("finish_reason").null();
  return ended_chunk(json, choice);
}

std::string OpenAiReplies::finish_chunk(size_t index, const Choice& choice) const {
  JsonText json = begin_reply(true);
  json.begin_object().key("index").integer(static_cast<int64_t>(index));
  if (is_chat_)
    json.key("delta").begin_object().end_object();
  else
    json.key("text").text("");
  json.key("logprobs").null();
  add_end(choice, json);
  return ended_chunk(json, choice);
}

std::string OpenAiReplies::usage_chunk(std::span<const Choice> choices) const {
  JsonText json = begin_reply(true);
  json.end_array();
  add_usage(choices, job_.params.n, json);
  return json.end_object().take();
}

void OpenAiReplies::add_plain_event(size_t index, std::string_view text, bool first,
                                    std::string& events) const {
  events += plain_start_;
  events += std::to_string(index);
  if (is_chat_)
    events += first ? R"(,"delta":{"role":"assistant","content":)" : R"(,"delta":{"content":)";
  else
    events += R"(,"text":)";
  append_quoted(text, events);
  if (is_chat_) events += '}';
  events += R"(,"logprobs":null,"finish_reason":null}]})";
  events += "\n\n";
}

void OpenAiReplies::add_events(const Update& update, Choice& choice, std::string& events) {
  const bool has_logprobs = choice.logprobs.size() > choice.num_logprobs_sent;
  bool includes_role = update.is_first;
  for (const AnswerDelta& delta : update.deltas) {
    events += event(answer_chunk(update.index, choice, delta, includes_role));
    choice.count_logprobs_as_sent();
    includes_role = false;
  }
  // The first token is sent in a chunk even if a parser holds back its text.
  const std::string_view text = choice.answer ? std::string_view() : update.text;
  if ((update.is_first || !text.empty() || has_logprobs) && update.deltas.empty()) {
    const bool is_plain = !job_.params.logprobs && !job_.continuous_usage && !job_.answer;
    if (is_plain)
      add_plain_event(update.index, text, update.is_first, events);
    else
      events += event(text_chunk(update.index, choice, text, update.is_first));
    choice.count_logprobs_as_sent();
  }
  if (choice.finish_reason == FinishReason::kError)
    events += event(error_reply(failure_of(choice, job_)));
  else if (choice.finish_reason != FinishReason::kNone)
    events += event(finish_chunk(update.index, choice));
}

void OpenAiReplies::add_last_events(std::span<const Choice> choices, std::string& events) const {
  if (job_.include_usage) events += event(usage_chunk(choices));
  events += kLastEvent;
}

}  // namespace attend::serve
