// Rows of x in fp8, each by a scale of its own, or by one for every so many inputs.
#pragma once

#include "attend/kernels/common/cuda/params.h"

namespace attend::kernels::cuda {

inline constexpr int kMaxRoundedInputs = 32768;
inline constexpr int kRoundedBlockInputs = 128;  // of a row that share a scale, with block_scales

// to = rows / scale, rounded to the nearest e4m3, with scale = largest magnitude of the row, or of a block of
// its inputs, / 448; of rows of x as they are, or as rms_norm() would leave them. What is no number makes its
// row, or its block, none. x, the norm's
// weight and `to` begin at multiples of 16 bytes, rows of x too; in_features is a multiple of 8.
struct RoundRowsParams {
  const void* x;  // f16 or bf16; row r begins at element r * x_stride
  int64_t x_stride;
  const void* norm;  // [in_features], of the type of x; null: none
  float norm_eps;
  int32_t num_rows, in_features;
  Element element;
  void* to;  // e4m3 [num_rows, in_features]
  // [num_rows]; with block_scales [blocks, block_stride], the last block maybe of fewer inputs.
  float* scales;
  bool block_scales;
  int32_t block_stride;
  // out_scales[o] = group_scales[o / group_outs]; null: nothing.
  const float* group_scales;
  float* out_scales;  // [num_outs]
  int32_t num_outs, group_outs;
};
void launch_round_rows(const RoundRowsParams& params, void* stream);

}  // namespace attend::kernels::cuda
