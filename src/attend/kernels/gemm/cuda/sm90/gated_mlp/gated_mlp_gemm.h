// Gated linear layers of 65 to 256 rows with TMA and wgmma on GPUs of compute capability 9.0.
#pragma once

#include <array>
#include <cstdint>

#include "attend/kernels/gemm/linear.h"

namespace attend::kernels::cuda::sm90 {

// Partition of a layer by the gated-MLP GEMM.

inline constexpr int kGatedMlpRows = 128;       // rows of x per tile
inline constexpr int kGatedMlpClusterSize = 2;  // CTAs per cluster
inline constexpr int kMaxGatedMlpRows = kGatedMlpRows * kGatedMlpClusterSize;
// Tile heights with instances: pairs of eight gate rows and their up rows.
inline constexpr std::array kGatedMlpTilePairs = {6, 8, 10, 12, 14};

// A CTA computes tiles of the weight one after another and multiplies each by 128 rows of x over all inputs.
// TMA multicasts data that both CTAs of a cluster read. Up to 128 rows this is x, since the CTAs have
// different tiles; above, it is the weight tile, since they have different rows. Bits do not depend on the
// shape.
struct GatedMlpGemmShape {
  int tile_pairs;    // one of kGatedMlpTilePairs
  int num_clusters;  // at most the number of concurrent clusters for the best speed
};

constexpr bool multicasts_weights(int64_t num_rows) { return num_rows > kGatedMlpRows; }

// Returns the shape with the earliest finish of the last CTA for these numbers of rows of the weight and of
// x.
GatedMlpGemmShape gated_mlp_shape_for(int64_t num_weight_rows, int64_t num_rows, int num_sms);

// Returns the fraction of the SMs' time, 0 to 1, that is spent on tiles in that shape; the rest is lost in
// the last wave.
double gated_mlp_wave_efficiency(int64_t num_weight_rows, int64_t num_rows, int num_sms);

// Computes problems of the candidate kGatedMlp of choose.h: out = silu(gate) * up, [gate | up] = x weight^T
// (+ bias). A row's bits depend neither on other rows nor on their number. Norms and accumulation into `out`
// are not supported.
void gated_mlp_gemm(const LinearArgs& args, Stream& stream);
// Overload with an explicit shape. Throws Error(kInvalidArgument) for a height without a kernel.
void gated_mlp_gemm(const LinearArgs& args, const GatedMlpGemmShape& shape, Stream& stream);

}  // namespace attend::kernels::cuda::sm90
