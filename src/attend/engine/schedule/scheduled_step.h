// ScheduledStep: requests of a step, and the tokens that it computes for each.
#pragma once

#include <vector>

#include "attend/attention/forward_batch.h"
#include "attend/engine/request.h"

namespace attend {

// Part of a request in a step: tokens [num_computed, num_computed + num_new); the last of them are drafted.
struct ScheduledRequest {
  Request* request;  // null: it ended during the step
  int num_new;
  // If the step is `ahead`: index in the previous step of the request that samples this one's token. -1: all
  // tokens are known.
  int previous_index = -1;
  // Number of token slots reserved for a draft until Scheduler::settle_drafts(), at positions [num_tokens,
  // num_tokens + num_draft_slots).
  int num_draft_slots = 0;
  int draft_depth = 0;  // maximum number of drafted tokens after one another
  int num_draft = 0;    // number of drafted tokens after the last token: a prefix of request->draft
  // After the step: number of drafted tokens that the model sampled too, and of those among them whose K/V
  // are in the slots of their positions, the first ones of the draft. The numbers are equal for chains.
  int num_accepted = 0, num_kept = 0;

  // Returns true if the part includes the request's last token, so that its logits give the next one.
  bool samples() const {
    return previous_index >= 0 || request->num_computed + num_new - num_draft == request->num_tokens();
  }
  // Returns the number of rows of logits: each drafted token has one, which verifies the token after it.
  int num_logit_rows() const { return samples() && !request->pools ? 1 + num_draft : 0; }
  // Returns the number of drafted tokens whose K/V the request does not keep.
  int num_rejected() const { return num_draft - num_kept; }
};

struct ScheduledStep {
  std::vector<ScheduledRequest> requests;
  int num_tokens = 0;
  int num_decodes = 0;  // requests that decode one known token
  // Maximum number of drafted tokens of all requests together. It may be less than the sum of
  // num_draft_slots: a request without a prediction leaves its share to the others.
  int max_draft_tokens = 0;
  bool trees = false;  // drafts may be trees: no request of the step can have a prompt
  ForwardMode mode = ForwardMode::kIdle;
  // As in ForwardBatch: false if a request reads keys before its own new tokens that another one computes in
  // this step.
  bool prefix_ready = true;
  // Scheduled before the tokens of the previous step were known: each request decodes the token that the
  // previous step samples.
  bool ahead = false;
  bool advanced = false;  // advance() was called

  // Returns the mode; requires that no request has ended.
  ForwardMode find_mode() const;
  int num_live() const;  // number of requests that are not null
  int num_draft() const;
  int num_rejected() const;
};

}  // namespace attend
