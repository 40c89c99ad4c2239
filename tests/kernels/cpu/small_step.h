// A small attention step that owns its tensors: one paged pool, several requests, any dtypes. It is used to
// vary what the conformance suite does not: plans, threads, and other requests of the batch.
#pragma once

#include <cstdint>
#include <vector>

#include "attend/kernels/attention/attention.h"

namespace attend::kernels {

struct StepConfig {
  int num_q_heads = 8, num_kv_heads = 2, head_dim = 64, page_size = 16;
  DType q_dtype = DType::kF32, kv_dtype = DType::kF32;
  AttentionMask attention_mask = {};
};

// Request of a step: the last seqlen_q of the seqlen_kv tokens of sequence `sequence`. The same sequence
// always has the same q, K and V.
struct StepRequest {
  int sequence = 0;
  int32_t seqlen_q = 1, seqlen_kv = 1;
};

class SmallStep {
 public:
  SmallStep(const StepConfig& config, const std::vector<StepRequest>& requests);

  AttentionArgs args() const;
  QueryBatch batch() const;
  AttentionPlanLimits limits() const;  // limits of this step, for two workers
  // Bytes of the output and LSE of query `j` of request `r`.
  std::vector<uint8_t> result(int r, int j) const;
  void poison_results();

 private:
  StepConfig config_;
  std::vector<int32_t> cu_seqlen_q_, seqlen_kv_, table_;
  int table_width_ = 0;
  Tensor q_, k_, v_, out_, lse_;
};

}  // namespace attend::kernels
