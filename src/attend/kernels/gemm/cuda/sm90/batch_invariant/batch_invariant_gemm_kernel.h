// Batch-invariant GEMM of sm_90a: parameters and launches.
#pragma once

#include <cuda.h>

#include "attend/kernels/common/cuda/params.h"
#include "attend/kernels/gemm/cuda/sm90/batch_invariant/batch_invariant_gemm.h"
#include "attend/kernels/gemm/cuda/sm90/swap_ab/swap_ab_gemm.h"

namespace attend::kernels::cuda::sm90 {

// out = x weight^T (+ bias) (+ out), or silu(gate) * up of its two halves.
struct BatchInvariantGemmParams {
  CUtensorMap x, last_x;  // [K-block, rows], boxes of a tile's rows, and of last_box_rows
  // [K-block, rows] in boxes of a tile's features; if gated [K-block, 8 rows, gate and up, pairs].
  CUtensorMap weight;
  DeviceVector bias;
  void* out;  // row r starts at element r * out_stride
  int64_t out_stride;
  int32_t num_rows, num_weight_rows, out_features;
  int32_t num_k_blocks;   // of 64 inputs
  int32_t last_box_rows;  // rows of the last row tile, rounded up to eight
  bool gated;
  bool accumulate;     // not gated: adds to the contents of out
  bool out_in_groups;  // out is 16-bit, and groups of eight features start at multiples of 16 bytes
  bool out_in_pairs;   // out is float32, and pairs of features start at multiples of 8 bytes
  Element out_element;
};

// Throws Error(kInvalidArgument) for a tile without a kernel, and Error(kDevice) if the launch fails.
void launch_batch_invariant_gemm_bf16(const BatchInvariantGemmParams& params,
                                      const BatchInvariantGemmShape& shape, void* stream);
void launch_batch_invariant_gemm_f16(const BatchInvariantGemmParams& params,
                                     const BatchInvariantGemmShape& shape, void* stream);

}  // namespace attend::kernels::cuda::sm90
