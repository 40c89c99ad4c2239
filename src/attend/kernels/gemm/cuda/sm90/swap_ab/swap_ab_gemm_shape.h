// How the swap-AB split-K GEMM divides a layer.
#pragma once

namespace attend::kernels::cuda::sm90 {

inline constexpr int kBlockInputs = 64;    // of a K-block: 128 bytes of a row
inline constexpr int kPairRows = 16;       // eight rows of weights and their partners
inline constexpr int kWarpgroupRows = 64;  // of W, of a warpgroup (wgmma m64)
inline constexpr int kMaxWarpgroups = 2;
inline constexpr int kMaxClusterSize = 8;
inline constexpr int kMinColumns = 2;  // of 16 rows of x: that many are exchanged though x has fewer
// Of quantised weights: rows of x of a launch under a deferred norm; inputs whose products' sums are
// multiplied by a scale.
inline constexpr int kMaxDeferredCodeTokens = 64;
inline constexpr int kScaledInputs = 128;
// Of int4: inputs of a stage of W, two groups of scales, which a row has a whole number of.
inline constexpr int kScaledStageInputs = 256;

// A cluster takes tiles of 16 to 128 rows of weights, one after another; each of its CTAs
// multiplies an even range of the K-blocks (split-K). Their partial sums are added in the order of K, so bits
// depend on `cluster_size` alone.
struct SwapAbGemmShape {
  int tile_pairs;  // rows of weights in 16s: 1 to 8
  // 1, 2, 4 or 8. At most the number of K-blocks, and kMinColumns * tile_pairs: each CTA then adds partial
  // sums of all others for every tile, which keeps them from running ahead.
  int cluster_size;
  int num_clusters;    // at most as many as run at once
  int num_tokens = 0;  // of the instance, which the rows of x decide: 32, 64 or 128
  // Of scaled codes: tiles of 128 rows that a CTA multiplies together, 1 or 2. 0: sums of 128 inputs are
  // scaled.
  int scaled_tiles = 0;

  // Of a CTA. The rest of the last one's 64 rows is multiplied too, and left.
  int num_warpgroups() const { return tile_pairs * kPairRows > kWarpgroupRows ? 2 : 1; }
};

}  // namespace attend::kernels::cuda::sm90
