// Dense layers with TMA and wgmma on GPUs of compute capability 9.0.
#pragma once

#include "attend/kernels/gemm/linear.h"

namespace attend::kernels::cuda::sm90 {

// How the swap-AB split-K GEMM divides a layer.

inline constexpr int kBlockInputs = 64;    // of a K-block: 128 bytes of a row
inline constexpr int kPairRows = 16;       // eight rows of weights and their partners
inline constexpr int kWarpgroupRows = 64;  // of W, of a warpgroup (wgmma m64)
inline constexpr int kMaxWarpgroups = 2;
inline constexpr int kMaxClusterSize = 8;
inline constexpr int kMinColumns = 2;  // of 16 rows of x: that many are exchanged though x has fewer
// Of quantized weights: rows of x of a launch under a deferred norm; inputs whose products' sums are
// multiplied by a scale.
inline constexpr int kMaxDeferredQuantizedTokens = 64;
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

// For what the candidate kSwapAbSplitK of choose.h takes: out = x weight^T (+ bias) (+ out); `gated`:
// silu(gate) * up of its two halves. Of quantized weights it takes fp8 and int4 whose scales are of multiples
// of kScaledInputs inputs, or of all. A row's bits depend neither on the other rows
// nor on their number; with args.batch_invariant they are those of the batch-invariant GEMM. A norm of x must
// have been deferred, for bf16; args.x is not read then. The next norm is deferred where out is bf16 and
// aligned as the weight and what is left for it: returns whether.
bool swap_ab_gemm(const LinearArgs& args, bool gated, Stream& stream);
// The same, shared as the caller says.
bool swap_ab_gemm(const LinearArgs& args, bool gated, const SwapAbGemmShape& shape, Stream& stream);

// The same for what the candidate kScaledQuantized takes: int4 in groups of kScaledInputs, with scales of the
// type of x, whose products of codes and scales are rounded to that type; and fp8 whose scales are those of
// whole outputs, with which sums are multiplied. No norm is deferred.
void scaled_quantized_gemm(const LinearArgs& args, bool gated, Stream& stream);

}  // namespace attend::kernels::cuda::sm90
