// fp8 x fp8 products with block scales on sm_90a.
#pragma once

#include "attend/kernels/gemm/linear.h"

namespace attend::kernels::cuda::sm90 {

// Tile sizes of the fp8 x fp8 GEMM with block scales.

inline constexpr int kFp8BlockInputs = 128;  // inputs of x and of the weight that share a scale
inline constexpr int kFp8TileOuts = 128;     // outputs per tile, which share the weight's scales

// Rows of x in e4m3 with a scale per 128 inputs: scales[block * stride + row].
struct Fp8BlockRows {
  TensorView codes;  // [num_rows, in_features], contiguous
  const float* scales = nullptr;
  int64_t stride = 0;
};

// out = x weight^T, or out += x weight^T if `accumulate` is set, for an fp8 weight with group_ins = 128 and a
// group_outs that is a multiple of 128 or at least the number of outputs. out: f16 or bf16 [num_rows, a
// multiple of 8], rows at multiples of 8 bytes.
void fp8_block_gemm(const Fp8BlockRows& x, const Weight& weight, const TensorView& out, bool accumulate,
                    Stream& stream);

}  // namespace attend::kernels::cuda::sm90
