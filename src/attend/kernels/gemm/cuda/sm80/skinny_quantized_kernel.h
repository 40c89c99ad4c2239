// Skinny GEMM of quantized weights (skinny_quantized.cuh): parameters and launches.
#pragma once

#include "attend/kernels/gemm/cuda/common/quantized_weight.h"
#include "attend/kernels/gemm/cuda/sm80/skinny_gemm_kernel.h"

namespace attend::kernels::cuda::sm80 {

inline constexpr int kMaxSkinnyQuantizedRows = 8;
// Inputs in 128 bytes of a quantized row. in_features is a multiple of it.
inline constexpr int kByteRowInputs = 128, kInt4RowInputs = 256;
// Inputs that share a scale in int4. With 8 bits, groups have a multiple of kByteRowInputs inputs, or all;
// and a power of two of outputs, or all.
inline constexpr int kInt4GroupInputs = 128;
inline constexpr int kMaxByteGroupInputs = 8 * kByteRowInputs;  // maximum group size, unless a group has all
                                                                // inputs

// Maximum shared memory for x, which is kept there completely.
inline constexpr int kMaxSkinnyQuantizedXBytes = 64 << 10;
// Shared-memory bytes for x, padded to 1 or kMaxSkinnyQuantizedRows rows.
constexpr int64_t skinny_quantized_x_bytes(int64_t num_rows, int64_t in_features) {
  return (num_rows == 1 ? 1 : kMaxSkinnyQuantizedRows) * in_features * 2;
}

// SkinnyGemmParams with at most kMaxSkinnyQuantizedRows rows and product.weight = weight.data: 8-bit values,
// or int4 in groups of kInt4GroupInputs with 16-bit scales. Scales and zeros start at multiples of 4 bytes;
// with zeros, a row has a multiple of four groups.
struct SkinnyQuantizedParams {
  SkinnyGemmParams product;
  QuantizedWeight weight;
};

// Launches. Require a GPU with kLargeSharedBytes per CTA.
void launch_skinny_quantized_bf16(const SkinnyQuantizedParams& params, void* stream);
void launch_skinny_quantized_f16(const SkinnyQuantizedParams& params, void* stream);

}  // namespace attend::kernels::cuda::sm80
