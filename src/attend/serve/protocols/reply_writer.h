// ReplyWriter: the replies to one request to generate, whole or as the events of a stream, in the words of an
// API.
#pragma once

#include <ctime>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attend/engine/output/request_output.h"
#include "attend/engine/speculation/speculative_options.h"
#include "attend/serve/json/json_text.h"
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
  size_t num_logprobs_sent = 0;      // in events
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

  // An event had all logprobs that there are.
  void count_logprobs_as_sent();
};

// What all replies to one request share.
struct ReplyHead {
  std::string id;
  std::string model;
  std::time_t created = 0;
};

// Writes the replies to one request. Pure: tested without a server.
class ReplyWriter {
 public:
  virtual ~ReplyWriter() = default;

  // The whole answer. `choices` in order: those of the first prompt first.
  virtual std::string reply(std::span<const Choice> choices) const = 0;

  // What is new of a choice of a stream.
  struct News {
    size_t index = 0;
    std::string_view text;
    std::span<const AnswerDelta> deltas;  // of choice.answer
    bool is_first = false;
  };
  // Appends the events that say so, its end and its error too where choice.finish_reason is set.
  virtual void add_events(const News& news, Choice& choice, std::string& events) = 0;
  // Appends the stream's last events, after those of every choice.
  virtual void add_last_events(std::span<const Choice> choices, std::string& events) const = 0;
  // Appends the last events of a stream that can not go on.
  virtual void add_failure(const ApiError& error, std::string& events) const;
};

// One event of a stream.
std::string event(std::string_view json);
inline constexpr std::string_view kLastEvent = "data: [DONE]\n\n";

// A value: the string or the token that ended a choice, as SGLang has it, or null.
void add_matched_stop(const Choice& choice, JsonText& json);
// A value: null for none.
void add_logprob(const std::optional<float>& logprob, JsonText& json);
// Number of characters of UTF-8.
size_t num_chars(std::string_view text);

}  // namespace attend::serve
