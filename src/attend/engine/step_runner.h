// StepRunner: from a scheduled step to its new tokens, on one device.
#pragma once

#include <optional>

#include "attend/attention/backend.h"
#include "attend/engine/graph_runner.h"
#include "attend/engine/step_inputs.h"
#include "attend/model/model.h"
#include "attend/tensor/cuda.h"

namespace attend {

// Allocates logits and tokens in its constructor, for a model that is prepared for the same limits. What it
// refers to outlives it.
class StepRunner {
 public:
  StepRunner(Model& model, AttentionBackend& attention, const ReqToTokenPool& rows, const BatchLimits& limits,
             Device device);

  // GPUs: from now on decode steps are padded to these batch sizes (rising, at most limits.max_reqs).
  void pad_decodes(std::vector<int> sizes);
  // From now on they are replayed from graphs, which are recorded here.
  void record_graphs(const GraphProgress& progress = {});

  // Computes the step and samples. Returns the token of each of sampling_requests(), in host memory, until
  // the next call; kernels::kNoToken for a request whose logits are all NaN.
  View<const int32_t> run(const ScheduledStep& step);
  // How long the last step took from the first launch until its tokens were there.
  double device_seconds() const { return device_seconds_; }
  // f32 [rows, vocab_size] on the device: logits of the last step, those of padding left out.
  TensorView logits() const { return logits_.view().slice(0, 0, std::ssize(sampling_requests())); }
  // Indices into the step's requests of those that sampled.
  View<const int32_t> sampling_requests() const { return inputs_.sampling_requests(); }

 private:
  // What a step does on the device once its inputs are there: kernel launches only.
  void queue_step();

  Model& model_;
  AttentionBackend& attention_;
  const ReqToTokenPool& rows_;
  std::optional<cuda::OwnedStream> gpu_stream_;
  Stream stream_;
  StepInputs inputs_;
  GraphRunner graphs_;
  double device_seconds_ = 0.0;
  Tensor logits_;  // f32 [max_reqs, vocab_size]
  // int32 [max_reqs] in host memory; for a GPU page-locked, where it writes them itself: a copy after the
  // last kernel would come some microseconds later.
  Tensor tokens_;
};

}  // namespace attend
