// The batch-invariant GEMM of sm_90a: what crosses to the device, and the launches.
#pragma once

#include <cuda.h>

#include "attend/kernels/common/cuda/params.h"
#include "attend/kernels/gemm/cuda/sm90/batch_invariant/batch_invariant_gemm.h"
#include "attend/kernels/gemm/cuda/sm90/swap_ab/swap_ab_gemm.h"

namespace attend::kernels::cuda::sm90 {

// out = x weight^T (+ bias) (+ out), or silu(gate) * up of its two halves.
struct BatchInvariantGemmParams {
  CUtensorMap x, last_x;  // [K-block, rows], boxes of a tile's rows, and of last_box_rows
  // [K-block, rows] in boxes of a tile's features; gated [K-block, 8 rows, gate and up, pairs].
  CUtensorMap weight;
  DeviceVector bias;
  void* out;  // row r begins at element r * out_stride
  int64_t out_stride;
  int32_t num_rows, num_weight_rows, out_features;
  int32_t num_k_blocks;   // of 64 inputs
  int32_t last_box_rows;  // those of the last row tile, rounded up to eight
  bool gated;
  bool accumulate;     // not gated: what out holds is added
  bool out_in_groups;  // out is of 16 bits, and groups of eight features begin at multiples of 16 bytes
  bool out_in_pairs;   // out is of float32, and pairs of features begin at multiples of 8 bytes
  Element out_element;
};

// Throws Error(kInvalidArgument) for a tile that there is no kernel for, Error(kDevice) when the launch
// fails.
void launch_batch_invariant_gemm_bf16(const BatchInvariantGemmParams& params,
                                      const BatchInvariantGemmShape& shape, void* stream);
void launch_batch_invariant_gemm_f16(const BatchInvariantGemmParams& params,
                                     const BatchInvariantGemmShape& shape, void* stream);

}  // namespace attend::kernels::cuda::sm90
