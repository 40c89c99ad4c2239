// The skinny GEMM of quantised weights (skinny_codes.cuh): what crosses to the device, and the launches.
#pragma once

#include "attend/kernels/gemm/cuda/common/quantised_weight.h"
#include "attend/kernels/gemm/cuda/sm80/skinny_gemm_kernel.h"

namespace attend::kernels::cuda::sm80 {

inline constexpr int kMaxSkinnyCodeRows = 8;
// Inputs of 128 bytes of a row of codes, which in_features is a multiple of.
inline constexpr int kByteRowInputs = 128, kInt4RowInputs = 256;
// Inputs that share a scale in int4. In 8 bits they are a multiple of kByteRowInputs, or all, and outputs
// that share one a power of two, or all.
inline constexpr int kInt4GroupInputs = 128;
inline constexpr int kMaxByteGroupInputs = 8 * kByteRowInputs;  // of those that are not of all

// Shared memory for x: all of it lies there.
inline constexpr int kMaxSkinnyCodeXBytes = 64 << 10;
// Of rows of x, as many as kernels have room for: 1 or kMaxSkinnyCodeRows.
constexpr int64_t skinny_code_x_bytes(int64_t num_rows, int64_t in_features) {
  return (num_rows == 1 ? 1 : kMaxSkinnyCodeRows) * in_features * 2;
}

// As SkinnyGemmParams of at most kMaxSkinnyCodeRows rows, whose `weight` is weight.data: codes in 8 bits, or
// int4 in groups of kInt4GroupInputs with scales of 16 bits. Scales, and zeros, begin at multiples of 4
// bytes; with zeros, a row has a multiple of four of them.
struct SkinnyCodesParams {
  SkinnyGemmParams product;
  QuantisedWeight weight;
};

// On GPUs whose CTAs can have kLargeSharedBytes.
void launch_skinny_codes_bf16(const SkinnyCodesParams& params, void* stream);
void launch_skinny_codes_f16(const SkinnyCodesParams& params, void* stream);

}  // namespace attend::kernels::cuda::sm80
