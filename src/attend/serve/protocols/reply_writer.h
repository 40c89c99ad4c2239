// ReplyWriter: writes the reply to one generation request in the format of an API, complete or as stream
// events.
#pragma once

#include <cstdint>
#include <ctime>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attend/base/error.h"
#include "attend/engine/output/logprob_entries.h"
#include "attend/engine/output/request_output.h"
#include "attend/engine/speculation/speculative_options.h"
#include "attend/serve/json/fields.h"
#include "attend/serve/json/json_text.h"
#include "attend/serve/protocols/generation_job.h"

namespace attend::serve {

// Place where a prompt differs from the cached prefix that it shares most with; see
// Request::cache_miss_position. The texts are some tokens of the prompt before and after it.
struct CacheMiss {
  int position = 0;
  std::string before, after;
};

// One completion as far as it has been generated.
struct Choice {
  std::string text;  // complete text; with echo, it starts with the prompt
  std::vector<int32_t> token_ids;
  std::vector<ShownToken> logprobs;  // if requested; starts with the prompt's, if those were requested
  // Makes entries of `logprobs`; null until the first output.
  std::shared_ptr<LogprobEntries> entries;
  size_t num_prompt_logprobs = 0;  // number of prompt tokens in `logprobs`
  size_t num_logprobs_sent = 0;    // number already sent in events
  size_t num_chars_sent = 0;       // characters of the sent tokens: text offset of the next one
  // Sizes that events of /generate have contained.
  size_t num_text_bytes_sent = 0, num_ids_sent = 0;
  int num_prompt_tokens = 0;
  int num_cached_tokens = 0;
  int num_host_cached_tokens = 0, num_disk_cached_tokens = 0;  // parts of num_cached_tokens
  std::optional<CacheMiss> cache_miss;
  int num_reasoning_tokens = 0;  // of the reasoning that `answer` contains
  int num_unread_tokens = 0;     // since the last part of `answer`
  DraftCounts drafts;
  FinishReason finish_reason = FinishReason::kNone;
  std::optional<int32_t> matched_token;
  std::string matched_stop;
  std::string message;  // message of an error or an abort
  ErrorCode error_code = ErrorCode::kInternal;
  double seconds = 0.0;                // since the request arrived
  std::shared_ptr<ChatAnswer> answer;  // parsed answer of a chat; null: text only
  // Blocks of `answer` that the first tokens of `logprobs` belong to; kNoBlock: reasoning, calls and tags.
  std::vector<size_t> logprob_blocks;
  static constexpr size_t kNoBlock = SIZE_MAX;

  // Marks all logprobs as sent.
  void count_logprobs_as_sent();
};

// Fields that all replies to one request share.
struct ReplyHead {
  std::string id;
  std::string model;
  std::time_t created = 0;
  std::string request_id = {};  // of the header x-request-id, the log and aborts; the client may set it
};

// Writes the replies to one request. It has no side effects, so it is tested without a server.
class ReplyWriter {
 public:
  virtual ~ReplyWriter() = default;

  // Returns the complete reply. `choices` are in the order of the prompts.
  virtual std::string reply(std::span<const Choice> choices) const = 0;

  // New data of one choice of a stream.
  struct Update {
    size_t index = 0;
    std::string_view text;
    std::span<const AnswerDelta> deltas;  // new parts of choice.answer
    bool is_first = false;
  };
  // Appends the events of the new data. If choice.finish_reason is set, appends the end or error of the
  // choice too.
  virtual void add_events(const Update& update, Choice& choice, std::string& events) = 0;
  // Appends the last events of the stream, after those of all choices.
  virtual void add_last_events(std::span<const Choice> choices, std::string& events) const = 0;
  // Keeps the completions for later requests. Called after reply() or add_last_events().
  virtual void keep(std::span<const Choice>) {}
  // Appends the last events of a stream that failed.
  virtual void add_failure(const ApiError& error, std::string& events);
};

// Formats one event of a stream, with or without a name.
std::string event(std::string_view json);
std::string event(std::string_view name, std::string_view json);
inline constexpr std::string_view kLastEvent = "data: [DONE]\n\n";

// Returns the error of a choice with FinishReason::kError. `job`: its request.
ApiError failure_of(const Choice& choice, const GenerationJob& job);
// Writes the string or token that ended the choice, in SGLang's format, or null.
void add_matched_stop(const Choice& choice, JsonText& json);
// Writes a token with its bytes and the likeliest tokens, in OpenAI's format.
void add_token(const ShownToken& token, JsonText& json);
// Writes the key and the value of "cache_miss", if there is one.
void add_cache_miss(const Choice& choice, JsonText& json);
// Writes the value, or null for none.
void add_logprob(const std::optional<float>& logprob, JsonText& json);
// Returns the number of characters of the answer that the token covers.
size_t num_chars(const ShownToken& token);

}  // namespace attend::serve
