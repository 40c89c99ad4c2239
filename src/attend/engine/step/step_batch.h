// StepBatch: a scheduled step as what an executor computes, and who samples from which row of its logits.
#pragma once

#include <vector>

#include "attend/attention/attention_layer.h"
#include "attend/engine/schedule/scheduler.h"
#include "attend/exec/executor_batch.h"
#include "attend/tensor/tensor.h"

namespace attend {

class StepBatch {
 public:
  // Reserves memory for the limits, so that build() allocates nothing.
  explicit StepBatch(const BatchLimits& limits);

  // Describes `step`, whose first requests share `shared`. `tokens_before`: int32, in memory that the device
  // reads: tokens of the step before by its requests, for a step that is ahead.
  const ExecutorBatch& build(const ScheduledStep& step, SharedPrefix shared = {},
                             const TensorView& tokens_before = {});

  const ExecutorBatch& batch() const { return batch_; }
  // Indices into the step's requests of those that sample, one per row of the logits, so that a request with
  // a draft has several in a row.
  View<const int32_t> sampling_requests() const { return sampling_requests_; }

 private:
  void add_request(int request_idx, const ScheduledRequest& part);
  void add_late_token_ids(const ScheduledStep& step, const TensorView& tokens_before);

  ExecutorBatch batch_;
  std::vector<int32_t> sampling_requests_;
};

}  // namespace attend
