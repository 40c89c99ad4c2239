// Gated dense layers of 65 to 256 rows with TMA and wgmma, on GPUs of compute capability 9.0.
#pragma once

#include <array>
#include <cstdint>

#include "attend/kernels/gemm/linear.h"

namespace attend::kernels::cuda::sm90 {

// How the gated-MLP GEMM divides a layer.

inline constexpr int kGatedMlpRows = 128;       // of x, of a tile
inline constexpr int kGatedMlpClusterSize = 2;  // CTAs of a cluster
inline constexpr int kMaxGatedMlpRows = kGatedMlpRows * kGatedMlpClusterSize;
// Tile heights that there are instances for: pairs of eight gate rows and their up rows.
inline constexpr std::array kGatedMlpTilePairs = {6, 8, 10, 12, 14};

// A CTA takes tiles of the weight one after another and multiplies each with 128 rows of x, over all inputs.
// TMA multicasts what the two CTAs of a cluster both read: up to 128 rows of x, where they have different
// tiles; above, the tile's weights, where they have different rows. Bits depend on none of this.
struct GatedMlpGemmShape {
  int tile_pairs;    // one of kGatedMlpTilePairs
  int num_clusters;  // at most as many as run at once for the best speed
};

constexpr bool multicasts_weights(int64_t num_rows) { return num_rows > kGatedMlpRows; }

// The shape for so many rows of the weight and of x whose last CTA ends first.
GatedMlpGemmShape gated_mlp_shape_for(int64_t num_weight_rows, int64_t num_rows, int num_sms);

// The share of the SMs' time that has tiles to multiply in that shape: what tiles that do not come out even
// cost, 0 to 1.
double gated_mlp_wave_efficiency(int64_t num_weight_rows, int64_t num_rows, int num_sms);

// For what the candidate kGatedMlp of choose.h takes: out = silu(gate) * up, [gate | up] = x weight^T (+
// bias). A row's bits depend neither on the other rows nor on their number. There is no norm, and nothing is
// added to `out`.
void gated_mlp_gemm(const LinearArgs& args, Stream& stream);
// The same, shared as the caller says. Throws Error(kInvalidArgument) for a height that there is no kernel
// for.
void gated_mlp_gemm(const LinearArgs& args, const GatedMlpGemmShape& shape, Stream& stream);

}  // namespace attend::kernels::cuda::sm90
