// Dense layers of more rows than the skinny GEMM takes, with TMA and wgmma on GPUs of compute capability 9.0,
// bit for bit as the skinny GEMM sums them (skinny_gemm_kernel.h).
#pragma once

#include <array>
#include <cstdint>

#include "attend/kernels/gemm/linear.h"

namespace attend::kernels::cuda::sm90 {

// How the batch-invariant GEMM of sm_90a divides a layer.

struct BatchInvariantGemmTile {
  int rows, features;  // of x, and of the weight
  bool operator==(const BatchInvariantGemmTile&) const = default;
};
// That there are instances for: for prompts, and for steps, whose features are to come out even on the SMs.
inline constexpr std::array<BatchInvariantGemmTile, 6> kBatchInvariantTiles = {
    {{192, 128}, {128, 112}, {128, 96}, {128, 64}, {128, 48}, {128, 32}}};

// A CTA takes tiles of the output one after another, each over all inputs. Bits depend on none of this.
struct BatchInvariantGemmShape {
  BatchInvariantGemmTile tile;  // one of kBatchInvariantTiles
  int num_ctas;                 // at most one for each SM for the best speed
};

// The shape whose last CTA ends first, as estimated from timings on an H200.
BatchInvariantGemmShape batch_invariant_shape_for(int64_t num_rows, int64_t num_weight_rows,
                                                  int64_t num_k_blocks, int num_sms);

// For what the candidate kInvariantSm90 of choose.h takes: out = x weight^T (+ bias) (+ out), or `gated`
// silu(gate) * up of its two halves. A row's bits depend neither on the other rows nor on their number. There
// is no norm.
void batch_invariant_gemm(const LinearArgs& args, bool gated, Stream& stream);
// The same, shared as the caller says. Throws Error(kInvalidArgument) for a tile that there is no kernel for.
void batch_invariant_gemm(const LinearArgs& args, bool gated, const BatchInvariantGemmShape& shape,
                          Stream& stream);

}  // namespace attend::kernels::cuda::sm90
