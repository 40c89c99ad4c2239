// Experts of few rows each in mxfp4 (direct_experts.cuh): what crosses to the device, and the launch.
#pragma once

#include "attend/kernels/moe/cuda/sm80/skinny_experts_kernel.h"

namespace attend::kernels::cuda {

inline constexpr int kMaxDirectPairs = kMaxSkinnyMxFp4Pairs;
// Inputs of either product, whose 8 rows of x leave room for three CTAs on an SM.
inline constexpr int kMaxDirectInputs = 3328, kMaxDirectBytes = 75 << 10;

// As launch_skinny_mxfp4_experts_bf16, gated or else rows (no sums); out_features is a multiple of 8. Scales
// may lie at any byte. Gated, each eight outputs of a row lie in the order in which the product behind it,
// which is the same function's, takes them.
void launch_direct_mxfp4_experts_bf16(const SkinnyExpertsParams& params, void* stream);

}  // namespace attend::kernels::cuda
