// The product that a layer's q, k and v come from, with what q, k and v go through before attention.
#pragma once

#include "attend/kernels/gemm/cuda/sm80/skinny_codes_kernel.h"
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
  // 0: no heads are normalised. Else those of q and k are, and a cluster of so many CTAs takes one head.
  int32_t ctas_of_head = 0;
};
void launch_qkv(const QkvParams& params, void* stream);
void launch_normalized_qkv(const QkvParams& params, void* stream);

// The same by launch_skinny_codes_bf16: at most kMaxSkinnyCodeRows rows, and no heads are normalised.
struct QkvCodesParams {
  QkvParams qkv;
  QuantisedWeight weight;
};
void launch_qkv_codes(const QkvCodesParams& params, void* stream);

// QkvParams::ctas_of_head on the current device, for `num_heads` heads of q, k and v together; 0: so many
// heads, or heads of this size, are not normalised in the GEMM.
int ctas_of_normalized_head(int num_heads, int head_half, int num_rows);

}  // namespace attend::kernels::cuda
