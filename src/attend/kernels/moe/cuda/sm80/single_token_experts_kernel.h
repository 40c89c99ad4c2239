// The experts of a single token (single_token_experts.cuh): what crosses to the device, and the launches.
#pragma once

#include <algorithm>

#include "attend/kernels/moe/cuda/sm80/skinny_experts_kernel.h"

namespace attend::kernels::cuda::sm80 {

inline constexpr int kSingleTokenOutputs = 8;  // of a work tile: divide out_features
inline constexpr int kMaxSingleTokenTopK = 16;
inline constexpr int kMaxSingleTokenXBytes = 40 << 10;  // single_token_x_bytes() of each product

// Shared memory for rows of x, whose inputs are rounded up to those of a K-block.
constexpr int64_t single_token_x_bytes(int64_t num_rows, int64_t in_features) {
  constexpr int64_t kInputs = 128;
  return num_rows * ((in_features + kInputs - 1) / kInputs * kInputs) * 2;
}

// As the functions of skinny_experts_kernel.h of one token, gated or else sums; out_features is a multiple of
// kSingleTokenOutputs, top_k at most kMaxSingleTokenTopK. Scales of mxfp4: of gate and up they may lie at any
// byte, of the sums rows have an even number, from an even byte on. x is within the limits of mxfp4_sums.cuh.
void launch_single_token_experts_bf16(const SkinnyExpertsParams& params, void* stream);
void launch_single_token_experts_f16(const SkinnyExpertsParams& params, void* stream);
void launch_single_token_mxfp4_experts_bf16(const SkinnyExpertsParams& params, void* stream);

// Second product of a single token (single_token_mxfp4_experts.cu): how it is shared.

inline constexpr int kSingleTokenDownWarps = 24;
inline constexpr int kSingleTokenStripInputs = 256;  // of K
inline constexpr int kSingleTokenTileOutputs = 8;
inline constexpr int kSingleTokenSumsPerTile = 64;  // of each of 16 rows those of four lanes
// GPUs with the least shared memory give a CTA 99 KB, of which the experts' ids take some.
inline constexpr int kMaxSingleTokenDownBytes = 98 << 10;

// How CTAs and their warps share work tiles, experts and strips of K: warp w has experts 2 (w / num_slices)
// and the next, and every num_slices-th strip from w % num_slices on.
struct SingleTokenShare {
  int32_t num_ctas, num_tiles;
  int32_t num_strips, num_slices, strips_per_warp;
  int32_t num_parts;
  int32_t shared_bytes;
};
inline SingleTokenShare single_token_share(int64_t top_k, int64_t in_features, int64_t out_features,
                                           int num_sms) {
  const auto ceil_of = [](int a, int b) { return (a + b - 1) / b; };
  SingleTokenShare share{};
  share.num_tiles = static_cast<int>(out_features) / kSingleTokenTileOutputs;
  share.num_ctas = std::min(share.num_tiles, num_sms);
  share.num_strips = ceil_of(static_cast<int>(in_features), kSingleTokenStripInputs);
  share.num_parts = ceil_of(static_cast<int>(top_k), 2);
  share.num_slices = std::min(kSingleTokenDownWarps / share.num_parts, share.num_strips);
  share.strips_per_warp = ceil_of(share.num_strips, share.num_slices);
  const int strips = 1 + 2 * kSingleTokenDownWarps * share.strips_per_warp;
  const int sums =
      ceil_of(share.num_tiles, share.num_ctas) * share.num_parts * share.num_slices * kSingleTokenSumsPerTile;
  share.shared_bytes = strips * kSingleTokenStripInputs * 2 + sums * static_cast<int>(sizeof(float));
  return share;
}

struct SingleTokenDownParams {
  SkinnyExpertsParams product;
  SingleTokenShare share;
};

}  // namespace attend::kernels::cuda::sm80
