// StepInputs: a step's arrays at fixed addresses, and the ForwardBatch that views them.
#pragma once

#include <vector>

#include "attend/attention/attention_layer.h"
#include "attend/attention/forward_batch.h"
#include "attend/engine/scheduler.h"
#include "attend/kv/req_to_token_pool.h"
#include "attend/model/model.h"

namespace attend {

// Allocates for the limits in its constructor; build() only fills.
class StepInputs {
 public:
  StepInputs(const BatchLimits& limits, const ReqToTokenPool& rows);

  void build(const ScheduledStep& step);

  const ForwardBatch& batch() const { return batch_; }
  const ModelInput& model_input() const { return model_input_; }
  // Indices into the step's requests of those that sample, one per row of the logits.
  View<const int32_t> sampling_requests() const { return {sampling_requests_.data(), num_sampling_}; }

 private:
  const ReqToTokenPool& rows_;
  std::vector<RequestRow> request_rows_;
  std::vector<int32_t> seqlen_kv_, cu_seqlen_q_, prompt_lens_, positions_, token_ids_, logit_rows_,
      sampling_requests_;
  std::vector<TokenSlot> out_slots_;
  size_t num_sampling_ = 0;
  ForwardBatch batch_;
  ModelInput model_input_;
};

}  // namespace attend
