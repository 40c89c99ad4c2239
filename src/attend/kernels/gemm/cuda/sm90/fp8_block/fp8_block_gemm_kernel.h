// fp8 x fp8 GEMM with block scales on sm_90a: parameters and launches.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "attend/kernels/gemm/cuda/sm90/fp8_block/fp8_block_gemm.h"

namespace attend::kernels::cuda::sm90 {

// out (+)= x weight^T, both e4m3. Element (r, k) of x is its quantized value times x_scales[k / 128][r];
// element (o, k) of the weight is its quantized value times weight_scales[o / group_outs][k / 128].
struct Fp8BlockGemmParams {
  CUtensorMap weight;  // boxes of [128 outputs, 128 inputs]
  CUtensorMap x;       // boxes of [half of a tile's rows, 128 inputs]
  const float* x_scales;
  int32_t x_scale_stride;
  const float* weight_scales;  // [., num_k_blocks]
  int32_t group_tiles;         // group_outs / 128
  void* out;  // f16 or bf16; row r starts at element r * out_stride, at a multiple of 8 bytes
  int64_t out_stride;
  int32_t num_rows, out_features;  // out_features: a multiple of 8
  int32_t num_out_tiles;           // tiles of 128 outputs
  int32_t num_k_blocks;
  bool accumulate;
};

// `tile_rows`: 128 or 256, twice the rows of a box of x. CTAs are persistent, one per SM. Throws
// Error(kDevice) if the launch fails.
void launch_fp8_block_gemm_bf16(const Fp8BlockGemmParams& params, int tile_rows, int num_sms, void* stream);
void launch_fp8_block_gemm_f16(const Fp8BlockGemmParams& params, int tile_rows, int num_sms, void* stream);

}  // namespace attend::kernels::cuda::sm90
