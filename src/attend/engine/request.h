// Request: one sequence on its way through the engine.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "attend/base/ids.h"
#include "attend/engine/generation_request.h"
#include "attend/engine/output/request_output.h"
#include "attend/engine/speculation/speculative_options.h"
#include "attend/kernels/sampling/sampling.h"
#include "attend/tensor/tensor.h"

#pragma GCC visibility push(default)
namespace attend {

class LogitsProcessor;

struct RequestTimes {
  Clock::time_point submitted;
  Clock::time_point admitted;  // when its pages were taken, the last time if it was preempted
  Clock::time_point first_token;
  Clock::time_point finished;
};

// Logarithms of the probabilities of tokens, as LogprobsView has them.
struct Logprobs {
  std::vector<float> logprobs;
  std::vector<TokenLogprob> tops;

  void add(float logprob, std::span<const TokenLogprob> top) {
    logprobs.push_back(logprob);
    tops.insert(tops.end(), top.begin(), top.end());
  }
};

// What is drafted for a request, and what became of its drafts (speculative decoding).
struct RequestDraft {
  std::vector<int32_t> tokens;  // that may follow Request::tokens; of the step in hand
  // The next draft is no longer than this: see Scheduler.
  int limit = std::numeric_limits<int>::max();
  DraftCounts counts;
};

// Owned by the engine's thread.
//
//   tokens  [0, num_prompt)              the prompt
//           [num_prompt, tokens.size())  what was generated
//           [0, num_computed)            K/V is in the pool
//           [num_computed, size)         to compute: one token while decoding, more while prefilling
// slots are allocated for [0, num_slots); num_computed <= num_slots.
struct Request {
  RequestId id = 0;     // of this completion
  RequestId group = 0;  // of the first completion of its prompt: what the caller knows it by
  int index = 0;        // among them
  std::vector<int32_t> tokens;
  int num_prompt = 0;
  int num_computed = 0;
  int num_slots = 0;
  RequestRow row = kPaddingRow;  // kPaddingRow: not admitted
  SamplingParams params;
  int priority = 0;                           // higher ones go first where priorities count
  std::optional<Clock::time_point> deadline;  // when it is aborted if it still waits or runs
  int64_t arrival = 0;                        // how many were submitted before
  int num_skipped = 0;                        // GenerationRequest::num_skipped
  bool pools = false;      // a PoolingRequest's: its hidden states become a vector, and it gets no token
  std::string cache_salt;  // it shares prefixes with requests of the same salt alone
  uint64_t seed = 0;
  std::shared_ptr<LogitsProcessor> logits_processor;  // null: its logits stay as they are
  std::shared_ptr<TokenMask> mask;                    // null: every token may come
  bool mask_is_late =
      false;  // it was not ready when the step was scheduled, so the request is not in the step
  Logprobs prompt_logprobs;  // if asked for: of tokens [1, logprobs.size()] of the prompt
  std::string failure;       // why its next token can not be chosen; empty: nothing is known against it
  FinishReason finish_reason = FinishReason::kNone;
  int num_preemptions = 0;
  // Tokens whose K/V others had computed. What it computed itself and lost by preemption is not among them.
  int num_cached_tokens = 0;
  int num_ever_computed = 0;  // the most that num_computed has been
  RequestDraft draft;
  RequestTimes times;

  int num_tokens() const { return static_cast<int>(tokens.size()); }
  int num_output() const { return num_tokens() - num_prompt; }
  // Tokens, from the first on, whose K/V may be others': not the last, which gives the next token, nor those
  // that still have to say how likely the next token of the prompt is, nor any whose hidden states are
  // pooled.
  int num_reusable() const {
    if (pools) return 0;
    const auto num_scored = static_cast<int>(prompt_logprobs.logprobs.size());
    return params.prompt_logprobs && num_scored < num_prompt - 1 ? num_scored : num_tokens() - 1;
  }
  int num_to_compute() const { return num_tokens() - num_computed; }
  // Returns false while the mask of the next token is being computed.
  bool mask_ready() const { return !mask || mask->ready(); }
  bool decoding() const { return num_computed >= num_prompt && num_to_compute() == 1; }
  kernels::SamplingRule sampling_rule() const;
};

// Keys that the prefix cache compares, one per token of the request: prefixes with equal keys and equal
// cache_salt share pages. The key of a token is its id, which is 0 or more. Keys are opaque to the cache. No
// token has a key below 0, so these can represent content whose K/V depend on more than the token id, such as
// an image.
View<const int32_t> prefix_keys(const Request& request);

}  // namespace attend
#pragma GCC visibility pop
