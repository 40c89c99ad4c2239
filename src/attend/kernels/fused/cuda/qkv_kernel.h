// QKV projection of a layer, fused with the operations on q, k and v before attention.
#pragma once

#include "attend/kernels/gemm/cuda/sm80/skinny_quantized_kernel.h"
#include "attend/kernels/norm_rope/cuda/elementwise_kernels.h"

namespace attend::kernels::cuda {

inline constexpr int kMaxQkvRows = 16;
inline constexpr int kMaxQkvHalf = 128;  // rotated pairs of a head

// Same bits as launch_skinny_gemm_bf16(product) followed by launch_norm_rope(rope), except that k and v are
// written only to the cache, not to the product's out. product.out starts with q, k and v in this order, with
// heads of one size that are rotated completely (rope.half = product.head_half). Requires at most kMaxQkvRows
// rows, and the shared memory of Hopper.
struct QkvParams {
  sm80::SkinnyGemmParams product;
  NormRopeParams rope;
  // If 0, heads are not normalized. Otherwise heads of q and k are, and a cluster of this many CTAs computes
  // one head.
  int32_t ctas_per_head = 0;
};
void launch_qkv(const QkvParams& params, void* stream);
void launch_normalized_qkv(const QkvParams& params, void* stream);

// The same with launch_skinny_quantized_bf16: at most kMaxSkinnyQuantizedRows rows, without normalized heads.
struct QkvQuantizedParams {
  QkvParams qkv;
  QuantizedWeight weight;
};
void launch_qkv_quantized(const QkvQuantizedParams& params, void* stream);

// Returns QkvParams::ctas_per_head on the current device for `num_heads` heads of q, k and v together; 0 if
// heads of this number or size cannot be normalized in the GEMM.
int choose_ctas_per_head(int num_heads, int head_half, int num_rows);

}  // namespace attend::kernels::cuda
