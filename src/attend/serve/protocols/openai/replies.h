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
  void add_events(const News& news, Choice& choice, std::string& events) override;
  void add_last_events(std::span<const Choice> choices, std::string& events) const override;

  // Chunks: each is the JSON of one `data:` line. `text`: what is new. `first`: of this choice; it names the
  // role.
  std::string text_chunk(size_t index, const Choice& choice, std::string_view text, bool first) const;
  // Of one part of choice.answer.
  std::string answer_chunk(size_t index, const Choice& choice, const AnswerDelta& delta, bool first) const;
  std::string finish_chunk(size_t index, const Choice& choice) const;
  std::string usage_chunk(std::span<const Choice> choices) const;
  // event() of text_chunk(), byte for byte, where a stream's chunks are text and nothing else: written by
  // hand, as each token of each stream is one, and a Json costs as much as all else that HTTP does for a
  // token.
  void add_plain_event(size_t index, std::string_view text, bool first, std::string& events) const;

 private:
  JsonText begin_reply(bool chunk) const;
  std::string ended_chunk(JsonText& json, const Choice& choice) const;
  void add_logprobs(const Choice& choice, JsonText& json) const;

  bool is_chat_;
  ReplyHead head_;
  const GenerationJob& job_;
  std::string plain_start_;  // of events, up to the index
};

// Into an open message: its fields besides the role.
void add_message(const ChatAnswer& answer, JsonText& json);
// Into an open delta.
void add_delta(const ChatAnswer& answer, const AnswerDelta& delta, JsonText& json);

}  // namespace attend::serve
