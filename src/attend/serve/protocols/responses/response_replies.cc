#include "attend/serve/protocols/responses/response_replies.h"

#include <utility>

#include "attend/serve/protocols/responses/custom_input.h"
#include "attend/serve/protocols/responses/input_items.h"

namespace attend::serve {
namespace {

using PartKind = AnswerPart::Kind;

std::string_view status_of(const Choice* choice) {
  if (!choice) return "in_progress";
  switch (choice->finish_reason) {
    case FinishReason::kNone:
      return "in_progress";
    case FinishReason::kStop:
      return "completed";
    case FinishReason::kLength:
      return "incomplete";
    case FinishReason::kError:
    case FinishReason::kAbort:
      break;
  }
  return "failed";
}

// Returns true if the last item is incomplete.
bool is_cut_off(const Choice& choice) {
  return status_of(&choice) != "completed" || (choice.answer && choice.answer->is_cut_in_call());
}

// Events of the text of a block.
struct TextEvents {
  std::string_view part_added, delta, done, part_done, index;
};
constexpr TextEvents kMessageEvents = {"response.content_part.added", "response.output_text.delta",
                                       "response.output_text.done", "response.content_part.done",
                                       "content_index"};
constexpr TextEvents kReasoningEvents = {"response.content_part.added", "response.reasoning_text.delta",
                                         "response.reasoning_text.done", "response.content_part.done",
                                         "content_index"};
constexpr TextEvents kSummaryEvents = {
    "response.reasoning_summary_part.added", "response.reasoning_summary_text.delta",
    "response.reasoning_summary_text.done", "response.reasoning_summary_part.done", "summary_index"};

const TextEvents& text_events(const AnswerBlock& block, bool has_summary) {
  if (block.kind == PartKind::kText) return kMessageEvents;
  return has_summary ? kSummaryEvents : kReasoningEvents;
}

// Block of an answer without text and calls.
const AnswerBlock kEmptyMessage;

const AnswerBlock& block_at(const Choice& choice, size_t index) {
  const auto& blocks = choice.answer->blocks();
  return index < blocks.size() ? blocks[index] : kEmptyMessage;
}

void add_usage(const Choice& choice, JsonText& json) {
  const auto num_output = std::ssize(choice.token_ids);
  json.begin_object().key("input_tokens").integer(choice.num_prompt_tokens);
  json.key("input_tokens_details").begin_object();
  json.key("cached_tokens").integer(choice.num_cached_tokens);
  add_cache_miss(choice, json);
  json.end_object();
  json.key("output_tokens").integer(num_output);
  json.key("output_tokens_details").begin_object();
  json.key("reasoning_tokens").integer(choice.num_reasoning_tokens).end_object();
  json.key("total_tokens").integer(choice.num_prompt_tokens + num_output).end_object();
}

}  // namespace

ResponseReplies::ResponseReplies(const ReplyHead& head, const GenerationJob& job)
    : head_(head), job_(job), request_(*job.response) {}

bool ResponseReplies::is_custom(const AnswerBlock& block) const {
  return block.kind == PartKind::kCall && request_.custom_tools.contains(block.name);
}

// Ids derive from the response's, so that those of a stream and of a complete reply have one form.
std::string ResponseReplies::item_id(const AnswerBlock& block, size_t index) const {
  std::string id = block.kind == PartKind::kText        ? "msg_"
                   : block.kind == PartKind::kReasoning ? "rs_"
                   : is_custom(block)                   ? "ctc_"
                                                        : "fc_";
  id += std::string_view(head_.id).substr(head_.id.find('_') + 1);
  return id + '_' + std::to_string(index);
}

// A complete answer without text and calls has an empty message, which clients expect.
size_t ResponseReplies::num_items(const Choice& choice) const {
  size_t num = choice.answer->blocks().size();
  bool has_answer = choice.finish_reason != FinishReason::kStop;
  for (const AnswerBlock& block : choice.answer->blocks()) has_answer |= block.kind != PartKind::kReasoning;
  return has_answer ? num : num + 1;
}

// Writes the logprobs of the block's text from index `first` on.
void ResponseReplies::add_logprobs(const Choice& choice, size_t block, size_t first, JsonText& json) const {
  json.begin_array();
  for (size_t i = first; i < choice.logprob_blocks.size(); ++i)
    if (choice.logprob_blocks[i] == block) add_token(choice.logprobs[i], json);
  json.end_array();
}

// Writes the part of a message or of reasoning.
void ResponseReplies::add_part(const Choice& choice, size_t block, bool is_done, JsonText& json) const {
  const AnswerBlock& from = block_at(choice, block);
  const bool is_text = from.kind == PartKind::kText;
  json.begin_object().key("type");
  json.text(is_text ? "output_text" : request_.has_summary ? "summary_text" : "reasoning_text");
  json.key("text").text(is_done ? from.text : "");
  if (is_text) {
    json.key("annotations").begin_array().end_array().key("logprobs");
    add_logprobs(choice, block, is_done ? 0 : choice.logprob_blocks.size(), json);
  }
  json.end_object();
}

std::string ResponseReplies::item(const Choice& choice, size_t block, State state) const {
  const AnswerBlock& from = block_at(choice, block);
  const bool is_done = state != State::kBegun;
  JsonText json;
  json.begin_object().key("id").text(item_id(from, block)).key("type");
  const auto add_parts = [&](std::string_view key, bool has_part) {
    json.key(key).begin_array();
    if (has_part) add_part(choice, block, is_done, json);
    json.end_array();
  };
  switch (from.kind) {
    case PartKind::kText:
      json.text("message").key("role").text("assistant");
      add_parts("content", is_done);
      break;
    case PartKind::kReasoning:
      json.text("reasoning");
      add_parts("summary", is_done && request_.has_summary);
      add_parts("content", is_done && !request_.has_summary);
      if (request_.encodes_reasoning)
        json.key("encrypted_content").text(is_done ? encode_reasoning(from.text) : "");
      break;
    case PartKind::kCall:
    case PartKind::kArguments:
      json.text(is_custom(from) ? "custom_tool_call" : "function_call");
      json.key("call_id").text(from.id).key("name").text(from.name);
      if (is_custom(from))
        json.key("input").text(is_done ? custom_input(from.text) : "");
      else
        json.key("arguments").text(is_done ? from.text : "");
      break;
  }
  json.key("status").text(state == State::kBegun  ? "in_progress"
                          : state == State::kDone ? "completed"
                                                  : "incomplete");
  return json.end_object().take();
}

std::string ResponseReplies::response(const Choice* choice) const {
  const std::string_view status = status_of(choice);
  const bool has_ended = choice && choice->finish_reason != FinishReason::kNone;
  JsonText json;
  json.begin_object().key("id").text(head_.id).key("object").text("response");
  json.key("created_at").integer(head_.created).key("status").text(status).key("error");
  if (status == "failed") {
    json.begin_object().key("code").text("server_error").key("message");
    json.text(choice->message.empty() ? "the request was aborted" : choice->message).end_object();
  } else {
    json.null();
  }
  json.key("incomplete_details");
  if (status == "incomplete")
    json.begin_object().key("reason").text("max_output_tokens").end_object();
  else
    json.null();
  json.key("model").text(head_.model).key("output").begin_array();
  if (has_ended)
    for (size_t i = 0, num = num_items(*choice); i < num; ++i)
      json.raw(item(*choice, i, is_cut_off(*choice) && i + 1 == num ? State::kCut : State::kDone));
  json.end_array().key("usage");
  has_ended ? add_usage(*choice, json) : static_cast<void>(json.null());
  json.key("store").boolean(request_.is_stored);
  for (const auto& [key, value] : request_.repeated) json.key(key).raw(value);
  return json.end_object().take();
}

std::string ResponseReplies::reply(std::span<const Choice> choices) const { return response(&choices[0]); }

void ResponseReplies::keep(std::span<const Choice> choices) {
  const Choice& choice = choices[0];
  const bool is_usable =
      choice.finish_reason == FinishReason::kStop || choice.finish_reason == FinishReason::kLength;
  if (!request_.store || !request_.is_stored || !is_usable) return;
  std::vector<ResponseItem> output;
  for (size_t i = 0, num = num_items(choice); i < num; ++i) {
    const bool is_cut = is_cut_off(choice) && i + 1 == num;
    output.push_back({.id = item_id(block_at(choice, i), i),
                      .json = item(choice, i, is_cut ? State::kCut : State::kDone),
                      .has_server_id = true});
  }
  request_.store->add(head_.id, response(&choice), std::move(job_.response->input), std::move(output));
}

JsonText ResponseReplies::begin_event(std::string_view type) {
  JsonText json;
  json.begin_object().key("type").text(type).key("sequence_number").integer(sequence_number_++);
  return json;
}

JsonText ResponseReplies::begin_item_event(std::string_view type, const Choice& choice, size_t block) {
  JsonText json = begin_event(type);
  json.key("item_id").text(item_id(block_at(choice, block), block));
  json.key("output_index").integer(static_cast<int64_t>(block));
  return json;
}

void ResponseReplies::send(std::string_view type, JsonText json, std::string& events) {
  events += event(type, json.end_object().take());
}

void ResponseReplies::add_state_event(std::string_view type, const Choice* choice, std::string& events) {
  JsonText json = begin_event(type);
  json.key("response").raw(response(choice));
  send(type, std::move(json), events);
}

void ResponseReplies::open_item(const Choice& choice, size_t block, std::string& events) {
  JsonText added = begin_event("response.output_item.added");
  added.key("output_index").integer(static_cast<int64_t>(block));
  added.key("item").raw(item(choice, block, State::kBegun));
  send("response.output_item.added", std::move(added), events);
  ++num_opened_;
  const AnswerBlock& from = block_at(choice, block);
  if (from.kind == PartKind::kCall) return;
  const TextEvents& names = text_events(from, request_.has_summary);
  JsonText part = begin_item_event(names.part_added, choice, block);
  part.key(names.index).integer(0).key("part");
  add_part(choice, block, /*is_done=*/false, part);
  send(names.part_added, std::move(part), events);
}

void ResponseReplies::add_delta(Choice& choice, const AnswerDelta& delta, std::string& events) {
  const AnswerBlock& from = block_at(choice, delta.block);
  if (from.kind == PartKind::kCall) {
    // The text of a custom call is known at its end.
    if (delta.part.kind == PartKind::kCall || is_custom(from)) return;
    JsonText json = begin_item_event("response.function_call_arguments.delta", choice, delta.block);
    json.key("delta").text(delta.part.text);
    return send("response.function_call_arguments.delta", std::move(json), events);
  }
  const TextEvents& names = text_events(from, request_.has_summary);
  JsonText json = begin_item_event(names.delta, choice, delta.block);
  json.key(names.index).integer(0).key("delta").text(delta.part.text);
  if (from.kind == PartKind::kText) {
    json.key("logprobs");
    add_logprobs(choice, delta.block, choice.num_logprobs_sent, json);
    choice.num_logprobs_sent = choice.logprob_blocks.size();
  }
  send(names.delta, std::move(json), events);
}

void ResponseReplies::close_item(const Choice& choice, size_t block, State state, std::string& events) {
  const AnswerBlock& from = block_at(choice, block);
  const auto send_text = [&](std::string_view type, std::string_view key, std::string_view text) {
    JsonText json = begin_item_event(type, choice, block);
    json.key(key).text(text);
    send(type, std::move(json), events);
  };
  if (is_custom(from)) {
    const std::string input = custom_input(from.text);
    send_text("response.custom_tool_call_input.delta", "delta", input);
    send_text("response.custom_tool_call_input.done", "input", input);
  } else if (from.kind == PartKind::kCall) {
    send_text("response.function_call_arguments.done", "arguments", from.text);
  } else {
    const TextEvents& names = text_events(from, request_.has_summary);
    JsonText done = begin_item_event(names.done, choice, block);
    done.key(names.index).integer(0).key("text").text(from.text);
    if (from.kind == PartKind::kText) {
      done.key("logprobs");
      add_logprobs(choice, block, 0, done);
    }
    send(names.done, std::move(done), events);
    JsonText part = begin_item_event(names.part_done, choice, block);
    part.key(names.index).integer(0).key("part");
    add_part(choice, block, /*is_done=*/true, part);
    send(names.part_done, std::move(part), events);
  }
  JsonText json = begin_event("response.output_item.done");
  json.key("output_index").integer(static_cast<int64_t>(block));
  json.key("item").raw(item(choice, block, state));
  send("response.output_item.done", std::move(json), events);
}

void ResponseReplies::add_events(const Update& update, Choice& choice, std::string& events) {
  if (update.is_first) {
    add_state_event("response.created", nullptr, events);
    add_state_event("response.in_progress", nullptr, events);
  }
  const auto open_until = [&](size_t num) {
    while (num_opened_ < num) {
      if (num_opened_ > 0) close_item(choice, num_opened_ - 1, State::kDone, events);
      open_item(choice, num_opened_, events);
    }
  };
  for (const AnswerDelta& delta : update.deltas) {
    open_until(delta.block + 1);
    add_delta(choice, delta, events);
  }
  if (choice.finish_reason == FinishReason::kNone) return;
  open_until(num_items(choice));
  const std::string_view status = status_of(&choice);
  if (num_opened_ > 0)
    close_item(choice, num_opened_ - 1, is_cut_off(choice) ? State::kCut : State::kDone, events);
  add_state_event("response." + std::string(status), &choice, events);
}

void ResponseReplies::add_failure(const ApiError& error, std::string& events) {
  JsonText json = begin_event("error");
  json.key("code").text_or_null(error.code).key("message").text(error.message);
  json.key("param").text_or_null(error.param);
  send("error", std::move(json), events);
}

}  // namespace attend::serve
