// RoPE angles that depend on the length of each token's request.
#pragma once

#include <cstdint>

namespace attend::kernels::cuda {

// See DynamicAnglesArgs of rope.h. Rows of cos and sin are contiguous.
struct DynamicAnglesParams {
  const int32_t* positions;
  const int32_t* cu_seqlen_q;
  const int32_t* prompt_lens;
  double theta, factor;
  float *cos, *sin;
  int32_t num_tokens, num_reqs, original_length, half;
};
void launch_dynamic_angles(const DynamicAnglesParams& params, void* stream);

// See RopeRowsByLengthArgs of rope.h.
struct RopeRowsByLengthParams {
  const int32_t* positions;
  const int32_t* cu_seqlen_q;
  const int32_t* prompt_lens;
  int32_t* rows;
  int32_t num_tokens, num_reqs, original_length, num_positions;
};
void launch_rope_rows_by_length(const RopeRowsByLengthParams& params, void* stream);

}  // namespace attend::kernels::cuda
