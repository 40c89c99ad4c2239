// The skinny GEMM of quantized weights (skinny_quantized.cuh): what crosses to the device, and the launches.
#pragma once

#include "attend/kernels/gemm/cuda/common/quantized_weight.h"
#include "attend/kernels/gemm/cuda/sm80/skinny_gemm_kernel.h"

namespace attend::kernels::cuda::sm80 {

inline constexpr int kMaxSkinnyQuantizedRows = 8;
// Inputs of 128 bytes of a row of codes, which in_features is a multiple of.
inline constexpr int kByteRowInputs = 128, kInt4RowInputs = 256;
// Inputs that share a scale in int4. In 8 bits they are a multiple of kByteRowInputs, or all, and outputs
// that share one a power of two, or all.
inline constexpr int kInt4GroupInputs = 128;
inline constexpr int kMaxByteGroupInputs = 8 * kByteRowInputs;  // of those that are not of all

// Shared memory for x: all of it lies there.
inline constexpr int kMaxSkinnyQuantizedXBytes = 64 << 10;
// Of rows of x, as many as kernels have room for: 1 or kMaxSkinnyQuantizedRows.
constexpr int64_t skinny_quantized_x_bytes(int64_t num_rows, int64_t in_features) {
  return (num_rows == 1 ? 1 : kMaxSkinnyQuantizedRows) * in_features * 2;
}

// As SkinnyGemmParams of at most kMaxSkinnyQuantizedRows rows, whose `weight` is weight.data: codes in 8
// bits, or int4 in groups of kInt4GroupInputs with scales of 16 bits. Scales, and zeros, begin at multiples
// of 4 bytes; with zeros, a row has a multiple of four of them.
struct SkinnyQuantizedParams {
  SkinnyGemmParams product;
  QuantizedWeight weight;
};

// On GPUs whose CTAs can have kLargeSharedBytes.
void launch_skinny_quantized_bf16(const SkinnyQuantizedParams& params, void* stream);
void launch_skinny_quantized_f16(const SkinnyQuantizedParams& params, void* stream);

}  // namespace attend::kernels::cuda::sm80
