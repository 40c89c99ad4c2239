// out = x W^T with x and W in bfloat16: the interface for the driver (linear.cc). VDPBF16PS multiplies 16
// pairs of input features and adds them to 16 sums in float32, twice the products of a float32 instruction.
//
// x is rounded to the nearest bfloat16 once for all output features. Products are exact, and sums use float32
// arithmetic. Denormals are treated as zero.
#pragma once

#include <cstdint>

#include "attend/base/math.h"
#include "attend/kernels/gemm/cpu/linear_kernel.h"

namespace attend::kernels::cpu {

// Rounded rows of x: pairs of neighboring input features, the first in the low half, padded with zeros to
// whole vectors.
struct PairRows {
  uint32_t* data = nullptr;  // [rows, stride], aligned to 64
  int64_t stride = 0;        // in pairs
};

inline constexpr int kPairsPerVector = 16;
constexpr int64_t pair_stride(int64_t in_features) {
  return round_up(ceil_div(in_features, int64_t{2}), int64_t{kPairsPerVector});
}

// Rows that are rounded together and share each panel of weights. The rows and their sums stay in the L2
// cache.
inline constexpr int64_t kMaxPairRows = 512;
// True if weights are multiplied as they are read: the product is bound by memory, or the rows stay in the L1
// cache. Otherwise weights are packed first.
constexpr bool streams_pairs(int64_t num_rows, int64_t in_features) {
  return num_rows <= 4 || num_rows * in_features <= 32 << 10;
}
// Output features per task: a multiple of each panel's output features.
inline constexpr int64_t kPairTaskOuts = 128;

// `part` has bf16 weights. Its rows of x, rounded, are rows 0 to num_rows - 1 of `rows`.
struct PairLinear {
  void (*round)(const LinearPart& part, const PairRows& rows) = nullptr;
  // Supports any number of rows. A row's bits do not depend on it.
  void (*skinny)(const LinearPart& part, const PairRows& rows) = nullptr;
  void (*packed)(const LinearPart& part, const PairRows& rows) = nullptr;
};
PairLinear pair_linear_avx512bf16();

}  // namespace attend::kernels::cpu
