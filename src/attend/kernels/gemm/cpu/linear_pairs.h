// out = x W^T with x and W in bfloat16, as the driver (linear.cc) sees it: VDPBF16PS multiplies 16 pairs of
// input features and adds them to 16 sums in float32, twice the products of a float32 instruction.
//
// x is rounded to the nearest bfloat16, once for all output features. Products are exact, sums those of
// float32 arithmetic; denormals count as zero.
#pragma once

#include <cstdint>

#include "attend/base/math.h"
#include "attend/kernels/gemm/cpu/linear_kernel.h"

namespace attend::kernels::cpu {

// Rows of x, rounded: pairs of neighboring input features, the first in the low half, and zeros up to whole
// vectors.
struct PairRows {
  uint32_t* data = nullptr;  // [rows, stride], aligned to 64
  int64_t stride = 0;        // pairs
};

inline constexpr int kPairsPerVector = 16;
constexpr int64_t pair_stride(int64_t in_features) {
  return round_up(ceil_div(in_features, int64_t{2}), int64_t{kPairsPerVector});
}

// Rows that are rounded at once and share each panel of weights: with the sums they stay in the L2 cache.
inline constexpr int64_t kMaxPairRows = 512;
// Whether weights are multiplied as they stream by: while memory is what they wait for, or the rows stay in
// the L1 cache with them. Else they are packed first.
constexpr bool streams_pairs(int64_t num_rows, int64_t in_features) {
  return num_rows <= 4 || num_rows * in_features <= 32 << 10;
}
// A multiple of the output features of each panel.
inline constexpr int64_t kPairTaskOuts = 128;

// `part`: of bf16 weights; its x stands in `rows`, rounded, from row 0 on.
struct PairLinear {
  void (*round)(const LinearPart& part, const PairRows& rows) = nullptr;
  // Any number of rows: a row's bits do not depend on it.
  void (*skinny)(const LinearPart& part, const PairRows& rows) = nullptr;
  void (*packed)(const LinearPart& part, const PairRows& rows) = nullptr;
};
PairLinear pair_linear_avx512bf16();

}  // namespace attend::kernels::cpu
