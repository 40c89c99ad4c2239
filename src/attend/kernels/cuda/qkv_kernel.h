// The product that a layer's q, k and v come from, with what q, k and v go through before attention.
#pragma once

#include "attend/kernels/cuda/few_rows_kernel.h"

namespace attend::kernels::cuda {

inline constexpr int kMaxQkvRows = 16;

// The bits of launch_few_rows_bf16(product) and then launch_norm_rope(rope), but for what k and v are in the
// product's out: they go to the cache alone. product.out begins with q, k and v, heads of one size of which
// all turns (rope.half = product.head_half), in this order; there are no norms of heads, at most kMaxQkvRows
// rows, and the shared memory of Hopper.
struct QkvParams {
  FewRowsParams product;
  NormRopeParams rope;
};
void launch_qkv(const QkvParams& params, void* stream);

}  // namespace attend::kernels::cuda
