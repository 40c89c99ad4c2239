// Replies of the three doors as JSON, whole and as chunks of a stream. Pure: tested without a server.
#pragma once

#include <ctime>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "attend/engine/output/request_output.h"
#include "attend/engine/speculation/draft_counts.h"
#include "attend/serve/protocols/generation_job.h"

namespace attend::serve {

// A token as it is shown, with the logarithm of its probability: none for a prompt's first.
struct LikelyToken {
  std::string text;
  int32_t id = 0;
  float logprob = 0.0f;
};
struct ShownToken {
  std::string text;
  int32_t id = 0;
  std::optional<float> logprob;
  std::vector<LikelyToken> top;  // the likeliest in its place
};

// One completion, as far as it has come.
struct Choice {
  std::string text;  // of the whole; with echo, the prompt first
  std::vector<int32_t> token_ids;
  std::vector<ShownToken> logprobs;  // if they were asked for; the prompt's first, if those were
  size_t num_prompt_logprobs = 0;    // of them
  size_t num_logprobs_sent = 0;      // in chunks
  size_t num_chars_sent = 0;         // of their texts: where the text of the next begins
  int num_prompt_tokens = 0;
  int num_cached_tokens = 0;
  DraftCounts drafts;
  FinishReason finish_reason = FinishReason::kNone;
  std::optional<int32_t> matched_token;
  std::string matched_stop;
  std::string message;                 // of an error or an abort
  double seconds = 0.0;                // since the request came
  std::shared_ptr<ChatAnswer> answer;  // of a chat whose answer is read as more than text

  // A chunk had all logprobs that there are.
  void count_logprobs_as_sent();
};

// What all replies to one request share.
struct ReplyHead {
  Door door = Door::kChat;
  std::string id;
  std::string model;
  std::time_t created = 0;
};

// The whole answer. `choices` in order: those of the first prompt first.
std::string whole_reply(const ReplyHead& head, const GenerationJob& job, const std::vector<Choice>& choices);

// Chunks: each is the JSON of one `data:` line. `text`: what is new; /generate shows the whole text each
// time, and its index where there are several. `first`: of this choice; it names the role.
std::string text_chunk(const ReplyHead& head, size_t index, const Choice& choice, std::string_view text,
                       bool first, const GenerationJob& job);
std::string finish_chunk(const ReplyHead& head, size_t index, const Choice& choice, const GenerationJob& job);
// Of one part of choice.answer.
std::string answer_chunk(const ReplyHead& head, size_t index, const Choice& choice, const AnswerDelta& delta,
                         bool first, const GenerationJob& job);
std::string usage_chunk(const ReplyHead& head, const GenerationJob& job, const std::vector<Choice>& choices);

// Chunks of text and nothing else, as each token of each stream is one: written by hand, since a Json costs
// as much as all else that HTTP does for a token.
class PlainChunks {
 public:
  explicit PlainChunks(const ReplyHead& head);
  // Whether that is all that a stream's chunks say.
  static bool can_say(Door door, const GenerationJob& job) {
    return door != Door::kGenerate && !job.params.logprobs && !job.continuous_usage && !job.answer;
  }
  // event() of text_chunk(), byte for byte.
  void append_event(size_t index, std::string_view text, bool first, std::string& events) const;

 private:
  std::string start_;  // up to the index
  bool chat_;
};

// {"error": {message, type, param, code}}
std::string error_reply(const ApiError& error);

// One event of a stream.
std::string event(std::string_view json);
inline constexpr std::string_view kLastEvent = "data: [DONE]\n\n";

}  // namespace attend::serve
