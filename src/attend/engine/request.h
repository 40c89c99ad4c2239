// Request: one sequence in the engine.
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
#include "attend/engine/prompt_images.h"
#include "attend/engine/speculation/speculative_options.h"
#include "attend/kernels/sampling/sampling.h"
#include "attend/tensor/tensor.h"

#pragma GCC visibility push(default)
namespace attend {

class LogitsProcessor;
struct NamedAdapter;
struct TierSearch;

struct RequestTimes {
  Clock::time_point submitted;
  Clock::time_point admitted;  // when it received pages; after a preemption, the last time
  Clock::time_point first_token;
  Clock::time_point finished;
};

// Log probabilities of tokens; the layout is that of LogprobsView.
struct Logprobs {
  std::vector<float> logprobs;
  std::vector<TokenLogprob> tops;

  void add(float logprob, std::span<const TokenLogprob> top) {
    logprobs.push_back(logprob);
    tops.insert(tops.end(), top.begin(), top.end());
  }
};

// Drafted tokens of a request, and the limits and counts of its drafts (speculative decoding).
struct RequestDraft {
  std::vector<int32_t> tokens;  // predicted tokens after Request::tokens, for the current step
  // Trees: for each token the index of the one before it, which is smaller, or -1 for the request's last
  // token. The first tokens are the most likely path. Empty: a chain.
  std::vector<int32_t> parents;
  // After the step: indices of the accepted tokens, a path from the request's last token.
  std::vector<int32_t> accepted;
  // Maximum length of the next draft: see Scheduler.
  int limit = std::numeric_limits<int>::max();
  DraftCounts counts;

  int parent(int idx) const { return parents.empty() ? idx - 1 : parents[static_cast<size_t>(idx)]; }
  void clear() {
    tokens.clear();
    parents.clear();
    accepted.clear();
  }
  // Reduces a tree to the path that its first tokens form.
  void cut_to_chain() {
    size_t length = 0;
    while (length < tokens.size() && parent(static_cast<int>(length)) == static_cast<int>(length) - 1)
      ++length;
    tokens.resize(length);
    parents.clear();
  }
};

// Owned by the engine's thread.
//
//   tokens  [0, num_prompt)              the prompt
//           [num_prompt, tokens.size())  the output
//           [0, num_computed)            K/V is in the pool
//           [num_computed, size)         to compute: 1 + num_pending tokens in decode, more in prefill
// Slots are allocated for [0, num_slots); num_computed <= num_slots.
struct Request {
  RequestId id = 0;     // id of this completion
  RequestId group = 0;  // id of the prompt's first completion, which the caller uses
  int index = 0;        // index among the prompt's completions
  std::vector<int32_t> tokens;
  int num_prompt = 0;
  // The request is recomputed as a longer prompt when it has more tokens than this, because the rotation of
  // all keys changes (longrope); 0: never. Its cache_salt is then long_salt.
  int max_rope_len = 0;
  int rope_len = 0;  // length of that prompt; 0: not recomputed
  std::string long_salt;
  int num_computed = 0;
  int num_slots = 0;
  // Accepted tokens of a tree whose K/V are not in the slots of their positions. The next step computes them
  // again, before the last token.
  int num_pending = 0;
  RequestRow row = kPaddingRow;  // kPaddingRow: not admitted
  SamplingParams params;
  int priority = 0;                           // with SchedulePolicy::kPriority, higher ones go first
  std::optional<Clock::time_point> deadline;  // the request is aborted at this time
  int64_t arrival = 0;                        // number of requests submitted before
  int num_skipped = 0;                        // GenerationRequest::num_skipped
  bool pools = false;  // from a PoolingRequest: its hidden states are pooled, and no token is sampled
  std::shared_ptr<const PromptImages> images;  // null: the prompt is text
  // By index of `images`: rows of the images that are encoded and not computed yet. Empty elements: others.
  std::vector<Tensor> encoded;
  std::vector<int32_t> keys;                    // of all tokens, if there are images: see prefix_keys()
  std::vector<int32_t> token_types;             // one per token (ModelInput::token_types); empty: all are 0
  std::shared_ptr<const NamedAdapter> adapter;  // null: none; its salt is a part of cache_salt
  std::string cache_salt;                       // prefixes are shared only with requests of the same salt
  uint64_t seed = 0;
  std::shared_ptr<LogitsProcessor> logits_processor;  // null: logits are not changed
  std::shared_ptr<TokenMask> mask;                    // null: all tokens are allowed
  bool waits_for_mask =
      false;  // the mask was not ready when the step was scheduled, so the step omits the request
  bool waits_for_copy = false;  // steps omit the request until its cached pages are copied to the pool
  Logprobs prompt_logprobs;     // if requested: of the prompt tokens [1, logprobs.size()]
  std::string failure;          // reason why no token can be sampled; empty: no failure
  ErrorCode failure_code = ErrorCode::kInternal;
  FinishReason finish_reason = FinishReason::kNone;
  int num_preemptions = 0;
  // Number of tokens with K/V that other requests had computed. Tokens that the request computed itself and
  // lost by a preemption do not count.
  int num_cached_tokens = 0;
  // Subsets of num_cached_tokens that were copied to the pool from host memory and from the disk.
  int num_host_cached_tokens = 0, num_disk_cached_tokens = 0;
  std::shared_ptr<TierSearch> tier_search;  // null: tiers below the pool were not searched
  int num_ever_computed = 0;                // maximum of num_computed so far
  // Position of the first prompt token in which the prompt differs from all cached prefixes, while the tokens
  // before it are a start of one. No value: the prompt continues a cached prefix, or nothing is cached.
  std::optional<int> cache_miss_position;
  RequestDraft draft;
  RequestTimes times;

  void append(int32_t token_id) {
    tokens.push_back(token_id);
    if (images) keys.push_back(token_id);
  }
  int num_tokens() const { return static_cast<int>(tokens.size()); }
  int num_output() const { return num_tokens() - num_prompt; }
  // Returns the length of the prefix that the request can take from the prefix cache. It excludes the last
  // token, which gives the next one, prompt tokens with a requested logprob that is not computed yet, and all
  // tokens of a pooled request.
  int num_reusable() const {
    if (pools) return 0;
    const auto num_scored = static_cast<int>(prompt_logprobs.logprobs.size());
    return params.prompt_logprobs && num_scored < num_prompt - 1 ? num_scored : num_tokens() - 1;
  }
  // Number of first tokens that can be computed: all before the next image that is not encoded.
  int encoded_end() const;
  // Returns true while an image is not encoded that the request has not computed.
  bool waits_for_image() const { return encoded_end() < num_tokens(); }
  int num_to_compute() const { return num_tokens() - num_computed; }
  // Returns false while the mask of the next token is being computed.
  bool mask_ready() const { return !mask || mask->ready(); }
  bool is_paused() const { return waits_for_mask || waits_for_copy; }
  bool decoding() const { return num_computed >= num_prompt && num_to_compute() == 1 + num_pending; }
  kernels::SamplingRule sampling_rule() const;
};

// Keys that the prefix cache compares, one per token of the request: prefixes with equal keys and equal
// cache_salt share pages. The key of a token is its id, which is 0 or more. Keys are opaque to the cache.
// Keys below 0 represent content with K/V that depend on more than the token id: image_keys(), and pairs of
// tokens (NextTokenKeys).
View<const int32_t> prefix_keys(const Request& request);

}  // namespace attend
#pragma GCC visibility pop
