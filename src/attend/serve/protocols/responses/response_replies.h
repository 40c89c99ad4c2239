// Replies of POST /v1/responses: the response object, and the events of a stream. Each block of the answer is
// an output item.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "attend/serve/protocols/reply_writer.h"
#include "attend/serve/protocols/responses/response_request.h"

namespace attend::serve {

class ResponseReplies final : public ReplyWriter {
 public:
  ResponseReplies(const ReplyHead& head, const GenerationJob& job);

  std::string reply(std::span<const Choice> choices) const override;
  void add_events(const Update& update, Choice& choice, std::string& events) override;
  void add_last_events(std::span<const Choice>, std::string&) const override {}
  void add_failure(const ApiError& error, std::string& events) override;
  // Stores the response.
  void keep(std::span<const Choice> choices) override;

 private:
  // Parts of an output item that depend on its state.
  enum class State { kBegun, kDone, kCut };

  // Writes the response object; `choice`: null before the answer.
  std::string response(const Choice* choice) const;
  std::string item(const Choice& choice, size_t block, State state) const;
  std::string item_id(const AnswerBlock& block, size_t index) const;
  bool is_custom(const AnswerBlock& block) const;
  // Number of output items.
  size_t num_items(const Choice& choice) const;
  void add_part(const Choice& choice, size_t block, bool is_done, JsonText& json) const;
  void add_logprobs(const Choice& choice, size_t block, size_t first, JsonText& json) const;

  // Starts an event of an item; the caller adds fields and calls send().
  JsonText begin_event(std::string_view type);
  JsonText begin_item_event(std::string_view type, const Choice& choice, size_t block);
  void send(std::string_view type, JsonText json, std::string& events);
  void add_state_event(std::string_view type, const Choice* choice, std::string& events);
  void open_item(const Choice& choice, size_t block, std::string& events);
  void add_delta(Choice& choice, const AnswerDelta& delta, std::string& events);
  void close_item(const Choice& choice, size_t block, State state, std::string& events);

  ReplyHead head_;
  const GenerationJob& job_;
  const ResponseRequest& request_;
  size_t num_opened_ = 0;  // output items that a stream has begun; the last one is open
  int64_t sequence_number_ = 0;
};

}  // namespace attend::serve
