// Experts of few rows each in mxfp4 (direct_experts.cuh): what crosses to the device, and the launch.
#pragma once

#include "attend/kernels/moe/cuda/sm80/skinny_experts_kernel.h"

namespace attend::kernels::cuda::sm80 {

inline constexpr int kMaxDirectPairs = kMaxSkinnyMxFp4Pairs;
// Inputs and outputs of either product are multiples of kDirectInputs, and 8 rows of x of kMaxDirectInputs
// fit beside what else is in kMaxDirectBytes of shared memory.
inline constexpr int kDirectInputs = 64, kMaxDirectInputs = 3840, kMaxDirectBytes = 226 << 10;

// As launch_skinny_mxfp4_experts_bf16, gated or else rows (no sums). Scales begin at a multiple of 16 bytes.
// Gated, each eight outputs of a row lie in the order in which the product behind it, which is the same
// function's, takes them. x is within the limits of mxfp4_sums.cuh.
void launch_direct_mxfp4_experts_bf16(const SkinnyExpertsParams& params, void* stream);

}  // namespace attend::kernels::cuda::sm80
