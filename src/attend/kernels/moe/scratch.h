// What moe_experts() carves out of its scratch.
#pragma once

#include "attend/kernels/moe/experts.h"

namespace attend::kernels {

// Pieces of memory, one after another, each at a multiple of 64 bytes. Without memory it counts bytes.
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

// A pair is one of the num_tokens * top_k choices: token * top_k + its rank among the token's. Rows are pairs
// sorted by expert.
struct ExpertScratch {
  TensorView pair_row;   // i32 [num_pairs]
  TensorView row_token;  // i32 [num_pairs]
  TensorView offsets;    // i32 [2, num_experts + 1]: the first row of each expert; its first tile of rows
  TensorView segments;   // i32 [num_pairs, 3]: of a CPU; a GPU has the pairs of rows there
  // As x [num_pairs, hidden_size]: what experts read, where that is a copy (on a CPU; on a GPU of act-order
  // and of tiles of mxfp4), then what they gave.
  TensorView rows;
  TensorView inner;  // as x [num_pairs, 2 * intermediate_size]: of a GPU the first half

  ExpertScratch(const MoeShape& shape, int64_t num_tokens, DType dtype, ScratchPieces& pieces);
};

}  // namespace attend::kernels
