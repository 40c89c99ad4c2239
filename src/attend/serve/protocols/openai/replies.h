// Replies of OpenAI's /v1/chat/completions and /v1/completions.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "attend/serve/protocols/endpoint.h"

namespace attend::serve {

class OpenAiReplies final : public ReplyWriter {
 public:
  enum class Kind { kChat, kCompletion };
  OpenAiReplies(Kind kind, const ReplyHead& head, const GenerationJob& job);

  std::string reply(std::span<const Choice> choices) const override;
  void add_events(const Update& update, Choice& choice, std::string& events) override;
  void add_last_events(std::span<const Choice> choices, std::string& events) const override;

  // Chunks: each is the JSON of one `data:` line. `text`: new text. `first`: first chunk of this choice,
  // which contains the role.
  std::string text_chunk(size_t index, const Choice& choice, std::string_view text, bool first) const;
  // Chunk of one part of choice.answer.
  std::string answer_chunk(size_t index, const Choice& choice, const AnswerDelta& delta, bool first) const;
  std::string finish_chunk(size_t index, const Choice& choice) const;
  std::string usage_chunk(std::span<const Choice> choices) const;
  // Appends event() of text_chunk(), byte for byte, for streams that contain only text. It does not use a
  // Json: every token of every stream is such a chunk, and a Json costs as much as the rest of the HTTP work
  // per token.
  void add_plain_event(size_t index, std::string_view text, bool first, std::string& events) const;

 private:
  JsonText begin_reply(bool chunk) const;
  std::string ended_chunk(JsonText& json, const Choice& choice) const;
  void add_logprobs(const Choice& choice, JsonText& json) const;

  bool is_chat_;
  ReplyHead head_;
  const GenerationJob& job_;
  std::string plain_start_;  // start of an event, up to the index
};

// Appends all fields of the message except the role to an open object.
void add_message(const ChatAnswer& answer, JsonText& json);
// Appends the fields of the part to an open delta object.
void add_delta(const ChatAnswer& answer, const AnswerDelta& delta, JsonText& json);

}  // namespace attend::serve
