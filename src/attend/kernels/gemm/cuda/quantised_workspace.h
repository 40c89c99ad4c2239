// What products with quantised weights on a GPU take of LinearArgs::workspace.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "attend/base/math.h"
#include "attend/kernels/gemm/cuda/sm80/quantised_gemm_kernel.h"

namespace attend::kernels::cuda {

// Outputs that are widened at once: enough for the tiles of a GEMM to fill the GPU.
inline constexpr int64_t kWidenedOuts = 2048;

// Pieces in bytes: of few rows of x in another order; or of a widened tile, and of sums by it. What serves
// more rows and inputs serves fewer.
struct QuantisedWorkspace {
  size_t inputs, elements, sums;

  QuantisedWorkspace(int64_t num_rows, int64_t in_features)
      : inputs(bytes_of(kManyQuantisedRows * in_features, kBytesOf16Bits)),
        elements(bytes_of(kWidenedOuts * in_features, kBytesOf16Bits)),
        sums(bytes_of(num_rows * kWidenedOuts, sizeof(float))) {}
  size_t total() const { return std::max(inputs, elements + sums); }

 private:
  static constexpr size_t kPieceAlignment = 256, kBytesOf16Bits = 2;

  static size_t bytes_of(int64_t count, size_t size) {
    return round_up(static_cast<size_t>(count) * size, kPieceAlignment);
  }
};

}  // namespace attend::kernels::cuda
