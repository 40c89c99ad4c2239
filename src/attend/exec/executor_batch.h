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
  int num_computed = 0;  // tokens with K/V in the cache before the step
  int num_new = 0;
  int prompt_len = 0;      // ModelInput::prompt_lens
  int num_logit_rows = 0;  // logits are computed for this number of last new tokens
};

// The first `num_keys` keys of the first `num_reqs` requests have the same slots. num_keys is a multiple of
// the page size and smaller than the length of each of these requests; 0: no keys are shared, or too few.
struct SharedPrefix {
  int num_keys = 0, num_reqs = 0;
  bool operator==(const SharedPrefix&) const = default;
};

// Token ids that an earlier step on the stream computes. They replace the ids of the tokens from
// `first_token` on when the stream executes this step. If an id is negative (no token), the results of its
// request are undefined.
struct LateTokenIds {
  int first_token = 0;
  TensorView ids;  // int32 [count], in memory that the device reads
};

struct ExecutorBatch {
  ForwardMode mode = ForwardMode::kIdle;
  std::vector<ExecutorRequest> requests;
  std::vector<int32_t> token_ids;            // [num_tokens]: new tokens of all requests, in request order
  std::vector<int32_t> token_types;          // [num_tokens]: ModelInput::token_types; empty: all are 0
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
  TensorView logits;  // f32 [rows of logits, vocab_size]: one row per rule, then padding rows
  View<const kernels::SamplingRule> rules;  // [rows of logits] on the device
                                            // [num_tokens, hidden_size] in the activations' dtype, after the
                                            // final norm; empty unless ExecutorBatch::hidden_states is set.
  TensorView hidden_states;
};

}  // namespace attend
