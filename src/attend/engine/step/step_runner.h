// StepRunner: from a scheduled step to its new tokens, on one device.
#pragma once

#include <optional>
#include <vector>

#include "attend/engine/step/common_prefix.h"
#include "attend/engine/step/sampler.h"
#include "attend/engine/step/step_batch.h"
#include "attend/exec/executor.h"
#include "attend/exec/step_trace.h"
#include "attend/tensor/cuda.h"

namespace attend {

// Has an executor compute scheduled steps, and chooses their tokens. What it refers to outlives it.
//
// Two steps may be in flight, the second of them one that ScheduledStep calls ahead. All their work is in the
// executor's stream, so what the first one reads may be written to by the second.
class StepRunner {
 public:
  // `executor` is loaded. `trace`: where the parts of a step are recorded, or null.
  StepRunner(Executor& executor, const CommonPrefix& common_prefix, StepTrace* trace = nullptr);
  // Waits for what is in flight.
  ~StepRunner();
  StepRunner(const StepRunner&) = delete;
  StepRunner& operator=(const StepRunner&) = delete;

  // Queues the step and the choice of its tokens. Requests of the step that share keys come first then. One
  // that is ahead takes its tokens from the step before, which was launched and has no logit edits, masks or
  // logprobs.
  void launch(ScheduledStep& step);
  // Waits for the first step in flight, the one given; adds to the logprobs of prompts. Returns the token of
  // each of sampling_requests(), in host memory, until the next but one is launched; kernels::kNoToken for a
  // request whose logits are all NaN. Behind a request's drafted tokens: what follows if they are right. A
  // request may get a failure, which says why its token is none.
  View<const int32_t> wait(const ScheduledStep& step);
  // Both.
  View<const int32_t> run(ScheduledStep& step) {
    launch(step);
    return wait(step);
  }
  // Of the step launched last: keys that several requests share, and that were attended to once.
  int num_shared_keys() const { return batch_.batch().shared.num_keys; }
  // How long the last step that was waited for took from its first launch, or from when the tokens of the one
  // before were there, until its own were.
  double device_seconds() const { return device_seconds_; }
  // Of the token of sampling_requests()[row]; nothing, if it was not asked for.
  LogprobsView logprobs(size_t row) const { return sampler_.logprobs(row); }
  // f32 [rows, vocab_size] on the device: logits of the step launched last, as they were sampled, those of
  // padding left out. Not after a step that adds to logprobs of prompts.
  TensorView logits() const { return output_.logits.slice(0, 0, std::ssize(batch_.sampling_requests())); }
  // [num_tokens, hidden_size] on the device: those of the step launched last, if a request of it pools.
  const TensorView& hidden_states() const { return output_.hidden_states; }
  // Indices into the requests, of the last step that was waited for, of those that sampled.
  View<const int32_t> sampling_requests() const { return last_completed_->sampling_requests; }

 private:
  struct Flight {
    // int32 [max_logit_rows] in host memory; for a GPU page-locked, where it writes them itself: a copy after
    // the last kernel would come some microseconds later.
    Tensor tokens;
    std::vector<int32_t> sampling_requests;
    Clock::time_point start;
    std::optional<cuda::Event> done;  // GPUs
  };
  // The places of two steps take turns.
  Flight& flight(int place) { return flights_[static_cast<size_t>(place) % 2]; }

  // From the step's logits to its tokens.
  void queue_sampling(const ScheduledStep& step, Flight& flight);
  void check_masks(const ScheduledStep& step, const Flight& flight);
  void score_prompts(const ScheduledStep& step);
  // Of positions [first, last) of a request, the first of which is token `token_idx` of the batch.
  void score_prompt(Request& request, int first, int last, int token_idx);

  Executor& executor_;
  StepTrace* trace_;
  CommonPrefix common_prefix_;
  StepBatch batch_;
  ExecutorOutput output_;  // of the step launched last
  Sampler sampler_, prompt_scorer_;
  std::vector<SampledRow> sampled_;  // of the rows of logits
  double device_seconds_ = 0.0;
  Flight flights_[2];
  int first_ = 0, num_in_flight_ = 0;  // places
  const Flight* last_completed_ = &flights_[0];
  Clock::time_point tokens_ready_time_;  // of last_completed_
};

}  // namespace attend
