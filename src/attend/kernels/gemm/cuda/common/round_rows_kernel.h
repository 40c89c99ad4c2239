// Rounds rows of x to fp8 with one scale per row, or one per block of inputs.
#pragma once

#include "attend/kernels/common/cuda/params.h"

namespace attend::kernels::cuda {

inline constexpr int kMaxRoundedInputs = 32768;
inline constexpr int kRoundedBlockInputs = 128;  // inputs of a row that share a scale with block_scales

// to = rows / scale, rounded to the nearest e4m3, with scale = amax / 448 over the row or over a block of its
// inputs. Rows are those of x, after rms_norm() if `norm` is set. A NaN makes its row or block NaN. x, its
// rows, the norm weight and `to` start at multiples of 16 bytes; in_features is a multiple of 8.
struct RoundRowsParams {
  const void* x;  // f16 or bf16; row r starts at element r * x_stride
  int64_t x_stride;
  const void* norm;  // [in_features], dtype of x; null: no norm
  float norm_eps;
  int32_t num_rows, in_features;
  Element element;
  void* to;  // e4m3 [num_rows, in_features]
  // [num_rows]; with block_scales [blocks, block_stride]. The last block may have fewer inputs.
  float* scales;
  bool block_scales;
  int32_t block_stride;
  // If not null, the kernel writes out_scales[o] = group_scales[o / group_outs].
  const float* group_scales;
  float* out_scales;  // [num_outs]
  int32_t num_outs, group_outs;
};
void launch_round_rows(const RoundRowsParams& params, void* stream);

}  // namespace attend::kernels::cuda
