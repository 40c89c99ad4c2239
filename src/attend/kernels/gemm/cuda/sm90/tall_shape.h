// How gated dense layers of up to 256 rows are shared by tall tiles.
#pragma once

#include <array>
#include <cstdint>

namespace attend::kernels::cuda::sm90 {

inline constexpr int kTallRows = 128;   // of x, that a CTA multiplies
inline constexpr int kTallSharers = 2;  // CTAs of a cluster
inline constexpr int kMaxTallRows = kTallRows * kTallSharers;
// Heights that there are kernels for: pairs of eight gate rows and their up rows.
inline constexpr std::array kTallPairs = {6, 8, 10, 12, 14};

// A CTA takes tiles of the weight one after another and multiplies each with 128 rows of x, over all inputs.
// The two CTAs of a cluster share what they read in common: up to 128 rows of x, where they have different
// tiles; above, the tile's weights, where they have different rows. Bits depend on none of this.
struct TallShape {
  int tile_pairs;    // one of kTallPairs
  int num_clusters;  // at most as many as run at once for the best speed
};

constexpr bool shares_weights(int64_t num_rows) { return num_rows > kTallRows; }

// The shape for so many rows of the weight and of x whose last CTA ends first.
TallShape tall_shape_for(int64_t num_weight_rows, int64_t num_rows, int num_sms);

// The share of the SMs' time that has tiles to multiply in that shape: what tiles that do not come out even
// cost, 0 to 1.
double tall_tiles_evenness(int64_t num_weight_rows, int64_t num_rows, int num_sms);

}  // namespace attend::kernels::cuda::sm90
