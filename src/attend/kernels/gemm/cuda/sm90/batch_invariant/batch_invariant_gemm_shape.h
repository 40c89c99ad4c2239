// How the batch-invariant GEMM of sm_90a divides a layer.
#pragma once

#include <array>
#include <cstdint>

namespace attend::kernels::cuda::sm90 {

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

}  // namespace attend::kernels::cuda::sm90
