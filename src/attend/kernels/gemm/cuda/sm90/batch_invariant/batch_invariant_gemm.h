// Linear layers of more rows than the skinny GEMM supports, with TMA and wgmma on GPUs of compute capability
// 9.0. Sums are bit for bit those of the skinny GEMM (skinny_gemm_kernel.h).
#pragma once

#include <array>
#include <cstdint>

#include "attend/kernels/gemm/linear.h"

namespace attend::kernels::cuda::sm90 {

// Partition of a layer by the batch-invariant GEMM of sm_90a.

struct BatchInvariantGemmTile {
  int rows, features;  // rows of x, and of the weight
  bool operator==(const BatchInvariantGemmTile&) const = default;
};
// Tiles with instances: for prompts, and for decode steps with features that divide evenly among the SMs.
inline constexpr std::array<BatchInvariantGemmTile, 6> kBatchInvariantTiles = {
    {{192, 128}, {128, 112}, {128, 96}, {128, 64}, {128, 48}, {128, 32}}};

// A CTA computes output tiles one after another, each over all inputs. Bits do not depend on the shape.
struct BatchInvariantGemmShape {
  BatchInvariantGemmTile tile;  // one of kBatchInvariantTiles
  int num_ctas;                 // at most one per SM for the best speed
};

// Returns the shape with the earliest finish of the last CTA, as estimated from timings on an H200.
BatchInvariantGemmShape batch_invariant_shape_for(int64_t num_rows, int64_t num_weight_rows,
                                                  int64_t num_k_blocks, int num_sms);

// Computes problems of the candidate kInvariantSm90 of choose.h: out = x weight^T (+ bias) (+ out), or if
// `gated` silu(gate) * up of its two halves. A row's bits depend neither on other rows nor on their number.
// Norms are not supported.
void batch_invariant_gemm(const LinearArgs& args, bool gated, Stream& stream);
// Overload with an explicit shape. Throws Error(kInvalidArgument) for a tile without a kernel.
void batch_invariant_gemm(const LinearArgs& args, bool gated, const BatchInvariantGemmShape& shape,
                          Stream& stream);

}  // namespace attend::kernels::cuda::sm90
