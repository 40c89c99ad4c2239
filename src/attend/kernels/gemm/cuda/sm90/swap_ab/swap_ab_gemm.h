// Linear layers with TMA and wgmma on GPUs of compute capability 9.0.
#pragma once

#include "attend/kernels/gemm/linear.h"

namespace attend::kernels::cuda::sm90 {

// Partition of a layer by the swap-AB split-K GEMM.

inline constexpr int kBlockInputs = 64;    // inputs of a K-block: 128 bytes of a row
inline constexpr int kPairRows = 16;       // eight rows of weights and their partners
inline constexpr int kWarpgroupRows = 64;  // rows of W per warpgroup (wgmma m64)
inline constexpr int kMaxWarpgroups = 2;
inline constexpr int kMaxClusterSize = 8;
inline constexpr int kMinColumns = 2;  // columns of 16 rows of x that are exchanged, even if x has fewer
// Quantized weights: maximum rows of x of a launch under a deferred norm; inputs with products that share a
// scale.
inline constexpr int kMaxDeferredQuantizedTokens = 64;
inline constexpr int kScaledInputs = 128;
// int4: inputs of a stage of W, which is two scale groups. Rows have a whole number of stages.
inline constexpr int kScaledStageInputs = 256;

// A cluster computes tiles of 16 to 128 rows of weights, one after another. Each of its CTAs multiplies an
// even range of the K-blocks (split-K). Their partial sums are added in the order of K, so bits depend only
// on `cluster_size`.
struct SwapAbGemmShape {
  int tile_pairs;  // rows of weights in units of 16: 1 to 8
  // 1, 2, 4 or 8. At most the number of K-blocks, and kMinColumns * tile_pairs: each CTA then adds partial
  // sums of all others for every tile, which keeps them in step.
  int cluster_size;
  int num_clusters;    // at most the number of concurrent clusters
  int num_tokens = 0;  // 32, 64 or 128, chosen from the rows of x
  // Scaled quantized GEMM: tiles of 128 rows that a CTA multiplies together, 1 or 2. If 0, sums of 128 inputs
  // are scaled instead.
  int scaled_tiles = 0;

  // Consumer warpgroups per CTA. Unused rows of the last one's 64 are multiplied too, and dropped.
  int num_warpgroups() const { return tile_pairs * kPairRows > kWarpgroupRows ? 2 : 1; }
};

// Computes problems of the candidate kSwapAbSplitK of choose.h: out = x weight^T (+ bias) (+ out), or if
// `gated` silu(gate) * up of its two halves. Supported quantized weights are fp8 and int4 with scales for
// multiples of kScaledInputs inputs, or for all. A row's bits depend neither on other rows nor on their
// number; with args.batch_invariant they are those of the batch-invariant GEMM. A norm of x must have been
// deferred, for bf16; args.x is not read then. Returns true if the next norm is deferred, which requires that
// out is bf16 and aligned, as are the norm weight and its outputs.
bool swap_ab_gemm(const LinearArgs& args, bool gated, Stream& stream);
// Overload with an explicit shape.
bool swap_ab_gemm(const LinearArgs& args, bool gated, const SwapAbGemmShape& shape, Stream& stream);

// Computes problems of the candidate kScaledQuantized: int4 in groups of kScaledInputs, with scales in the
// dtype of x, where products of values and scales are rounded to that dtype; and fp8 with one scale per
// output, which multiplies sums. The next norm is not deferred.
void scaled_quantized_gemm(const LinearArgs& args, bool gated, Stream& stream);

}  // namespace attend::kernels::cuda::sm90
