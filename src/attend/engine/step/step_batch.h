// StepBatch: converts a scheduled step to an ExecutorBatch, and maps rows of logits to requests.
#pragma once

#include <vector>

#include "attend/attention/attention_layer.h"
#include "attend/engine/schedule/scheduler.h"
#include "attend/exec/executor_batch.h"
#include "attend/tensor/tensor.h"

namespace attend {

class StepBatch {
 public:
  // Reserves memory for the limits, so that build() does not allocate.
  // `hidden_states`: all batches request hidden states.
  explicit StepBatch(const BatchLimits& limits, bool hidden_states = false);

  // Describes `step`; its first requests share the prefix `shared`. `tokens_before`: for a step ahead, the
  // tokens of the previous step in the order of its requests, int32, in memory that the device can read.
  const ExecutorBatch& build(const ScheduledStep& step, SharedPrefix shared = {},
                             const TensorView& tokens_before = {});

  const ExecutorBatch& batch() const { return batch_; }
  // Outcome of drafts that the next build() adds to its batch.
  VerifiedStates& verified() { return verified_; }
  // Index of the request that samples from each row of logits. A request with a draft has several adjacent
  // rows.
  View<const int32_t> sampling_requests() const { return sampling_requests_; }

 private:
  void add_request(int request_idx, const ScheduledRequest& part);
  void add_tree(const ScheduledRequest& part);
  void add_token_types(const Request& request, const ScheduledRequest& part);
  // Adds the rows of images among the new tokens and, with bidirectional attention, the items.
  void add_images(int request_idx, const ScheduledRequest& part);
  // Sets positions on three axes of all tokens of the step.
  void add_rope_positions(const ScheduledStep& step);
  void add_late_token_ids(const ScheduledStep& step, const TensorView& tokens_before);

  bool hidden_states_;
  ExecutorBatch batch_;
  VerifiedStates verified_;
  std::vector<int32_t> sampling_requests_;
  bool has_trees_ = false;  // the step has a draft that is a tree
  // By row of a request: number of tokens after its known ones that the row's token follows.
  std::vector<uint64_t> depths_;
};

}  // namespace attend
