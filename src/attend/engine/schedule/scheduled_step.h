// ScheduledStep: which requests take part in a step, and with which tokens.
#pragma once

#include <vector>

#include "attend/attention/forward_batch.h"
#include "attend/engine/request.h"

namespace attend {

// A request's part in a step: tokens [num_computed, num_computed + num_new), the last of them drafted.
struct ScheduledRequest {
  Request* request;  // null: it ended while the step was computed
  int num_new;
  // In a step ahead: index of the request in the previous step, whose token it needs. -1: all are known.
  int previous_index = -1;
  // Token slots after its last token that are reserved for a draft, until Scheduler::settle_drafts(): those
  // of positions [num_tokens, num_tokens + num_draft_slots).
  int num_draft_slots = 0;
  int num_draft = 0;     // drafted tokens after its last one: the first of request->draft
  int num_accepted = 0;  // number of them that the model chose too, after the step

  // True if the last token is among them, so that its logits give the next one.
  bool samples() const {
    return previous_index >= 0 || request->num_computed + num_new - num_draft == request->num_tokens();
  }
  // Each drafted token has a row too, which verifies the one after it.
  int num_logit_rows() const { return samples() && !request->pools ? 1 + num_draft : 0; }
  int num_rejected() const { return num_draft - num_accepted; }
};

struct ScheduledStep {
  std::vector<ScheduledRequest> requests;
  int num_tokens = 0;
  // Number of drafted tokens that the step has room for, all requests together. May be less than the sum of
  // num_draft_slots: a request without a prediction leaves its room to the others.
  int max_draft_tokens = 0;
  ForwardMode mode = ForwardMode::kIdle;
  // As in ForwardBatch: no request reads keys before its own new tokens that another computes in this step.
  bool prefix_ready = true;
  // Chosen before the tokens of the previous step were known: each request decodes the one that it gets
  // there.
  bool ahead = false;
  bool advanced = false;  // advance() was called

  // Mode of the requests before any of them ended.
  ForwardMode find_mode() const;
  int num_live() const;  // requests that are not null
  int num_draft() const;
  int num_rejected() const;
};

}  // namespace attend
