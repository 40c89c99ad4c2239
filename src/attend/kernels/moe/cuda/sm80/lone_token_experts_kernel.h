// The experts of a single token (lone_token_experts.cuh): what crosses to the device, and the launches.
#pragma once

#include "attend/kernels/moe/cuda/sm80/skinny_experts_kernel.h"

namespace attend::kernels::cuda {

inline constexpr int kLoneOutputs = 8;  // of a work tile: divide out_features
inline constexpr int kMaxLoneTopK = 16;
inline constexpr int kMaxLoneXBytes = 40 << 10;  // lone_token_x_bytes() of both products

// Shared memory for rows of x, whose inputs are rounded up to those of a K-block.
constexpr int64_t lone_token_x_bytes(int64_t num_rows, int64_t in_features) {
  constexpr int64_t kInputs = 128;
  return num_rows * ((in_features + kInputs - 1) / kInputs * kInputs) * 2;
}

// As the functions of skinny_experts_kernel.h of one token, gated or else sums; out_features is a multiple of
// kLoneOutputs, top_k at most kMaxLoneTopK. Scales may lie at any byte.
void launch_lone_token_experts_bf16(const SkinnyExpertsParams& params, void* stream);
void launch_lone_token_experts_f16(const SkinnyExpertsParams& params, void* stream);
void launch_lone_token_mxfp4_experts_bf16(const SkinnyExpertsParams& params, void* stream);

// Both products in one launch, whose CTAs wait for one another: for what fits_one_launch(), so that all of
// them are on the GPU at once.
struct LoneTokenMlpParams {
  SkinnyExpertsParams gate_up, down;  // as above; down reads what gate_up writes
  int32_t* arrivals;                  // 0: counts CTAs
};
void launch_lone_token_mlp_bf16(const LoneTokenMlpParams& params, void* stream);
void launch_lone_token_mlp_f16(const LoneTokenMlpParams& params, void* stream);
void launch_lone_token_mxfp4_mlp_bf16(const LoneTokenMlpParams& params, void* stream);

inline constexpr int kLoneCtasOfSm = 3;  // of 80 registers a thread, and kMaxLoneXBytes: on sm_90
constexpr bool fits_one_launch(int64_t top_k, int64_t intermediate_size, int64_t hidden_size, bool plain,
                               int num_sms) {
  const int64_t tiles = top_k * (intermediate_size / kLoneOutputs), tiles_of_cta = plain ? 2 : 4;
  const int64_t most = int64_t{kLoneCtasOfSm} * num_sms;
  return (tiles + tiles_of_cta - 1) / tiles_of_cta <= most && hidden_size / kLoneOutputs <= most;
}

}  // namespace attend::kernels::cuda
