// Executor: computes the steps of one model.
#pragma once

#include "attend/attention/attention_layer.h"
#include "attend/exec/executor_batch.h"
#include "attend/model/config/model_spec.h"
#include "attend/tensor/device.h"

namespace attend {

// Maps plain data to logits and hidden states. It chooses no token and depends on neither requests nor
// scheduling. One thread owns an executor. Launches are queued on one stream, so a step may overwrite memory
// that the previous step reads.
class Executor {
 public:
  virtual ~Executor() = default;

  // Queues one step. The results are valid until the next launch.
  virtual ExecutorOutput launch(const ExecutorBatch& batch) = 0;
  // Queues the logits of other tokens of the last step, which must not be a decode step: f32 [num_tokens,
  // head_size()] for at most limits().max_logit_rows() tokens. Overwrites the step's own logits.
  virtual TensorView compute_logits(int first_token, int num_tokens) = 0;

  // Throws if the results of steps that have completed are undefined: a rank has failed.
  virtual void check_completed() {}

  // Stream of the device that holds the results.
  virtual Stream& stream() = 0;
  virtual const BatchLimits& limits() const = 0;
  virtual const ModelSpec& spec() const = 0;
  // Drafts: Model::head_tokens().
  virtual View<const int32_t> head_tokens() const { return {}; }

  Device device() { return stream().device; }
  bool on_gpu() { return device().type == DeviceType::kCuda; }
};

}  // namespace attend
