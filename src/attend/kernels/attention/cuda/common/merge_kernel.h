// Merge of partial results by their LSE.
#pragma once

#include "attend/kernels/common/cuda/params.h"

namespace attend::kernels::cuda {

// One partial result of [num_tokens, num_heads, head_dim], and its LSE.
struct MergePartial {
  TokenRows out;
  Element element;
  const float* lse;
  int64_t lse_token_stride, lse_head_stride;
};

// Two partial results at arbitrary addresses, or num_partials at constant strides from the first.
struct MergeParams {
  MergePartial partials[2];
  int32_t num_partials;
  bool strided;  // partial result i is at partials[0] + i strides
  int64_t out_partial_stride, lse_partial_stride;
  const float* sinks;  // [num_heads]; null: none
  OutRows out;
  Element out_element;
  float* lse;  // null: not requested
  int64_t lse_token_stride, lse_head_stride;
  int32_t num_tokens, num_heads, head_dim;
};

void launch_merge(const MergeParams& params, void* stream);

}  // namespace attend::kernels::cuda
