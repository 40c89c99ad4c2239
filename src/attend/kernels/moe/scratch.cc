#include "attend/kernels/moe/scratch.h"

#include "attend/base/error.h"
#include "attend/base/math.h"

namespace attend::kernels {

TensorView ScratchPieces::take(DType dtype, std::initializer_list<int64_t> shape) {
  constexpr size_t kAlignment = 64;
  std::byte* const data = memory_.empty() ? nullptr : memory_.data() + used_;
  const TensorView piece = TensorView::contiguous(data, dtype, shape, device_);
  used_ += round_up(piece.num_bytes(), kAlignment);
  ensure(memory_.empty() || used_ <= memory_.size(), "scratch of ", memory_.size(), " bytes: ", used_,
         " are needed");
  return piece;
}

ExpertScratch::ExpertScratch(const MoeShape& shape, int64_t num_tokens, DType dtype, ScratchPieces& pieces) {
  const int64_t num_pairs = num_tokens * shape.top_k;
  pair_row = pieces.take(DType::kI32, {num_pairs});
  row_token = pieces.take(DType::kI32, {num_pairs});
  offsets = pieces.take(DType::kI32, {2, shape.num_experts + 1});
  segments = pieces.take(DType::kI32, {num_pairs, 3});
  rows = pieces.take(dtype, {num_pairs, shape.hidden_size});
  inner = pieces.take(dtype, {num_pairs, 2 * shape.intermediate_size});
}

size_t experts_scratch_bytes(const MoeShape& shape, int64_t num_tokens, DType dtype) {
  ScratchPieces pieces;
  const ExpertScratch scratch(shape, num_tokens, dtype, pieces);
  return pieces.used_bytes();
}

}  // namespace attend::kernels
