// Scheduler: which requests take part in the next step, and with how many tokens. Owns the queues, hands out
// rows and slots, and takes them back.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "attend/attention/attention_layer.h"
#include "attend/engine/request.h"
#include "attend/engine/schedule/admission.h"
#include "attend/engine/schedule/request_memory.h"
#include "attend/engine/schedule/schedule_policy.h"
#include "attend/engine/schedule/scheduled_step.h"
#include "attend/engine/schedule/waiting_queue.h"

namespace attend {

// A request that ended before its turn came, or in its midst.
struct DroppedRequest {
  std::unique_ptr<Request> request;
  std::string_view why;  // for as long as the program runs
};

// Number of tokens to draft. Slots are reserved by these rules alone, so the scheduler calls no drafter.
struct DraftRules {
  int max_tokens = 0;  // per draft; 0: nothing is drafted
  int max_reqs = 0;    // steps in which more requests decode draft nothing
};

// Who takes part in a step:
//   - every request that generates, with one token each: a step with prompts takes longer, by at most
//     limits.max_tokens new tokens, and delays nobody by more than that;
//   - with DraftRules, drafted tokens after it, while they are few, slots are left, and prompts that wait
//     have most of max_tokens. A draft is at most twice as long as the one before, if all of that was right,
//     else one token longer than what was right of it: of a text that does not repeat little is drafted. Room
//     and slots, which prompts leave, are reserved; a Drafter then predicts tokens for the whole step;
//   - inputs whose hidden states are pooled, each whole in one step: tokens may see those after them;
//   - prompts that have begun, in the order of admission, with what is left of max_tokens, cut by chunk_end()
//     (chunked prefill). Slots are taken for what the step computes alone;
//   - those that wait, by policy, while the pool and limits.max_kv_tokens have room for their prompts and the
//     answers that all are expected to give.
// When more is said than was expected, and slots or max_kv_tokens run out, requests are preempted: the one
// with the shortest answer first, and the longest prompt among those. It gives its pages back, takes its old
// place in the queue, and later computes prompt and answer anew.
class Scheduler {
 public:
  Scheduler(const BatchLimits& limits, RequestMemory& memory, const ScheduleOptions& options = {},
            const DraftRules& drafts = {});

  // Throws Error(kInvalidArgument) for a request whose prompt and next token could never fit into the pool or
  // a step. Safe on any thread.
  void check(const Request& request) const;
  // Checks too. When all completions of a request are here, and as many waited before them as may, the
  // request that would be last is dropped, with all of its completions.
  void submit(std::unique_ptr<Request> request);
  // Those that were dropped since the last call, and those whose deadline has passed.
  std::vector<DroppedRequest> drain_dropped(Clock::time_point now);

  // Admits, allocates, and returns the step; no requests: nothing to do. The result is valid until the next
  // call; the order of its requests is free.
  ScheduledStep& schedule();
  // The step behind the last one, whose tokens are not known yet: its requests in their order, without those
  // whose answers are complete with the token that they get there. `longest`: tokens that a request may
  // have. Advances the last step. Both are valid until the call after the next. Null where that can not be
  // said: the last step is not all of what runs, each with a token; another could join; slots are short; or
  // so many requests end that the others are in more than kMaxPreparedRuns runs; or tokens are to be drafted,
  // behind those that are not known yet.
  ScheduledStep* schedule_overlapped(int64_t longest);
  static constexpr int kMaxPreparedRuns = 8;

  // Adds drafts to the step: of each request with num_draft_slots the first tokens of request->draft, as many
  // as have a slot and fit into max_draft_tokens. Gives back the other slots, and schedules prompts with the
  // room that drafts leave. After schedule() and a drafter, before the step is launched.
  void settle_drafts();

  // What the requests of the last step had in it is computed now, or going to be, drafts as far as they were
  // accepted. Before any of them is finished.
  void advance();
  // Nothing of the step was computed: what its requests let others have is forgotten. After all of them are
  // finished.
  void fail_step();

  // Takes back rows and slots of a finished request and hands the request over. What it computed stays in the
  // prefix cache, unless it ended with an error.
  std::unique_ptr<Request> finish(RequestId id);

  // Takes a request back wherever it is, waiting or running; null if there is none.
  std::unique_ptr<Request> abort(RequestId id);

  // After a step without requests: waits, for `timeout` at most, for a mask without which nothing can be
  // scheduled. Returns false if there is none.
  bool wait_for_mask(std::chrono::microseconds timeout) const;

  int num_waiting() const { return waiting_.size(); }
  int num_running() const { return static_cast<int>(running_.size()); }
  int64_t num_preemptions() const { return num_preemptions_; }
  double new_token_ratio() const { return ratio_.value(); }
  // How often the books of pages were found wrong, and mended: what ran began anew, what was cached was lost.
  int64_t num_recoveries() const { return num_recoveries_; }
  bool idle() const { return waiting_.empty() && running_.empty(); }

  // Throws Error(kInternal) unless every page has one owner. Reads everything: for tests and debug builds.
  void check_memory() const;

 private:
  void schedule_step();
  bool can_overlap(const ScheduledStep& before) const;
  void wait_for_masks();
  void schedule_decodes();
  // Number of tokens that may be drafted in the step, all requests together.
  int draft_room(int num_decodes) const;
  // Number of tokens that may be drafted for a request, at most `room`.
  int max_draft(const Request& request, int room) const;
  // Takes slots for the drafts of the step, fewer if the pool is short.
  void reserve_draft_slots();
  // Number of new tokens that the step has room for besides those it has and those that may be drafted.
  int room() const { return limits_.max_tokens - step_->num_tokens - step_->max_draft_tokens; }
  void schedule_prompts();
  void admit_waiting();
  // A step that would be empty for want of slots: preempts until a prompt goes on.
  void evict_for_prompt();
  // Adds the next chunk of a prompt to the step, or lengthens the one that is there. False if the step has
  // none of it.
  bool schedule_chunk(Request& request);
  bool admit(Request& request, AdmissionBudget& slots, AdmissionBudget& keys);
  // Slots for the tokens that it skips, which count as computed. False when there are too few.
  [[nodiscard]] bool skip_tokens(Request& request);
  size_t choose_victim() const;
  void preempt(size_t running_idx);
  void recover(std::string_view what);
  void forget_deadline(const Request& request);
  // So that the next drain_dropped() has it.
  void drop(RequestId id, std::string_view why);
  // As far as the pool, the context and a step let it.
  int num_planned(const Request& request) const;

  BatchLimits limits_;
  RequestMemory& memory_;
  ScheduleOptions options_;
  DraftRules drafts_;
  WaitingQueue waiting_;
  std::vector<std::unique_ptr<Request>> running_;  // in the order of admission
  std::set<std::pair<Clock::time_point, RequestId>> deadlines_;
  std::vector<DroppedRequest> dropped_;
  NewTokenRatio ratio_;
  int64_t num_arrived_ = 0;
  int64_t num_preemptions_ = 0;
  int64_t num_recoveries_ = 0;
  std::string broken_;      // what was found wrong in the books since the last step
  ScheduledStep steps_[2];  // the last one and, where it is ahead, the one before
  ScheduledStep* step_ = &steps_[0];
  const Request* first_prompt_ = nullptr;  // of the step
};

}  // namespace attend
