// A step of attention or of MLA on the GPU whose lengths may change between calls, as between replays of a
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
  int max_seqlen_q = 1, max_seqlen_kv = 3000;  // of a request
  int num_q_heads = 8, num_kv_heads = 2;
  int head_dim = 128;
  bool mla = false;  // latent rows of 512 + 64 columns instead, for all query heads
  DType kv_dtype = DType::kBF16;
  kernels::SplitRule split_rule = kernels::SplitRule::kBalanced;
  int64_t max_kv_tokens = 0;   // of the plan; 0: what the requests have at most
  bool short_requests = true;  // are planned for
  kernels::AttentionMask attention_mask = {};
};

// Queries and keys are random, the same for steps of one shape. Requests have pages of 16 tokens.
class AttentionStep {
 public:
  AttentionStep(const StepShape& shape, Stream& stream);

  // One of every request. Tokens beyond all of these are padding.
  void set_lengths(std::span<const conformance::Lengths> lengths);
  // Plans and attends.
  void queue(Planning planning = Planning::kBefore);
  // The kernel that queue() has chosen.
  kernels::cuda::AttentionKernel kernel() const;
  const kernels::cuda::DevicePlan& plan() const { return plan_.device_plan(); }
  // What a result that is not written is.
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
