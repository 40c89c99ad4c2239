// Layout of the scratch of moe_experts().
#pragma once

#include "attend/kernels/moe/experts.h"

namespace attend::kernels {

// Consecutive pieces of memory, each at a multiple of 64 bytes. Without memory, only counts bytes.
class ScratchPieces {
 public:
  explicit ScratchPieces(View<std::byte> memory = {}, Device device = {})
      : memory_(memory), device_(device) {}

  TensorView take(DType dtype, std::initializer_list<int64_t> shape);
  size_t used_bytes() const { return used_; }

 private:
  View<std::byte> memory_;
  Device device_;
  size_t used_ = 0;
};

// Arrays of moe_experts(). A pair is one of the num_tokens * top_k choices, with index token * top_k + its
// rank among the token's experts. Rows are pairs sorted by expert.
struct ExpertScratch {
  TensorView pair_row;   // i32 [num_pairs]
  TensorView row_token;  // i32 [num_pairs]
  TensorView offsets;    // i32 [2, num_experts + 1]: first row of each expert; its first row tile
  TensorView segments;   // i32 [num_pairs, 3]: segments on a CPU; the pair of each row on a GPU
  // [num_pairs, hidden_size], dtype of x: gathered inputs of the experts if a copy is needed (on a CPU; on a
  // GPU for act-order and for mxfp4 tiles), then their outputs.
  TensorView rows;
  TensorView inner;  // [num_pairs, 2 * intermediate_size], dtype of x; a GPU uses the first half for the
                     // activations

  ExpertScratch(const MoeShape& shape, int64_t num_tokens, DType dtype, ScratchPieces& pieces);
};

}  // namespace attend::kernels
