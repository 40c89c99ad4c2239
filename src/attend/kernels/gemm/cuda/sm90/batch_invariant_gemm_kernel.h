// The batch-invariant GEMM of sm_90a: what crosses to the device, and the launches.
#pragma once

#include <cuda.h>

#include "attend/kernels/common/cuda/params.h"
#include "attend/kernels/gemm/cuda/sm90/batch_invariant_gemm_shape.h"

namespace attend::kernels::cuda::sm90 {

// out = x weight^T (+ bias) (+ out).
struct BatchInvariantGemmParams {
  CUtensorMap x, weight;  // [K-block, rows], boxes of a tile's rows and of its features
  DeviceVector bias;
  void* out;  // row r begins at element r * out_stride
  int64_t out_stride;
  int32_t num_rows, out_features;
  int32_t num_k_blocks;  // of 64 inputs
  bool accumulate;       // what out holds is added
  bool out_paired;       // pairs of features begin at multiples of 4 bytes
  Element out_element;
};

// A CTA for each of `num_sms`. Throws Error(kDevice) when the launch fails.
void launch_batch_invariant_gemm_bf16(const BatchInvariantGemmParams& params,
                                      const BatchInvariantGemmTile& shape, int num_sms, void* stream);
void launch_batch_invariant_gemm_f16(const BatchInvariantGemmParams& params,
                                     const BatchInvariantGemmTile& shape, int num_sms, void* stream);

}  // namespace attend::kernels::cuda::sm90
