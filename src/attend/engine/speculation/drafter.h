// Drafter: predicts the next tokens of the requests of a step, for the model (the target) to verify in the
// same step.
#pragma once

#include "attend/engine/schedule/scheduled_step.h"

namespace attend {

// Calls of a step, all on the engine's thread, with no other step in flight:
//
//   Scheduler::schedule()         chooses requests, reserves token slots for drafts by DraftRules
//   Drafter::draft(step)          predicts tokens for the whole step
//   Scheduler::settle_drafts()    adds the drafts to the step; unused slots and token budget go to prompts
//   StepRunner::launch(), wait()  the target computes its tokens and the drafted ones
//   Engine::accept_drafts()       keeps the drafted tokens that the target's sampler chose, up to the first
//                                 other one
//   Scheduler::advance()          frees the slots of rejected tokens
//
// A drafter neither verifies nor accepts, so no draft changes an answer. One that only reads tokens is a loop
// over the requests (NgramDrafter). A draft model (ModelDrafter) is an executor over the request rows and
// token slots of the target, with a KV pool of its own, and a cache group that records which tokens have K/V
// in it (DraftGroup). The slots of positions [num_tokens, num_tokens + num_draft_slots) exist when draft() is
// called. draft() returns after its last launch ended, with the tokens in host memory.
class Drafter {
 public:
  virtual ~Drafter() = default;

  // Writes at most num_draft_slots token ids of the target's vocabulary to request->draft.tokens (empty
  // before) of each request of the step that has slots, and leaves it empty without a prediction. Tokens
  // beyond step.max_draft_tokens of all requests, in their order, are not used. May also compute K/V
  // that other requests of the step (prompts with chunks that may still grow) need for later drafts. Changes
  // nothing else in the step. An exception is logged, and the step runs without drafts.
  virtual void draft(const ScheduledStep& step) = 0;

  // Called after each step with its results, when drafts are accepted and before the requests advance.
  // `hidden_states`: of the step's tokens, as ExecutorOutput::hidden_states, valid until the launch of the
  // next step; empty unless reads_hidden_states().
  virtual void observe(const ScheduledStep& /*step*/, const TensorView& /*hidden_states*/) {}
  // Returns whether the target has to return hidden states. Steps then do not overlap.
  virtual bool reads_hidden_states() const { return false; }

  // Returns whether the drafter limits drafts by its own confidence. If not, the accepted part of a draft
  // limits the length of the next one.
  virtual bool chooses_length() const { return false; }

  // Duration of the device's work of the last draft(), in seconds.
  virtual double device_seconds() const { return 0.0; }

  // Called when a request has ended, with all of its tokens, also if it was never drafted for.
  virtual void end(const Request& /*request*/) {}
};

}  // namespace attend
