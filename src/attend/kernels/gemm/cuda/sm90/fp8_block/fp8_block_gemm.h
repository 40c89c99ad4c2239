// Products of fp8 with fp8, with scales of blocks, by the tiles of sm_90a.
#pragma once

#include "attend/kernels/gemm/linear.h"

namespace attend::kernels::cuda::sm90 {

// The tiles of the GEMM of fp8 by fp8 with scales of blocks.

inline constexpr int kFp8BlockInputs = 128;  // that share a scale, of x and of the weight
inline constexpr int kFp8TileOuts = 128;     // of a tile, which share the weight's

// Rows of x in e4m3, with a scale for each 128 inputs: scales[block * stride + row].
struct Fp8BlockRows {
  TensorView codes;  // [num_rows, in_features], contiguous
  const float* scales = nullptr;
  int64_t stride = 0;
};

// out (+)= x weight^T, for an fp8 weight with a group_ins of 128 and a group_outs that is a multiple of 128,
// or at least its outputs. out: f16 or bf16 [num_rows, a multiple of 8], rows at multiples of 8 bytes.
void fp8_block_gemm(const Fp8BlockRows& x, const Weight& weight, const TensorView& out, bool accumulate,
                    Stream& stream);

}  // namespace attend::kernels::cuda::sm90
