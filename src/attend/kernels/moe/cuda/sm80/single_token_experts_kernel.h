// Experts of a single token (single_token_experts.cuh): parameters and launches.
#pragma once

#include <algorithm>

#include "attend/kernels/moe/cuda/sm80/skinny_experts_kernel.h"

namespace attend::kernels::cuda::sm80 {

// Outputs per work tile; they divide out_features. Without gates, the first product has both halves of the
// tile's rows for outputs.
inline constexpr int kSingleTokenOutputs = 8, kSingleTokenPlainOutputs = 16;
inline constexpr int kMaxSingleTokenTopK = 16;
inline constexpr int kMaxSingleTokenXBytes = 40 << 10;  // limit of single_token_x_bytes() for each product

// Returns the shared-memory bytes of rows of x, with inputs padded to whole K-blocks.
constexpr int64_t single_token_x_bytes(int64_t num_rows, int64_t in_features) {
  constexpr int64_t kInputs = 128;
  return num_rows * ((in_features + kInputs - 1) / kInputs * kInputs) * 2;
}

// Like the functions of skinny_experts_kernel.h for one token, with `sums` or without: then out[pair] is
// act(W x), or relu^2 of it if not gated (plain weights only). out_features is a multiple of
// kSingleTokenOutputs or, if neither gated nor with sums, of kSingleTokenPlainOutputs; top_k and the parts of
// a shared expert are at most kMaxSingleTokenTopK. mxfp4 scales of gate and up may start at any byte; rows of
// the second product have an even number of scales and start at even bytes. x is within the limits of
// mxfp4_sums.cuh.
void launch_single_token_experts_bf16(const SkinnyExpertsParams& params, void* stream);
void launch_single_token_experts_f16(const SkinnyExpertsParams& params, void* stream);
void launch_single_token_mxfp4_experts_bf16(const SkinnyExpertsParams& params, void* stream);

// Partition of the second product of a single token (single_token_mxfp4_experts.cu).

inline constexpr int kSingleTokenDownWarps = 24;
inline constexpr int kSingleTokenStripInputs = 256;  // inputs of K per strip
inline constexpr int kSingleTokenTileOutputs = 8;
inline constexpr int kSingleTokenSumsPerTile = 64;  // four lanes for each of 16 rows
// GPUs with the least shared memory have 99 KB per CTA, a part of which stores the experts' ids.
inline constexpr int kMaxSingleTokenDownBytes = 98 << 10;

// Partition of work tiles, experts and strips of K over CTAs and their warps: warp w has experts 2 (w /
// num_slices) and 2 (w / num_slices) + 1, and every num_slices-th strip from w % num_slices.
struct SingleTokenShare {
  int32_t num_ctas, num_tiles;
  int32_t num_strips, num_slices, strips_per_warp;
  int32_t num_parts;
  int32_t shared_bytes;
};
inline SingleTokenShare single_token_share(int64_t top_k, int64_t in_features, int64_t out_features,
                                           int num_sms) {
  const auto ceil_quotient = [](int a, int b) { return (a + b - 1) / b; };
  SingleTokenShare share{};
  share.num_tiles = static_cast<int>(out_features) / kSingleTokenTileOutputs;
  share.num_ctas = std::min(share.num_tiles, num_sms);
  share.num_strips = ceil_quotient(static_cast<int>(in_features), kSingleTokenStripInputs);
  share.num_parts = ceil_quotient(static_cast<int>(top_k), 2);
  share.num_slices = std::min(kSingleTokenDownWarps / share.num_parts, share.num_strips);
  share.strips_per_warp = ceil_quotient(share.num_strips, share.num_slices);
  const int strips = 1 + 2 * kSingleTokenDownWarps * share.strips_per_warp;
  const int sums = ceil_quotient(share.num_tiles, share.num_ctas) * share.num_parts * share.num_slices *
                   kSingleTokenSumsPerTile;
  share.shared_bytes = strips * kSingleTokenStripInputs * 2 + sums * static_cast<int>(sizeof(float));
  return share;
}

struct SingleTokenDownParams {
  SkinnyExpertsParams product;
  SingleTokenShare share;
};

}  // namespace attend::kernels::cuda::sm80
