// The GEMM of fp8 by fp8 with scales of blocks on sm_90a: what crosses to the device, and the launches.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "attend/kernels/gemm/cuda/sm90/fp8_block/fp8_block_gemm.h"

namespace attend::kernels::cuda::sm90 {

// out (+)= x weight^T, both e4m3: element (r, k) of x is its code times x_scales[k / 128][r], and (o, k) of
// the weight its code times weight_scales[o / group_outs][k / 128].
struct Fp8BlockGemmParams {
  CUtensorMap weight;  // boxes of [128 outputs, 128 inputs]
  CUtensorMap x;       // boxes of [half of a tile's rows, 128 inputs]
  const float* x_scales;
  int32_t x_scale_stride;
  const float* weight_scales;  // [., num_k_blocks]
  int32_t group_tiles;         // group_outs / 128
  void* out;  // f16 or bf16; row r begins at element r * out_stride, at a multiple of 8 bytes
  int64_t out_stride;
  int32_t num_rows, out_features;  // the latter a multiple of 8
  int32_t num_out_tiles;           // of 128
  int32_t num_k_blocks;
  bool accumulate;
};

// `tile_rows`: 128 or 256, twice what the boxes of x have. CTAs are persistent, one an SM. Throws
// Error(kDevice) when the launch fails.
void launch_fp8_block_gemm_bf16(const Fp8BlockGemmParams& params, int tile_rows, int num_sms, void* stream);
void launch_fp8_block_gemm_f16(const Fp8BlockGemmParams& params, int tile_rows, int num_sms, void* stream);

}  // namespace attend::kernels::cuda::sm90
