// Mixtures of experts on a GPU: what crosses to the device, and the launches. Rows are pairs of a token and
// one of its experts, sorted by expert (scratch.h).
#pragma once

#include "attend/kernels/common/cuda/params.h"
#include "attend/kernels/gemm/cuda/common/quantized_weight.h"
#include "attend/kernels/moe/experts.h"

namespace attend::kernels::cuda {

struct RouteParams {
  const float* logits;  // [num_tokens, num_experts]
  int32_t* experts;     // [num_tokens, top_k]
  float* weights;       // as experts
  int32_t num_tokens, num_experts, top_k;
  int32_t num_groups, top_groups;
  const float* correction;  // [num_experts]; null: none
  float scale;
  bool over_all_experts;  // weights are scores among all experts, not among the chosen ones
  bool sigmoid;           // scores are sigmoids, not a softmax
  uint32_t spread;        // as of RouterRule
};
// Without logits where those are not in memory.
RouteParams route_params(const RouteArgs& args, int64_t num_experts);
// A warp a token; up to 512 experts, 32 of a token and 32 groups.
void launch_route(const RouteParams& params, void* stream);

struct SortPairsParams {
  const int32_t* experts;  // [num_pairs]
  int32_t* pair_row;
  int32_t* row_token;
  int32_t* row_pair;
  int32_t* first_row;   // [num_experts + 1]
  int32_t* first_tile;  // [num_experts + 1]: an expert's rows are in tiles of their own
  int32_t num_pairs, num_experts, top_k, tile_rows;
};
// Rows of one expert stand in the order of their pairs, so the same choices give the same rows.
void launch_sort_pairs(const SortPairsParams& params, void* stream);

// What becomes of an expert's sums. Rows of W and of the bias are those of its outputs; gated: gate's, then
// up's, or `alternating`, the two of each output side by side.
struct ExpertEpilogue {
  DeviceVector bias;           // of all rows of W of all experts
  const float* input_weights;  // of each pair, what its sums are multiplied with before the bias; null: 1
  const int32_t* row_pair;     // null: rows are pairs
  // (up + 1) gate / (1 + e^-(alpha gate)), gate at most limit and up within limit of 0; else silu(gate) * up.
  bool clamped;
  float limit, alpha;
};

// Each expert's product: out = x W^T + b, or of its two halves act(gate, up).
struct GroupedGemmParams {
  const void* x;
  int64_t x_stride;          // of elements
  const int32_t* row_token;  // the row of x of each row; null: the same
  QuantizedWeight weight;    // [num_experts, out_features, in_features]; gated: twice as many outputs
  void* out;                 // [rows, out_features]
  const int32_t* first_row;
  const int32_t* first_tile;
  int32_t num_experts, in_features, out_features;
  bool gated, alternating;
  int32_t num_tiles;  // at most: those beyond the last one have nothing to do
  ExpertEpilogue epilogue;
};
inline constexpr int kSmallTileRows = 16, kLargeTileRows = 64;

// Any dtype, format, alignment and width: every output is added up in float32 by one thread, in the order of
// K. Tiles have kNaiveTileRows.
inline constexpr int kNaiveTileRows = 32;
void launch_naive_grouped_gemm(const GroupedGemmParams& params, Element element, void* stream);

// Each row's inputs in the order of its expert's columns: to[row][i] = from[its row][order[expert][i]].
struct OrderInputsParams {
  const void* from;          // [.., in_features]
  const int32_t* row_token;  // the row of `from` of each row; null: the same
  const int32_t* order;      // [num_experts, in_features]
  const int32_t* first_row;  // [num_experts + 1]
  void* to;                  // [num_rows, in_features]
  int32_t num_rows, num_experts, in_features;
  Element element;
};
void launch_order_inputs(const OrderInputsParams& params, void* stream);

// out (+)= sum over a token's pairs, in their order, of weight * row.
struct CombineParams {
  const void* rows;         // [rows, hidden_size]
  const int32_t* pair_row;  // null: rows are pairs
  const float* weights;     // [num_tokens, top_k]; null: all 1
  void* out;                // [num_tokens, hidden_size]
  int32_t num_tokens, top_k, hidden_size;
  Element element;  // of rows and out
  bool accumulate;
  bool aligned;  // rows and out begin at multiples of 16 bytes, and so does every group of eight of them
};
void launch_combine(const CombineParams& params, void* stream);

}  // namespace attend::kernels::cuda
