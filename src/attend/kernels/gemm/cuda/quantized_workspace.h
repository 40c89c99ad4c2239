// Layout of LinearArgs::workspace for products with quantized weights on a GPU.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "attend/base/math.h"
#include "attend/kernels/gemm/cuda/sm80/quantized_gemm_kernel.h"

namespace attend::kernels::cuda {

// Outputs that are dequantized together: enough tiles for a GEMM to fill the GPU.
inline constexpr int64_t kDequantizedOuts = 4096;

// Bytes for a few reordered rows of x, or for a dequantized tile. A workspace for more inputs also serves
// fewer.
class QuantizedWorkspace {
 public:
  explicit QuantizedWorkspace(int64_t in_features)
      : inputs_(aligned_bytes(sm80::kLargeQuantizedRows * in_features)),
        elements_(aligned_bytes(kDequantizedOuts * in_features)) {}
  size_t total() const { return std::max(inputs_, elements_); }

 private:
  static constexpr size_t kPieceAlignment = 256, kBytesOf16Bits = 2;

  static size_t aligned_bytes(int64_t count) {
    return round_up(static_cast<size_t>(count) * kBytesOf16Bits, kPieceAlignment);
  }

  size_t inputs_, elements_;
};

}  // namespace attend::kernels::cuda
