// Replies of Anthropic's /v1/messages.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "attend/serve/protocols/endpoint.h"

namespace attend::serve {

class MessageReplies final : public ReplyWriter {
 public:
  MessageReplies(const ReplyHead& head, const GenerationJob& job) : head_(head), job_(job) {}

  // Throws ApiError if the answer was aborted: the API has no stop reason for it.
  std::string reply(std::span<const Choice> choices) const override;
  void add_events(const Update& update, Choice& choice, std::string& events) override;
  void add_last_events(std::span<const Choice> choices, std::string& events) const override;
  void add_failure(const ApiError& error, std::string& events) override;

 private:
  // Content block that is being streamed.
  struct OpenBlock {
    AnswerPart::Kind kind;
    size_t source;         // index among the blocks of the answer
    std::string thinking;  // so far
  };

  void begin_message(JsonText& json) const;
  void add_usage(const Choice& choice, bool ended, JsonText& json) const;
  void add_diagnostics(JsonText& json) const;
  void add_end(const Choice& choice, JsonText& json) const;
  void add_block(const AnswerBlock& block, JsonText& json) const;
  bool shows(AnswerPart::Kind kind) const;
  // Appends the events of a new part. `block`: the answer's block that it belongs to.
  void add_part(const AnswerPart& part, const AnswerBlock& block, size_t source, std::string& events);
  void close_block(std::string& events);
  void add_delta(std::string_view type, std::string_view key, std::string_view text,
                 std::string& events) const;

  ReplyHead head_;
  const GenerationJob& job_;
  std::optional<OpenBlock> open_;
  int64_t block_idx_ = 0;  // of the open block, or of the next one
  bool failed_ = false;    // the stream ended with an error
};

}  // namespace attend::serve
