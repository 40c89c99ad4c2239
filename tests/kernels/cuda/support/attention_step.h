// Attention or MLA step on the GPU with lengths that may change between calls, as between replays of a
// captured graph.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "attend/kernels/attention/attention.h"
#include "attend/kernels/attention/cuda/choose.h"
#include "tests/kernels/conformance/cases/attention_case.h"
#include "tests/kernels/cuda/support/device_case.h"
#include "tests/kernels/cuda/support/device_copy.h"

namespace attend::testing_cuda {

struct StepShape {
  int num_reqs = 1;
  int max_seqlen_q = 1, max_seqlen_kv = 3000;  // per request
  int num_q_heads = 8, num_kv_heads = 2;
  int head_dim = 128;
  bool mla = false;  // MLA with latent rows of 512 + 64 columns, shared by all query heads
  DType kv_dtype = DType::kBF16;
  kernels::SplitRule split_rule = kernels::SplitRule::kBalanced;
  int64_t max_kv_tokens = 0;   // bound of the plan; 0: the largest total of the requests
  bool short_requests = true;  // AttentionLimits of the plan
  kernels::AttentionMask attention_mask = {};
};

// Queries and keys are random, but equal for steps of one shape. Pages have 16 tokens.
class AttentionStep {
 public:
  AttentionStep(const StepShape& shape, Stream& stream);

  // Sets the lengths of all requests. Further tokens are padding.
  void set_lengths(std::span<const conformance::Lengths> lengths);
  // Queues the plan and attention.
  void queue(Planning planning = Planning::kBefore);
  // Kernel that queue() has chosen.
  kernels::cuda::AttentionKernel kernel() const;
  const kernels::cuda::DevicePlan& plan() const { return plan_.device_plan(); }
  // Fills the result with a poison value.
  void poison_result();
  std::vector<uint8_t> result();

 private:
  Tensor random(std::initializer_list<int64_t> shape, DType dtype = DType::kBF16);

  const StepShape shape_;
  Stream& stream_;
  kernels::AttentionPlan plan_;
  Tensor q_, q_rope_, k_, v_, out_, lengths_, table_;
  kernels::AttentionArgs args_;
  kernels::MlaArgs mla_args_;
};

}  // namespace attend::testing_cuda
