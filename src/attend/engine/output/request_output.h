// RequestOutput: what one step gave one request.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>

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
  kError,   // it alone failed; RequestOutput::message says why
  kAbort,   // ended from outside
};
inline constexpr int kNumFinishReasons = 5;
// "stop", "length", "error", "abort"; "" while not finished.
std::string_view to_string(FinishReason reason);

using kernels::TokenLogprob;

// Of some tokens, one after another.
struct LogprobsView {
  std::span<const float> logprobs;     // of the tokens themselves
  std::span<const TokenLogprob> tops;  // [logprobs.size(), num_top]: the likeliest in their places
  int num_top = 0;

  bool empty() const { return logprobs.empty(); }
  // The likeliest in place of token i, the likeliest first.
  std::span<const TokenLogprob> top(size_t i) const {
    return tops.subspan(i * static_cast<size_t>(num_top), static_cast<size_t>(num_top));
  }
};

// A completion's outputs come in order, on the engine's thread; the last one, and no other, has a finish
// reason. All that is viewed is valid during the call alone.
struct RequestOutput {
  RequestId id;
  int index = 0;                       // which of its n completions
  std::span<const int32_t> token_ids;  // the new tokens; none where it ends without one
  std::string_view text;               // new text; never splits UTF-8, never shows the start of a stop string
  FinishReason finish_reason = FinishReason::kNone;
  std::optional<int32_t> matched_token;  // kStop: the token that ended it; the last of token_ids
  std::string_view matched_stop;         // kStop: the stop string that ended it
  std::string_view message;              // kError, kAbort: what happened
  LogprobsView logprobs;                 // of token_ids, if they were asked for
  // With the first token, if requested: of the prompt, from its second token on.
  LogprobsView prompt_logprobs;
  bool has_prompt_logprobs = false;    // true for a prompt of one token as well, which has none
  std::span<const float> vector = {};  // of a PoolingRequest's input, which has no other output
  Clock::time_point time;              // when the step had its tokens
  const Request& request;              // counts of tokens, times

  bool finished() const { return finish_reason != FinishReason::kNone; }
};
using OutputSink = std::function<void(const RequestOutput&)>;

}  // namespace attend
#pragma GCC visibility pop
