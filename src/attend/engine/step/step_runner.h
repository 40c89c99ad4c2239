// StepRunner: computes the new tokens of a scheduled step on one device.
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

// Launches scheduled steps on an executor and samples their tokens. Objects passed by reference must outlive
// the runner.
//
// Two steps may be in flight; the second one is a step ahead (ScheduledStep::ahead). All work is in the
// executor's stream, so the second step may overwrite memory that the first one reads.
class StepRunner {
 public:
  // `executor` is loaded. `trace`: records the parts of a step, or null. `hidden_states`: all steps return
  // them.
  StepRunner(Executor& executor, const CommonPrefix& common_prefix, StepTrace* trace = nullptr,
             bool hidden_states = false);
  // Waits for steps in flight.
  ~StepRunner();
  StepRunner(const StepRunner&) = delete;
  StepRunner& operator=(const StepRunner&) = delete;

  // Queues the step and the choice of its tokens. Moves requests that share keys to the front of the step. A
  // step ahead reads its tokens from the previous step, which must be launched and have no logit edits, masks
  // or logprobs.
  void launch(ScheduledStep& step);
  // Waits for `step`, which is the first step in flight, and adds to the logprobs of prompts. Returns one
  // token for each of sampling_requests(), in host memory, valid until the second next launch;
  // kernels::kNoToken for a request with NaN logits only. The token of a draft's row is correct only if the
  // drafted tokens before it are accepted. Sets a request's failure if its first row has no valid token.
  View<const int32_t> wait(const ScheduledStep& step);
  // launch() and wait().
  View<const int32_t> run(ScheduledStep& step) {
    launch(step);
    return wait(step);
  }
  // Outcome of drafts for the next launch().
  VerifiedStates& verified() { return batch_.verified(); }
  // Number of keys of the last launched step that several requests share and that were attended to once.
  int num_shared_keys() const { return batch_.batch().shared.num_keys; }
  // Duration of the last completed step: from its launch, or from the completion of the previous step if that
  // was later, until its tokens were available.
  double device_seconds() const { return device_seconds_; }
  // Returns whether the token's mask in sampling_requests()[row] allows it. False if the row has no token to
  // choose. For the first row of a request, wait() has then set its failure.
  bool allows(size_t row, int32_t token_id) const { return sampler_.allowed(row, token_id); }
  // Logprobs of the token of sampling_requests()[row]; empty if not requested.
  LogprobsView logprobs(size_t row) const { return sampler_.logprobs(row); }
  // f32 [rows, vocab_size] on the device: logits of the last launched step, after edits, without padding. Not
  // valid after a step that adds to logprobs of prompts.
  TensorView logits() const { return output_.logits.slice(0, 0, std::ssize(batch_.sampling_requests())); }
  // [num_tokens, width] on the device: hidden states of the last launched step, if all steps return them or
  // one of its requests pools.
  const TensorView& hidden_states() const { return output_.hidden_states; }
  // Index of the request of each sampled row, for the last completed step.
  View<const int32_t> sampling_requests() const { return last_completed_->sampling_requests; }

 private:
  struct Flight {
    // int32 [max_logit_rows] in host memory. For a GPU it is page-locked, and kernels write to it directly,
    // which avoids the latency of a copy after the last kernel.
    Tensor tokens;
    std::vector<int32_t> sampling_requests;
    Clock::time_point start;
    std::optional<cuda::Event> done;  // GPUs
  };
  // Steps alternate between the two elements.
  Flight& flight(int index) { return flights_[static_cast<size_t>(index) % 2]; }

  // Queues the choice of the step's tokens from its logits.
  void queue_sampling(const ScheduledStep& step, Flight& flight);
  void check_masks(const ScheduledStep& step, const Flight& flight);
  void score_prompts(const ScheduledStep& step);
  // Adds the logprobs of positions [first, last) of a request. The first one is token `token_idx` of the
  // batch.
  void score_prompt(Request& request, int first, int last, int token_idx);

  Executor& executor_;
  StepTrace* trace_;
  CommonPrefix common_prefix_;
  StepBatch batch_;
  ExecutorOutput output_;  // of the last launched step
  Sampler sampler_, prompt_scorer_;
  std::vector<SampledRow> sampled_;  // one per row of logits
  double device_seconds_ = 0.0;
  Flight flights_[2];
  int first_ = 0, num_in_flight_ = 0;  // first_: index of the oldest step
  const Flight* last_completed_ = &flights_[0];
  Clock::time_point tokens_ready_time_;  // of last_completed_
};

}  // namespace attend
