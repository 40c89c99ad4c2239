// What products with quantized weights on a GPU take of LinearArgs::workspace.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "attend/base/math.h"
#include "attend/kernels/gemm/cuda/sm80/quantized_gemm_kernel.h"

namespace attend::kernels::cuda {

// Outputs that are widened at once: enough for the tiles of a GEMM to fill the GPU.
inline constexpr int64_t kDequantizedOuts = 4096;

// Bytes of few rows of x in another order, or of a widened tile. What serves more inputs serves fewer.
class QuantizedWorkspace {
 public:
  explicit QuantizedWorkspace(int64_t in_features)
      : inputs_(bytes_of(sm80::kLargeQuantizedRows * in_features)),
        elements_(bytes_of(kDequantizedOuts * in_features)) {}
  size_t total() const { return std::max(inputs_, elements_); }

 private:
  static constexpr size_t kPieceAlignment = 256, kBytesOf16Bits = 2;

  static size_t bytes_of(int64_t count) {
    return round_up(static_cast<size_t>(count) * kBytesOf16Bits, kPieceAlignment);
  }

  size_t inputs_, elements_;
};

}  // namespace attend::kernels::cuda
