// ExecutorBatch: one step of a ModelExecutor, as plain data on the host.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "attend/attention/forward_batch.h"
#include "attend/base/ids.h"
#include "attend/kernels/sampling/sampling.h"
#include "attend/model/config/draft_spec.h"
#include "attend/model/model.h"
#include "attend/tensor/tensor.h"

namespace attend {

struct ModelAdapter;

// Part of one request: its tokens [num_computed, num_computed + num_new). Their token slots are in the
// request's row.
struct ExecutorRequest {
  RequestRow row;
  int num_computed = 0;  // tokens with K/V in the cache before the step
  int num_new = 0;
  int prompt_len = 0;                     // ModelInput::prompt_lens
  int num_logit_rows = 0;                 // logits are computed for this number of last new tokens
  int num_drafts = 0;                     // the last new tokens that are drafts
  const ModelAdapter* adapter = nullptr;  // alive during the launch; null: none
};

// Outcome of the drafts of an earlier step, for models with recurrent states. Its requests with drafts are
// listed in the order of that step, with all of their new tokens.
struct VerifiedStates {
  struct Part {
    RequestRow row;        // kPaddingRow: the request ended during the step
    int num_computed = 0;  // tokens before that step
    int num_accepted = 0;  // new tokens that remain: at least one, unless the request ended
    int num_rejected = 0;  // the other new tokens
  };
  std::vector<Part> parts;
  // [num_tokens()]: snapshot slot that receives the state after the token; 0: none.
  std::vector<int32_t> save_slots;

  int num_tokens() const { return static_cast<int>(save_slots.size()); }
  void clear() {
    parts.clear();
    save_slots.clear();
  }
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

// Hidden states that a draft reads for its tokens from `first_token` on: rows of a target's or its own
// ExecutorOutput::hidden_states, or copies of them. They are copied when the stream executes this step, so an
// earlier step on the stream may compute them. Those of a target on another stream must be complete.
struct HiddenRows {
  int first_token;
  TensorView rows;  // [count, width], contiguous, in memory that the device reads
};

struct ExecutorBatch {
  ForwardMode mode = ForwardMode::kIdle;
  std::vector<ExecutorRequest> requests;
  std::vector<int32_t> token_ids;    // [num_tokens]: new tokens of all requests, in request order
  std::vector<int32_t> token_types;  // [num_tokens]: ModelInput::token_types; empty: all are 0
  // [num_tokens]: trees of new tokens, as in RequestDraft. A token attends to the keys before the step, to
  // its ancestors and to itself, and is one position after its parent. Its parent is a new token of its
  // request with a smaller index, counted from the request's first one; -1: the last token before the step.
  // Token i of a request is stored in the slot of row position num_computed + i, whatever its own position
  // is. Empty: each token follows the one before it. Steps of mode kTargetVerify only.
  std::vector<int32_t> tree_parents;
  // [3 * num_tokens]: ModelInput::rope_positions; empty: those of the requests
  std::vector<int32_t> rope_positions;
  // Images with bidirectional attention, without their arrays on the device.
  std::vector<BidirectionalItem> items;
  std::vector<EmbeddingRows> images;         // encoded rows of the tokens of images
  std::vector<LateTokenIds> late_token_ids;  // empty: all ids are known
  // [rows of logits]: uploaded with the step's arrays, for the sampler.
  std::vector<kernels::SamplingRule> rules;
  VerifiedStates verified;     // of the step before, if it had drafts; states are updated before the step
  SharedPrefix shared;         // decode steps
  bool prefix_ready = false;   // ForwardBatch::prefix_ready
  bool hidden_states = false;  // also returns the hidden states of all tokens
  // Drafts: hidden states of all tokens, ModelInput::hidden_states. Without any, those of the executor's
  // hidden_inputs() are read.
  std::vector<HiddenRows> hidden_rows;
  HiddenSource hidden_source = HiddenSource::kTarget;

  int num_tokens() const { return static_cast<int>(token_ids.size()); }
  // New tokens of requests with drafts.
  int num_verified_tokens() const {
    int count = 0;
    for (const ExecutorRequest& request : requests) count += request.num_drafts > 0 ? request.num_new : 0;
    return count;
  }
};

// Results of a step, on the executor's stream. Valid until the next launch.
struct ExecutorOutput {
  std::chrono::steady_clock::time_point launched;  // when the step's arrays were filled
  TensorView logits;  // f32 [rows of logits, head_size()]: one row per rule, then padding rows
  View<const kernels::SamplingRule> rules;  // [rows of logits] on the device
  // [num_tokens, width] in the activations' dtype: the hidden states of ExecutorConfig::hidden_states. Empty
  // unless ExecutorBatch::hidden_states is set. Steps have the same address.
  TensorView hidden_states;
};

}  // namespace attend
