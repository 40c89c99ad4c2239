// How layers are shared by tall tiles.
#pragma once

namespace attend::kernels::cuda::sm90 {

inline constexpr int kGroupTokens = 64;    // rows of x that a warpgroup multiplies at once
inline constexpr int kMaxTokenGroups = 4;  // of so many, that a CTA multiplies

// Warpgroups that share a tile's weights: up to 64 rows of x are multiplied by two, so that there are warps
// enough for the results.
constexpr int feature_groups(int token_groups) { return token_groups == 1 ? 2 : 1; }

// A tile of weights, of up to 224 rows, is multiplied with up to 256 rows of x by the `num_parts` CTAs of a
// cluster that each take an even part of the inputs' chunks. Their sums are added in the order of the inputs,
// so bits depend on `num_parts` alone.
struct TallShape {
  int tile_pairs;        // rows of weights in 16s: one of tile_pairs_of(token_groups)
  int num_parts;         // at most kMaxClusterSize, and the number of chunks
  int num_clusters;      // with one part at most as many as run at once; else as many as there are tiles
  int token_groups = 0;  // 64 rows of x each, that are multiplied at once: 1, 2 or 4
};

}  // namespace attend::kernels::cuda::sm90
