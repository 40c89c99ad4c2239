// Scheduler: which requests take part in the next step, and with how many tokens. Owns the queues, hands out
// rows and slots, and takes them back.
#pragma once

#include <deque>
#include <memory>
#include <unordered_map>
#include <vector>

#include "attend/attention/attention_layer.h"
#include "attend/attention/forward_batch.h"
#include "attend/engine/request.h"
#include "attend/kv/allocator.h"
#include "attend/kv/req_to_token_pool.h"

namespace attend {

// A request's part in a step: tokens [num_computed, num_computed + num_new).
struct ScheduledRequest {
  Request* request;
  int num_new;

  // The last known token is among them, so its logits give the next one.
  bool samples() const { return request->num_computed + num_new == request->num_tokens(); }
};

struct ScheduledStep {
  std::vector<ScheduledRequest> requests;
  int num_tokens = 0;
  ForwardMode mode = ForwardMode::kIdle;
};

// First come, first served. Running requests go before waiting ones: each decode adds a token, and what is
// left of the step's token budget goes to prompts, in chunks when they are longer (chunked prefill). A
// request that is admitted gets slots for all of its prompt, so only decoding can run out of them, or of
// limits.max_kv_tokens, which all running requests share; then the request admitted last is preempted: it
// gives its pages back, waits at the front of the queue, and later computes prompt and output anew.
class Scheduler {
 public:
  Scheduler(const BatchLimits& limits, ReqToTokenPool& rows, SlotAllocator& slots);

  // Throws Error(kInvalidArgument) for a request whose prompt and next token could never fit into the pool or
  // a step.
  void submit(std::unique_ptr<Request> request);

  // Admits, allocates, and returns the step; no requests: nothing to do. The result is valid until the next
  // call.
  const ScheduledStep& schedule();

  // Takes back rows and slots of a finished request and hands the request over.
  std::unique_ptr<Request> finish(RequestId id);

  int num_waiting() const { return static_cast<int>(waiting_.size()); }
  int num_running() const { return static_cast<int>(running_.size()); }
  bool idle() const { return waiting_.empty() && running_.empty(); }

 private:
  bool grow(Request& request, int num_tokens);
  void release(Request& request);
  void preempt_last();
  void schedule_running();
  void admit_waiting();
  bool admit(Request& request);
  void add(Request& request, int num_new);

  BatchLimits limits_;
  ReqToTokenPool& rows_;
  SlotAllocator& slots_;
  std::deque<std::unique_ptr<Request>> waiting_;
  std::vector<std::unique_ptr<Request>> running_;  // in the order of admission
  int64_t held_tokens_ = 0;  // slots of all running requests: at most limits_.max_kv_tokens
  ScheduledStep step_;
  std::vector<TokenSlot> new_slots_;  // scratch: slots of one allocation
};

}  // namespace attend
