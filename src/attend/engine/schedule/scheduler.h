// Scheduler: selects the requests of the next step, and the number of tokens of each. Owns the queues;
// allocates and frees rows and slots through RequestMemory.
#pragma once

#include <memory>
#include <set>
#include <span>
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

class AdaptiveSteps;

// Request that the scheduler ended, waiting or running.
struct DroppedRequest {
  std::unique_ptr<Request> request;
  std::string_view reason;  // static storage
};

// Limits of drafts. Slots are reserved by these rules only, so the scheduler calls no drafter.
struct DraftRules {
  int max_tokens = 0;  // maximum length of a chain, or of a path of a tree; 0: no drafts
  int max_reqs = 0;    // a step with more decoding requests has no drafts
  // Limits the length by the number of decoding requests; null: max_tokens. Must outlive the scheduler.
  const AdaptiveSteps* adaptive = nullptr;
  // Slots of a tree: for its tokens, and for those that the draft model computes. 0: drafts are chains.
  int tree_slots = 0;

  // Returns the maximum length of a draft in a step with this number of decoding requests.
  int draft_length(int num_decodes) const;
};

// Parts of a step, in this order:
//   - Every decoding request, with one token. A step with prompts takes longer, but by at most
//     limits.max_tokens new tokens, which bounds the delay of each decoding request.
//   - With DraftRules: drafted tokens after it, if few requests decode, slots are free, and waiting prompts
//     keep most of max_tokens. If the last draft was accepted completely, the next one is at most twice as
//     long; otherwise it is one token longer than the accepted part. So text without repetition causes few
//     drafts. Tokens and slots that prompts leave are reserved; a Drafter then predicts tokens for the whole
//     step.
//   - Inputs to pool, each in one step: their tokens may attend to later ones.
//   - Prompts in progress, in the order of admission, with the rest of max_tokens, split by chunk_end()
//     (chunked prefill). Slots are allocated only for the tokens of this step. A chunk ends before an image
//     that is not encoded (ImageSteps); the request waits, and other requests continue.
//   - Waiting requests, by policy, while the pool and limits.max_kv_tokens have room for their prompts and
//     for the expected output of all requests.
// If requests generate more than expected, and slots or max_kv_tokens run out, requests are preempted: the
// one with the shortest output first, and among those the one with the longest prompt. A preempted request
// frees its pages, returns to its position in the queue, and later computes its prompt and output again.
class Scheduler {
 public:
  Scheduler(const BatchLimits& limits, RequestMemory& memory, const ScheduleOptions& options = {},
            const DraftRules& drafts = {});

  // Throws Error(kInvalidArgument) if a request's prompt and next token can never fit into the pool or a
  // step. Thread-safe.
  void check(const Request& request) const;
  // Calls check(), then queues the request. If this is its last completion, and the maximum number of
  // completions waited before it, the last request of the queue is dropped with all of its completions.
  void submit(std::unique_ptr<Request> request);
  // Returns the requests that were dropped since the last call, and those that have passed their deadline.
  std::vector<DroppedRequest> drain_dropped(Clock::time_point now);

  // Admits requests, allocates slots, and returns the step; without requests there is nothing to do. The
  // result is valid until the next call; the caller may reorder its requests.
  ScheduledStep& schedule();
  // Schedules the step after the last one, before the tokens of the last one are known. The step has the last
  // one's requests in the same order, without those that the pending token completes. `longest`: maximum
  // number of tokens of a request. Calls advance() for the last step. Both steps are valid until the call
  // after the next. Returns null if
  //   - the last step does not include all running requests, with one token each,
  //   - another request could be admitted,
  //   - slots are short,
  //   - the remaining requests form more than kMaxPreparedRuns contiguous ranges of the last step, or
  //   - the step would have drafts, which depend on the pending tokens.
  ScheduledStep* schedule_overlapped(int64_t longest);
  static constexpr int kMaxPreparedRuns = 8;

  // Adds drafts to the step: for each request with num_draft_slots a prefix of request->draft, limited by its
  // slots and by max_draft_tokens. Frees the other slots, and schedules prompts with the unused tokens. Call
  // it after schedule() and the drafter, before the step is launched.
  void settle_drafts();

  // Marks the tokens of the last step as computed, including accepted drafts; the step may still be in
  // flight. Call it before any request of the step is finished.
  void advance();
  // Preempts all running requests, and lets waiting ones search the tiers below the pool again: their caches
  // will be dropped. `drops_images`: rows of encoded images too. No step may be in flight.
  void preempt_all(bool drops_images);
  // Drops the pages that a failed step inserted into the cache and did not compute. Call it after all
  // requests of the step are finished.
  void fail_step();

  // Frees the row and the slots of a finished request and returns the request. Its computed tokens stay in
  // the prefix cache, unless it ended with an error.
  std::unique_ptr<Request> finish(RequestId id);

  // Removes and returns a waiting or running request; null if there is none with this id.
  std::unique_ptr<Request> abort(RequestId id);

  // After a step without requests: waits, for `timeout` at most, for a mask, or for pages from the disk or
  // the host tier, without which nothing can be scheduled. Returns false if there is nothing to wait for.
  bool wait(std::chrono::microseconds timeout) const;

  // Returns true if a running request waits for an image.
  bool waits_for_image() const;
  // In the order of admission. Valid until the next call of another function.
  std::span<const std::unique_ptr<Request>> running() const { return running_; }

  int num_waiting() const { return waiting_.size(); }
  int num_running() const { return static_cast<int>(running_.size()); }
  int64_t num_preemptions() const { return num_preemptions_; }
  double new_token_ratio() const { return ratio_.value(); }
  // Number of failed conservation checks. Each one restarts the running requests and drops the prefix cache.
  int64_t num_recoveries() const { return num_recoveries_; }
  bool idle() const { return waiting_.empty() && running_.empty(); }

  // Throws Error(kInternal) unless every page has one owner. Reads all tables, so only tests and debug builds
  // call it.
  void check_memory() const;

 private:
  void schedule_step();
  bool can_overlap(const ScheduledStep& before) const;
  void wait_for_masks();
  void wait_for_copies();
  void schedule_decodes();
  // Returns the maximum number of drafted tokens of the step, over all requests. `num_known`: tokens of the
  // decoding requests.
  int draft_room(int num_decodes, int num_known) const;
  // Returns whether the step has, or could have, tokens of prompts.
  bool may_have_prompts(int num_decodes) const { return num_decodes < num_running() || !waiting_.empty(); }
  // Returns the maximum number of drafted tokens of a request after one another, at most `longest`.
  int max_draft(const Request& request, int longest) const;
  // Allocates slots for the drafts of the step, fewer if the pool is short.
  void reserve_draft_slots();
  // Returns the number of new tokens that still fit into the step, after its tokens and reserved drafts.
  int room() const { return limits_.max_tokens - step_->num_tokens - step_->max_draft_tokens; }
  void schedule_prompts();
  void admit_waiting();
  // Preempts requests that have more tokens than their max_rope_len, as longer prompts.
  void recompute_longer_requests();
  // Preempts requests until a prompt has slots, if the step would be empty for lack of slots.
  void preempt_for_prompt();
  // Adds the next chunk of a prompt to the step, or extends the chunk that the step has. Returns false if the
  // step has no chunk of the prompt.
  bool schedule_chunk(Request& request);
  static std::span<const ImageRun> whole_items(const Request& request);
  bool admit(Request& request, AdmissionBudget& slots, AdmissionBudget& keys);
  // Allocates slots for the request's skipped tokens, which count as computed. Returns false if slots are
  // short.
  [[nodiscard]] bool skip_tokens(Request& request);
  size_t choose_victim() const;
  void preempt(size_t running_idx);
  void recover(std::string_view reason);
  void remove_deadline(const Request& request);
  // Aborts a request and queues it for drain_dropped().
  void drop(RequestId id, std::string_view reason);
  // Returns the number of output tokens to reserve, limited by the pool and by the keys of a step.
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
  std::string inconsistency_;  // failed check since the last step; empty: none
  ScheduledStep steps_[2];     // the last one and, if it is `ahead`, the one before
  ScheduledStep* step_ = &steps_[0];
  const Request* first_prompt_ = nullptr;  // of the step
};

}  // namespace attend
