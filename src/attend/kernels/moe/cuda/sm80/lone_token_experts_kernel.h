// The experts of a single token (lone_token_experts.cuh): what crosses to the device, and the launches.
#pragma once

#include "attend/kernels/moe/cuda/sm80/skinny_experts_kernel.h"

namespace attend::kernels::cuda::sm80 {

inline constexpr int kLoneOutputs = 8;  // of a work tile: divide out_features
inline constexpr int kMaxLoneTopK = 16;
inline constexpr int kMaxLoneXBytes = 40 << 10;  // lone_token_x_bytes() of each product

// Shared memory for rows of x, whose inputs are rounded up to those of a K-block.
constexpr int64_t lone_token_x_bytes(int64_t num_rows, int64_t in_features) {
  constexpr int64_t kInputs = 128;
  return num_rows * ((in_features + kInputs - 1) / kInputs * kInputs) * 2;
}

// As the functions of skinny_experts_kernel.h of one token, gated or else sums; out_features is a multiple of
// kLoneOutputs, top_k at most kMaxLoneTopK. Scales of mxfp4: of gate and up they may lie at any byte, of the
// sums rows have an even number, from an even byte on. x is within the limits of mxfp4_sums.cuh.
void launch_lone_token_experts_bf16(const SkinnyExpertsParams& params, void* stream);
void launch_lone_token_experts_f16(const SkinnyExpertsParams& params, void* stream);
void launch_lone_token_mxfp4_experts_bf16(const SkinnyExpertsParams& params, void* stream);

}  // namespace attend::kernels::cuda::sm80
