// Adapters in the memory of a GPU: entries of the table of layers, and parameters of the kernels.
#pragma once

#include <cstdint>

#include "attend/kernels/common/cuda/params.h"
#include "attend/kernels/gemm/low_rank_arrays.h"

namespace attend::kernels::cuda {

inline constexpr int kRankMultiple = 16, kInsMultiple = 32, kOutsMultiple = 32;
inline constexpr int kLowRankThreads = 128;
// Inputs of a K-block, whose part of A x is stored by itself: the same for all tiles, so that a token's bits
// do not depend on them.
inline constexpr int kLowRankBlockK = 512;
inline constexpr int kGateOuts = 128;                         // features of the activated tensor of a CTA
inline constexpr int kSmallSegment = 16, kLargeSegment = 64;  // tokens
// Numbers before the parts of A x in a row of LowRankHeader::products. The first one is the factor of a
// deferred norm.
inline constexpr int kRowHeader = 4;

struct LowRankTermEntry {
  const void* b;  // [num_outputs, rank]
  float scale;
  int32_t first_out, num_outputs;
  int32_t rank, first_rank;  // rows of the layer's A
  int32_t unused;
};
// Terms are part of the entry, so that a kernel finds all pointers of a layer with one load.
inline constexpr int kMaxTerms = 8;
struct LowRankLayer {
  const void* a;  // [rank, in_stride]
  int32_t num_terms, rank, in_stride, unused;
};
struct LowRankLayerEntry {
  LowRankLayer layer;
  LowRankTermEntry terms[kMaxTerms];  // zeros after the last one
};

struct LowRankShrinkParams {
  LowRankArrays arrays;
  int32_t adapter_index;
  const void* x;  // row t starts at element t * x_stride
  int64_t x_stride;
  int32_t in_features;
  bool aligned;  // rows of x start at multiples of 16 bytes
  // Deferred norm of x; null: none. Row t starts at element t * squares_stride.
  const float* partial_squares;
  int64_t squares_stride;
  int32_t num_squares;
  float eps;
};
struct LowRankExpandParams {
  LowRankArrays arrays;
  int32_t adapter_index, in_features;
  int32_t cta_outs;  // outputs of a CTA, a multiple of kOutsMultiple
  void* out;         // row t starts at element t * out_stride
  int64_t out_stride;
  Element out_element;
  bool aligned;  // rows of out start at multiples of 16 bytes
  bool normed;   // the shrink had a deferred norm
};

// expand.out is [gate | up]: activated = silu(gate) * up, [intermediate] per token.
struct LowRankGateParams {
  LowRankExpandParams expand;
  void* activated;  // row t starts at element t * activated_stride
  int64_t activated_stride;
  int32_t intermediate;
};

namespace sm80 {
void launch_low_rank_shrink_bf16(const LowRankShrinkParams& params, int num_ctas, void* stream);
void launch_low_rank_shrink_f16(const LowRankShrinkParams& params, int num_ctas, void* stream);
void launch_low_rank_expand_bf16(const LowRankExpandParams& params, int grid_x, int grid_y, void* stream);
void launch_low_rank_expand_f16(const LowRankExpandParams& params, int grid_x, int grid_y, void* stream);
void launch_low_rank_gate_bf16(const LowRankGateParams& params, int grid_x, int grid_y, void* stream);
void launch_low_rank_gate_f16(const LowRankGateParams& params, int grid_x, int grid_y, void* stream);
}  // namespace sm80
// float32, without tensor cores.
void launch_low_rank_shrink_f32(const LowRankShrinkParams& params, int num_ctas, void* stream);
void launch_low_rank_expand_f32(const LowRankExpandParams& params, int grid_x, int grid_y, void* stream);

}  // namespace attend::kernels::cuda
