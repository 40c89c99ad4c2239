#include "attend/serve/protocols/anthropic/replies.h"

#include <utility>

#include "attend/serve/json/partial_json.h"
#include "attend/serve/protocols/anthropic/errors.h"
#include "attend/serve/protocols/anthropic/signature.h"
#include "attend/serve/protocols/errors.h"

namespace attend::serve {
namespace {

using Kind = AnswerPart::Kind;
using Thinking = MessageOptions::Thinking;

// Error of an answer that did not end by itself, if it has one.
std::optional<ApiError> failure(const Choice& choice) {
  if (choice.finish_reason == FinishReason::kError)
    return ApiError{http_status(choice.error_code), choice.message, {}, "generation_failed"};
  if (choice.finish_reason == FinishReason::kAbort)
    return ApiError{500, choice.message.empty() ? "the request was aborted" : choice.message, {}, "aborted"};
  return std::nullopt;
}

}  // namespace

bool MessageReplies::shows(Kind kind) const {
  return job_.message.has_answer && (kind != Kind::kReasoning || job_.message.thinking != Thinking::kHidden);
}

void MessageReplies::begin_message(JsonText& json) const {
  json.begin_object().key("id").text(head_.id).key("type").text("message").key("role").text("assistant");
  json.key("model").text(head_.model).key("content").begin_array();
}

// As in Anthropic's API, the prompt is the sum of the three counts of input tokens. The prefix cache stores
// every prompt; tokens count as stored only for clients that use cache_control.
void MessageReplies::add_usage(const Choice& choice, bool ended, JsonText& json) const {
  const int num_new = choice.num_prompt_tokens - choice.num_cached_tokens;
  const bool stores = job_.message.has_cache_control;
  json.key("usage").begin_object().key("input_tokens").integer(stores ? 0 : num_new);
  json.key("cache_creation_input_tokens").integer(stores ? num_new : 0);
  json.key("cache_read_input_tokens").integer(choice.num_cached_tokens);
  json.key("output_tokens").integer(job_.message.has_answer ? std::ssize(choice.token_ids) : 0);
  add_cache_miss(choice, json);
  if (ended && choice.answer)
    json.key("output_tokens_details")
        .begin_object()
        .key("thinking_tokens")
        .integer(choice.num_reasoning_tokens)
        .end_object();
  json.end_object();
}

// The server keeps no earlier requests to compare with; usage.cache_miss compares with the whole cache.
void MessageReplies::add_diagnostics(JsonText& json) const {
  if (job_.message.wants_diagnostics)
    json.key("diagnostics").raw(R"({"cache_miss_reason":{"type":"unavailable"}})");
}

void MessageReplies::add_end(const Choice& choice, JsonText& json) const {
  const auto stop_reason = [&]() -> std::string_view {
    if (choice.finish_reason == FinishReason::kLength) {
      const bool is_context_full = std::ssize(choice.token_ids) < job_.params.max_new_tokens;
      return is_context_full ? "model_context_window_exceeded" : "max_tokens";
    }
    if (!job_.message.has_answer) return "max_tokens";
    if (!choice.matched_stop.empty()) return "stop_sequence";
    return choice.answer && choice.answer->has_calls() ? "tool_use" : "end_turn";
  };
  json.key("stop_reason").text(stop_reason());
  json.key("stop_sequence").text_or_null(choice.matched_stop);
}

void MessageReplies::add_block(const AnswerBlock& block, JsonText& json) const {
  json.begin_object().key("type");
  if (block.kind == Kind::kText) {
    json.text("text").key("text").text(block.text);
  } else if (block.kind == Kind::kReasoning) {
    const bool omitted = job_.message.thinking == Thinking::kOmitted;
    json.text("thinking").key("thinking").text(omitted ? "" : block.text);
    json.key("signature").text(sign_thinking(block.text, omitted));
  } else {
    json.text("tool_use").key("id").text(block.id).key("name").text(block.name);
    json.key("input").raw(complete_json(block.text));
  }
  json.end_object();
}

std::string MessageReplies::reply(std::span<const Choice> choices) const {
  const Choice& choice = choices.front();
  if (auto error = failure(choice)) throw std::move(*error);
  JsonText json;
  begin_message(json);
  if (choice.answer) {
    for (const AnswerBlock& block : choice.answer->blocks())
      if (shows(block.kind)) add_block(block, json);
  } else if (!choice.text.empty() && shows(Kind::kText)) {
    add_block({Kind::kText, choice.text, {}, {}}, json);
  }
  json.end_array();
  add_end(choice, json);
  add_usage(choice, /*ended=*/true, json);
  add_diagnostics(json);
  return json.end_object().take();
}

void MessageReplies::add_events(const Update& update, Choice& choice, std::string& events) {
  if (update.is_first) {
    JsonText json;
    json.begin_object().key("type").text("message_start").key("message");
    begin_message(json);
    json.end_array().key("stop_reason").null().key("stop_sequence").null();
    add_usage(choice, /*ended=*/false, json);
    add_diagnostics(json);
    events += event("message_start", json.end_object().end_object().take());
    events += event("ping", R"({"type":"ping"})");
  }
  for (const AnswerDelta& delta : update.deltas)
    add_part(delta.part, choice.answer->blocks()[delta.block], delta.block, events);
  if (!choice.answer && !update.text.empty())
    add_part({Kind::kText, std::string(update.text)}, {}, 0, events);
  if (choice.finish_reason == FinishReason::kNone) return;
  if (const auto error = failure(choice)) return add_failure(*error, events);
  close_block(events);
  JsonText json;
  json.begin_object().key("type").text("message_delta").key("delta").begin_object();
  add_end(choice, json);
  json.end_object();
  add_usage(choice, /*ended=*/true, json);
  events += event("message_delta", json.end_object().take());
}

void MessageReplies::add_last_events(std::span<const Choice>, std::string& events) const {
  if (!failed_) events += event("message_stop", R"({"type":"message_stop"})");
}

void MessageReplies::add_failure(const ApiError& error, std::string& events) {
  failed_ = true;
  events += event("error", anthropic_error_response(error, head_.request_id).body);
}

void MessageReplies::add_part(const AnswerPart& part, const AnswerBlock& block, size_t source,
                              std::string& events) {
  const Kind kind = part.kind == Kind::kArguments ? Kind::kCall : part.kind;
  if (!shows(kind)) return;
  if (!open_ || open_->source != source) {
    close_block(events);
    open_ = OpenBlock{kind, source, {}};
    JsonText json;
    json.begin_object().key("type").text("content_block_start").key("index").integer(block_idx_);
    json.key("content_block").begin_object().key("type");
    if (kind == Kind::kText)
      json.text("text").key("text").text("");
    else if (kind == Kind::kReasoning)
      json.text("thinking").key("thinking").text("").key("signature").text("");
    else
      json.text("tool_use").key("id").text(block.id).key("name").text(block.name).key("input").raw("{}");
    events += event("content_block_start", json.end_object().end_object().take());
  }
  if (part.kind == Kind::kText) return add_delta("text_delta", "text", part.text, events);
  if (part.kind == Kind::kArguments) return add_delta("input_json_delta", "partial_json", part.text, events);
  if (part.kind != Kind::kReasoning) return;
  open_->thinking += part.text;
  if (job_.message.thinking == Thinking::kShown) add_delta("thinking_delta", "thinking", part.text, events);
}

void MessageReplies::close_block(std::string& events) {
  if (!open_) return;
  if (open_->kind == Kind::kReasoning)
    add_delta("signature_delta", "signature",
              sign_thinking(open_->thinking, job_.message.thinking == Thinking::kOmitted), events);
  JsonText json;
  json.begin_object().key("type").text("content_block_stop").key("index").integer(block_idx_++);
  events += event("content_block_stop", json.end_object().take());
  open_.reset();
}

void MessageReplies::add_delta(std::string_view type, std::string_view key, std::string_view text,
                               std::string& events) const {
  JsonText json;
  json.begin_object().key("type").text("content_block_delta").key("index").integer(block_idx_);
  json.key("delta").begin_object().key("type").text(type).key(key).text(text).end_object();
  events += event("content_block_delta", json.end_object().take());
}

}  // namespace attend::serve
