// Speculative decoding in the scheduler: tokens and slots for drafts.
#include <algorithm>
#include <exception>
#include <utility>

#include "attend/engine/schedule/scheduler.h"
#include "attend/engine/speculation/adaptive_steps.h"

namespace attend {

int DraftRules::draft_length(int num_decodes) const {
  if (num_decodes > max_reqs) return 0;
  return adaptive == nullptr ? max_tokens : std::min(max_tokens, adaptive->steps(num_decodes));
}

int Scheduler::draft_room(int num_decodes, int num_known) const {
  if (drafts_.draft_length(num_decodes) == 0) return 0;
  const int room = std::min(limits_.max_tokens - num_known, limits_.max_draft_tokens);
  return may_have_prompts(num_decodes) ? std::min(room, limits_.max_tokens / 4) : room;
}

int Scheduler::max_draft(const Request& request, int longest) const {
  // A step generates one token more than it accepts.
  return std::max(
      0, std::min({longest, request.draft.limit, request.params.max_new_tokens - request.num_output() - 1,
                   memory_.longest_request() - request.num_tokens() - 1}));
}

// Called after prompts have their slots, since many draft slots are freed unused. No request is preempted for
// a draft.
void Scheduler::reserve_draft_slots() {
  int num_reserved = 0;
  for (ScheduledRequest& part : step_->requests) {
    int& num_slots = part.num_draft_slots;
    while (num_slots > 0 && !memory_.grow(*part.request, part.request->num_tokens() + num_slots))
      num_slots /= 2;
    num_reserved += num_slots;
  }
  step_->max_draft_tokens = std::min(step_->max_draft_tokens, num_reserved);
}

void Scheduler::settle_drafts() {
  if (step_->max_draft_tokens == 0) return;
  int num_left = std::exchange(step_->max_draft_tokens, 0);
  try {
    for (ScheduledRequest& part : step_->requests) {
      const int num_slots = std::exchange(part.num_draft_slots, 0);
      if (num_slots == 0) continue;
      part.num_draft = std::min({num_slots, num_left, static_cast<int>(part.request->draft.tokens.size())});
      part.num_new += part.num_draft;
      step_->num_tokens += part.num_draft;
      num_left -= part.num_draft;
      if (part.num_draft < num_slots)
        memory_.rewind(*part.request, part.request->num_tokens() + part.num_draft);
    }
    if (num_left > 0) {
      schedule_prompts();
      admit_waiting();
    }
  } catch (const std::exception& error) {
    inconsistency_ = error.what();
  }
  step_->prefix_ready = !memory_.reads_pending_keys();
  step_->mode = step_->find_mode();
}

}  // namespace attend
