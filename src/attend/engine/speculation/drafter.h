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
// over the requests (NgramDrafter). A draft model has three parts:
//
//   - An executor: a second ModelExecutor over the request rows and token slots of the target, with a KV pool
//     of its own that has as many pages. draft() builds ExecutorBatches of the step's requests and launches
//     them: first one that computes the missing K/V of the draft model (see below) and predicts the first
//     drafted token of each request, then a decode step for each further one. The K/V of drafted token i go
//     to position request->num_tokens() + i of the row, which has a slot for i < num_draft_slots. draft()
//     returns after its last launch ended, with the tokens in host memory.
//   - A CacheGroup next to the target's (kv/cache_group.h), which records for each row and page the tokens
//     that the draft model has K/V for. Missing are those of accepted tokens that it did not predict, of new
//     chunks of prompts, and of cached pages that were computed without it; draft() computes them if it can.
//     match() returns the whole prefix, so the draft model shortens no prefix of the target. rewind(),
//     replace() and forget() report the positions and pages with K/V that no longer belong to the row.
//   - A row of SpeculativeAlgorithm, its options, and make_drafter() in engine/engine.cc.
class Drafter {
 public:
  virtual ~Drafter() = default;

  // Writes at most num_draft_slots token ids of the target's vocabulary to request->draft.tokens (empty
  // before) of each request of the step that has slots, and leaves it empty without a prediction. Tokens
  // beyond step.max_draft_tokens of all requests, in their order, are not used. May also compute K/V
  // that other requests of the step (prompts with chunks that may still grow) need for later drafts. Changes
  // nothing else in the step. An exception is logged, and the step runs without drafts.
  virtual void draft(const ScheduledStep& step) = 0;

  // Returns whether the drafter limits drafts by its own confidence. If not, the accepted part of a draft
  // limits the length of the next one.
  virtual bool chooses_length() const { return false; }

  // Called when a request has ended, with all of its tokens, also if it was never drafted for.
  virtual void end(const Request& /*request*/) {}
};

}  // namespace attend
