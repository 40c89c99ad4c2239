// RoPE angles of a step's tokens: by the length of their request, and by positions with several axes.
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

// See AxisAnglesArgs of rope.h. All rows are contiguous.
inline constexpr int kMaxAxisPairs = 256;
struct AxisAnglesParams {
  const int32_t* positions;  // [num_axes, num_tokens]
  const float *table_cos, *table_sin;
  float *cos, *sin;
  int32_t num_tokens, half;
  uint8_t pair_axes[kMaxAxisPairs];  // [half]
};
void launch_axis_angles(const AxisAnglesParams& params, void* stream);

}  // namespace attend::kernels::cuda
