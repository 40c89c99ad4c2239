// StepRunner: from a scheduled step to its new tokens, on one device.
#pragma once

#include <optional>
#include <vector>

#include "attend/attention/backend.h"
#include "attend/engine/step/common_prefix.h"
#include "attend/engine/step/graph_runner.h"
#include "attend/engine/step/sampler.h"
#include "attend/engine/step/step_inputs.h"
#include "attend/engine/step/step_trace.h"
#include "attend/model/model.h"
#include "attend/tensor/cuda.h"

namespace attend {

// Allocates logits and tokens in its constructor, for a model that is prepared for the same limits. What it
// refers to outlives it.
//
// Two steps may be in flight, the second of them one that ScheduledStep calls ahead. All their work is in one
// stream, so what the first one reads may be written to by the second.
class StepRunner {
 public:
  // `swa`: of a pool with a half for layers with a window, else null. `trace`: where the parts of a step are
  // recorded, or null. `gives_prefixes`: as of StepInputs; without, latent attention is absorbed in every
  // step.
  StepRunner(Model& model, AttentionBackend& attention, ReqToTokenPool& rows, SwaSlots* swa,
             const CommonPrefix& common_prefix, const BatchLimits& limits, Device device,
             StepTrace* trace = nullptr, bool gives_prefixes = true);
  // Waits for what is in flight.
  ~StepRunner();
  StepRunner(const StepRunner&) = delete;
  StepRunner& operator=(const StepRunner&) = delete;

  // GPUs: from now on decode steps are padded to these batch sizes (rising, at most limits.max_reqs).
  void pad_decodes(std::vector<int> sizes);
  // From now on they are replayed from graphs, which are recorded here.
  void record_graphs(const GraphProgress& progress = {});

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
  int num_shared_keys() const { return inputs_.batch().shared.num_keys; }
  // How long the last step that was waited for took from its first launch, or from when the tokens of the one
  // before were there, until its own were.
  double device_seconds() const { return device_seconds_; }
  // Of the token of sampling_requests()[row]; nothing, if it was not asked for.
  LogprobsView logprobs(size_t row) const { return sampler_.logprobs(row); }
  // f32 [rows, vocab_size] on the device: logits of the step launched last, as they were sampled, those of
  // padding left out. Not after a step that adds to logprobs of prompts.
  TensorView logits() const { return logits_.view().slice(0, 0, std::ssize(inputs_.sampling_requests())); }
  // Indices into the requests, of the last step that was waited for, of those that sampled.
  View<const int32_t> sampling_requests() const { return waited_for_->sampling_requests; }

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

  // From a step's inputs to its logits: kernel launches only. This is what graphs hold.
  void queue_model();
  // From its logits to its tokens.
  void queue_sampling(const ScheduledStep& step, Flight& flight);
  // To the inputs of a step ahead, from where those of the step before are going to be.
  void queue_tokens(const ScheduledStep& step, const Tensor& tokens_before);
  void check_masks(const ScheduledStep& step, const Flight& flight);
  void score_prompts(const ScheduledStep& step);
  // Of positions [first, last) of a request, the first of which is token `token_idx` of the batch.
  void score_prompt(Request& request, int first, int last, int token_idx);

  Model& model_;
  AttentionBackend& attention_;
  ReqToTokenPool& rows_;
  SwaSlots* swa_;
  StepTrace* trace_;
  std::optional<cuda::OwnedStream> gpu_stream_;
  Stream stream_;
  CommonPrefix common_prefix_;
  StepInputs inputs_;
  GraphRunner graphs_;
  Sampler sampler_, prompt_scorer_;
  std::vector<SampledRow> sampled_;  // of the rows of logits
  double device_seconds_ = 0.0;
  Tensor logits_;  // f32 [max_logit_rows, vocab_size]
  Flight flights_[2];
  int first_ = 0, num_in_flight_ = 0;  // places
  const Flight* waited_for_ = &flights_[0];
  Clock::time_point tokens_came_;  // of waited_for_
  Tensor token_indices_;  // int32 [max_tokens] on the device: 0, 1, ...; made when a prompt is scored
};

}  // namespace attend
