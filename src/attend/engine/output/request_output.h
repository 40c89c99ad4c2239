// RequestOutput: output of one request in one step.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>

#include "attend/base/error.h"
#include "attend/kernels/sampling/sampling.h"

#pragma GCC visibility push(default)
namespace attend {

struct Request;
using RequestId = int64_t;
using Clock = std::chrono::steady_clock;

enum class FinishReason : uint8_t {
  kNone,    // not finished
  kStop,    // an end-of-sequence or stop token, or a stop string
  kLength,  // max_new_tokens, or the context is full
  kError,   // only this request failed; the reason is in RequestOutput::message
  kAbort,   // aborted by a caller
};
inline constexpr int kNumFinishReasons = 5;
// Returns "stop", "length", "error" or "abort"; "" while not finished.
std::string_view to_string(FinishReason reason);

using kernels::TokenLogprob;

// Logprobs of consecutive tokens.
struct LogprobsView {
  std::span<const float> logprobs;     // of the tokens themselves
  std::span<const TokenLogprob> tops;  // [logprobs.size(), num_top]: most likely tokens at each position
  int num_top = 0;

  bool empty() const { return logprobs.empty(); }
  // Most likely tokens at the position of token i, in descending order.
  std::span<const TokenLogprob> top(size_t i) const {
    return tops.subspan(i * static_cast<size_t>(num_top), static_cast<size_t>(num_top));
  }
};

// A completion's outputs are passed in order, on the engine's thread. Only the last one has a finish reason.
// All views are valid only during the call.
struct RequestOutput {
  RequestId id;
  int index = 0;                       // index among the request's n completions
  std::span<const int32_t> token_ids;  // new tokens; may be empty in the last output
  std::string_view text;               // new text; never splits UTF-8, never shows the start of a stop string
  FinishReason finish_reason = FinishReason::kNone;
  std::optional<int32_t> matched_token;         // kStop: the token that ended it; the last of token_ids
  std::string_view matched_stop;                // kStop: the stop string that ended it
  std::string_view message;                     // kError, kAbort: what happened
  ErrorCode error_code = ErrorCode::kInternal;  // kError: kInvalidArgument if the request caused it
  LogprobsView logprobs;                        // of token_ids, if requested
  // Logprobs of the prompt from its second token on, if requested, in the output of the first token.
  LogprobsView prompt_logprobs;
  bool has_prompt_logprobs = false;    // also true for a prompt of one token, which has no logprobs
  std::span<const float> vector = {};  // of a PoolingRequest's input; such a request has no other output
  Clock::time_point time;              // when the step's tokens were available
  const Request& request;              // counts of tokens, times

  bool finished() const { return finish_reason != FinishReason::kNone; }
};
using OutputSink = std::function<void(const RequestOutput&)>;

}  // namespace attend
#pragma GCC visibility pop
