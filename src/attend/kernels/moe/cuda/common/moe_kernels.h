// Mixture of experts on a GPU: parameters and launches. Rows are pairs of a token and one of its experts,
// sorted by expert (scratch.h).
#pragma once

#include "attend/kernels/common/cuda/params.h"
#include "attend/kernels/gemm/cuda/common/quantized_weight.h"
#include "attend/kernels/moe/experts.h"

namespace attend::kernels::cuda {

struct RouteParams {
  const float* logits;  // [num_tokens, num_experts]
  int32_t* experts;     // [num_tokens, top_k]
  float* weights;       // [num_tokens, top_k]
  int32_t num_tokens, num_experts, top_k;
  int32_t num_groups, top_groups;
  const float* correction;     // [num_experts]; null: none
  const float* expert_scales;  // [num_experts]; null: none
  float scale;
  float sum_epsilon;       // see RouterRule
  bool over_all_experts;   // weights are scores among all experts, not only among the chosen ones
  bool sigmoid;            // scores are sigmoids, not a softmax
  bool over_near_experts;  // RouterWeights::kNearExperts
  float near;
  uint32_t spread;  // see RouterRule
};
// Leaves `logits` null if they are not in memory.
RouteParams route_params(const RouteArgs& args, int64_t num_experts);
// One warp per token; supports up to 512 experts, 32 experts per token and 32 groups.
void launch_route(const RouteParams& params, void* stream);

// out = x weight of each token; inner *= sigmoid(out). x, weight and inner have a 16-bit `element`, and their
// rows consist of whole groups of eight elements at multiples of 16 bytes.
struct SharedGateParams {
  const void* x;
  int64_t x_stride;  // in elements
  const void* weight;
  float* out;   // [num_tokens]
  void* inner;  // null: only out
  int64_t inner_stride;
  int32_t num_tokens, in_features, inner_features;
  Element element;
};
void launch_shared_gate(const SharedGateParams& params, void* stream);

struct SortPairsParams {
  const int32_t* experts;  // [num_pairs]
  int32_t* pair_row;
  int32_t* row_token;
  int32_t* row_pair;
  int32_t* first_row;   // [num_experts + 1]
  int32_t* first_tile;  // [num_experts + 1]: tiles contain rows of one expert only
  int32_t* counts;      // 2 * num_pairs values: scratch
  int32_t num_pairs, num_experts, top_k, tile_rows;
};
// Rows of one expert are in the order of their pairs, so the same choices result in the same rows.
void launch_sort_pairs(const SortPairsParams& params, void* stream);

// Epilogue of an expert's sums. Rows of W and of the bias are in the order of its outputs. If gated, all gate
// rows come first, then all up rows; with `alternating`, gate and up rows of each output alternate.
struct ExpertEpilogue {
  DeviceVector bias;           // one value per row of W, for all experts
  const float* input_weights;  // per pair: factor of its sums before the bias is added; null: 1
  const int32_t* row_pair;     // null: rows are pairs
  // If true, (up + 1) gate / (1 + e^-(alpha gate)), with gate at most limit and up in [-limit, limit];
  // otherwise gelu_tanh(gate) * up or silu(gate) * up.
  bool clamped, gelu;
  float limit, alpha;
};

// Product of each expert: out = x W^T + b, or act(gate, up) of its two halves.
struct GroupedGemmParams {
  const void* x;
  int64_t x_stride;          // in elements
  const int32_t* row_token;  // row of x for each row; null: identity
  QuantizedWeight weight;    // [num_experts, out_features, in_features]; if gated, 2 out_features
  void* out;                 // [rows, out_features]
  const int32_t* first_row;
  const int32_t* first_tile;
  int32_t num_experts, in_features, out_features;
  bool gated, alternating;
  int32_t num_tiles;  // upper bound; extra tiles exit immediately
  ExpertEpilogue epilogue;
};
inline constexpr int kSmallTileRows = 16, kLargeTileRows = 64;

// Supports any dtype, format, alignment and width. One thread sums each output in float32, in the order of K.
// Tiles have kNaiveTileRows rows.
inline constexpr int kNaiveTileRows = 32;
void launch_naive_grouped_gemm(const GroupedGemmParams& params, Element element, void* stream);

// Reorders each row's inputs to its expert's column order: to[row][i] = from[its row][order[expert][i]].
struct OrderInputsParams {
  const void* from;          // [.., in_features]
  const int32_t* row_token;  // row of `from` for each row; null: identity
  const int32_t* order;      // [num_experts, in_features]
  const int32_t* first_row;  // [num_experts + 1]
  void* to;                  // [num_rows, in_features]
  int32_t num_rows, num_experts, in_features;
  Element element;
};
void launch_order_inputs(const OrderInputsParams& params, void* stream);

// out = sum over a token's pairs, in their order, of weight * row; added to out if `accumulate`.
struct CombineParams {
  const void* rows;         // [rows, hidden_size]
  const int32_t* pair_row;  // null: rows are pairs
  const float* weights;     // [num_tokens, top_k]; null: all 1
  void* out;                // [num_tokens, hidden_size]
  int32_t num_tokens, top_k, hidden_size;
  Element element;  // element type of rows and out
  bool accumulate;
  bool aligned;  // rows and out start at multiples of 16 bytes, as does every group of eight elements
};
void launch_combine(const CombineParams& params, void* stream);

}  // namespace attend::kernels::cuda
