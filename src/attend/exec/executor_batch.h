// ExecutorBatch: one step of a ModelExecutor, as plain data on the host.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "attend/attention/forward_batch.h"
#include "attend/base/ids.h"
#include "attend/kernels/sampling/sampling.h"
#include "attend/tensor/tensor.h"

namespace attend {

// Part of one request: its tokens [num_computed, num_computed + num_new). Their token slots are in the
// request's row.
struct ExecutorRequest {
  RequestRow row;
  int num_computed = 0;  // tokens whose K/V is in the cache before the step
  int num_new = 0;
  int prompt_len = 0;      // ModelInput::prompt_lens
  int num_logit_rows = 0;  // last new tokens whose logits are computed
};

// First `num_keys` keys of the first `num_reqs` requests, which are the same slots. Whole pages, fewer keys
// than any of the requests has; 0: none, or too few to count.
struct SharedPrefix {
  int num_keys = 0, num_reqs = 0;
  bool operator==(const SharedPrefix&) const = default;
};

// Token ids that a step before this one on the stream computes: they replace those of the tokens from
// `first_token` on when the stream gets there. Where an id is negative (there is no token), the request's
// results have no meaning.
struct LateTokenIds {
  int first_token = 0;
  TensorView ids;  // int32 [count], in memory that the device reads
};

struct ExecutorBatch {
  ForwardMode mode = ForwardMode::kIdle;
  std::vector<ExecutorRequest> requests;
  std::vector<int32_t> token_ids;            // [num_tokens]: new tokens of all requests, in their order
  std::vector<LateTokenIds> late_token_ids;  // empty: all ids are known
  // [rows of logits]: uploaded with the step's arrays, for the sampler.
  std::vector<kernels::SamplingRule> rules;
  SharedPrefix shared;         // decode steps
  bool prefix_ready = false;   // ForwardBatch::prefix_ready
  bool hidden_states = false;  // also returns the hidden states of all tokens

  int num_tokens() const { return static_cast<int>(token_ids.size()); }
};

// Results of a step, on the executor's stream. Valid until the next launch.
struct ExecutorOutput {
  std::chrono::steady_clock::time_point launched;  // when the step's arrays were filled
  TensorView logits;  // f32 [rows of logits, vocab_size]: one row per rule, then those of padding
  View<const kernels::SamplingRule> rules;  // [rows of logits] on the device
  // [num_tokens, hidden_size] in the activations' dtype, after the final norm; empty unless the batch asks
  // for it.
  TensorView hidden_states;
};

}  // namespace attend
