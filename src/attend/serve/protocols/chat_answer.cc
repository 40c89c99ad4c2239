#include "attend/serve/protocols/chat_answer.h"

#include <fmt/format.h>

#include <random>

namespace attend::serve {
namespace {

using Kind = AnswerPart::Kind;

std::string new_call_id() {
  std::random_device random;
  return fmt::format("call_{:08x}{:08x}{:08x}", random(), random(), random());
}

}  // namespace

ChatAnswer::ChatAnswer(const AnswerFormat& format)
    : parser_(format.tools.empty() ? make_text_parser()
                                   : make_tool_parser(format.tool_format, format.tools)) {
  if (format.reasoning) parser_ = make_reasoning_parser(format.inside_reasoning, std::move(parser_));
}

const std::vector<AnswerDelta>& ChatAnswer::push(std::string_view text, bool ends) {
  new_parts_.clear();
  deltas_.clear();
  parser_->push(text, new_parts_);
  if (ends) parser_->finish(new_parts_);
  for (const AnswerPart& part : new_parts_.all()) {
    switch (part.kind) {
      case Kind::kText:
        text_ += part.text;
        break;
      case Kind::kReasoning:
        reasoning_ += part.text;
        break;
      case Kind::kCall:
        calls_.push_back({new_call_id(), part.text, {}});
        break;
      case Kind::kArguments:
        calls_.back().arguments += part.text;
        break;
    }
    deltas_.push_back({part, calls_.empty() ? 0 : calls_.size() - 1});
  }
  return deltas_;
}

void ChatAnswer::add_message(JsonText& json) const {
  json.key("content");
  // Of an answer that is all calls, OpenAI's is null.
  text_.empty() && has_calls() ? json.null() : json.text(text_);
  if (!reasoning_.empty()) json.key("reasoning_content").text(reasoning_);
  if (!has_calls()) return;
  json.key("tool_calls").begin_array();
  for (const Call& call : calls_) {
    json.begin_object().key("id").text(call.id).key("type").text("function");
    json.key("function").begin_object().key("name").text(call.name);
    json.key("arguments").text(call.arguments).end_object().end_object();
  }
  json.end_array();
}

void ChatAnswer::add_delta(const AnswerDelta& delta, JsonText& json) const {
  const auto& [part, call] = delta;
  switch (part.kind) {
    case Kind::kText:
      json.key("content").text(part.text);
      return;
    case Kind::kReasoning:
      json.key("reasoning_content").text(part.text);
      return;
    case Kind::kCall:
    case Kind::kArguments:
      break;
  }
  const bool begins = part.kind == Kind::kCall;
  json.key("tool_calls").begin_array().begin_object().key("index").integer(static_cast<int64_t>(call));
  if (begins) json.key("id").text(calls_[call].id).key("type").text("function");
  json.key("function").begin_object();
  if (begins) json.key("name").text(part.text);
  json.key("arguments").text(begins ? "" : part.text).end_object().end_object().end_array();
}

}  // namespace attend::serve
