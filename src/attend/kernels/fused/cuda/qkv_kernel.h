// The product that a layer's q, k and v come from, with what q, k and v go through before attention.
#pragma once

#include "attend/kernels/gemm/cuda/sm80/skinny_quantized_kernel.h"
#include "attend/kernels/norm_rope/cuda/elementwise_kernels.h"

namespace attend::kernels::cuda {

inline constexpr int kMaxQkvRows = 16;

// The bits of launch_skinny_gemm_bf16(product) and then launch_norm_rope(rope), but for what k and v are in
// the product's out: they go to the cache alone. product.out begins with q, k and v, heads of one size of
// which all is rotated (rope.half = product.head_half), in this order; there are at most kMaxQkvRows rows,
// and the shared memory of Hopper.
struct QkvParams {
  sm80::SkinnyGemmParams product;
  NormRopeParams rope;
  // 0: no heads are normalized. Else those of q and k are, and a cluster of so many CTAs takes one head.
  int32_t ctas_per_head = 0;
};
void launch_qkv(const QkvParams& params, void* stream);
void launch_normalized_qkv(const QkvParams& params, void* stream);

// The same by launch_skinny_quantized_bf16: at most kMaxSkinnyQuantizedRows rows, and no heads are
// normalized.
struct QkvQuantizedParams {
  QkvParams qkv;
  QuantizedWeight weight;
};
void launch_qkv_quantized(const QkvQuantizedParams& params, void* stream);

// QkvParams::ctas_per_head on the current device, for `num_heads` heads of q, k and v together; 0: so many
// heads, or heads of this size, are not normalized in the GEMM.
int choose_ctas_per_head(int num_heads, int head_half, int num_rows);

}  // namespace attend::kernels::cuda
