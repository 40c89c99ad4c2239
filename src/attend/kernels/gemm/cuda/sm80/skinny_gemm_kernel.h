// Skinny GEMM (skinny_gemm.cuh): parameters and launches.
#pragma once

#include "attend/kernels/common/cuda/params.h"

namespace attend::kernels::cuda::sm80 {

// Maximum shared memory per CTA on sm_90, and on sm_86, which has the least.
inline constexpr int kLargeSharedBytes = 227 << 10, kSmallSharedBytes = 99 << 10;
inline constexpr int kMaxRowsWithRoom = 32, kMaxRowsAnywhere = 16;
// Maximum rows for this much shared memory per CTA: kMaxRowsWithRoom or kMaxRowsAnywhere.
constexpr int max_skinny_rows(int shared_bytes) {
  return shared_bytes >= kLargeSharedBytes ? kMaxRowsWithRoom : kMaxRowsAnywhere;
}
int max_skinny_rows();  // on the current device

inline constexpr int kFeatures = 8;  // rows of W of one mma (n8), called a group

// out = x weight^T (+ bias) (+ out), or silu(gate) * up of its two halves, with at most max_skinny_rows()
// rows of x. x and weight have the function's dtype, their rows start at multiples of 16 bytes, and
// in_features and out_features are multiples of 8.
struct SkinnyGemmParams {
  const void* x;  // row r starts at element r * x_stride
  const void* weight;
  int64_t x_stride;
  DeviceVector bias;
  // [in_features], aligned to 16 bytes: applies RMSNorm with norm_eps to rows of x, which are bf16. Null: no
  // norm.
  const void* norm;
  Element norm_element;  // bf16, or f32 with a plain weight
  float norm_eps;
  void* out;  // row r starts at element r * out_stride
  int64_t out_stride;
  int32_t num_rows, in_features, out_features;  // if gated, weight and bias have 2 out_features
  bool gated;
  bool accumulate;  // not gated: adds to the contents of out
  Element out_element;
  // If not 0, out consists of heads of 2 * head_half features. An n-tile then has features of a head's first
  // half and the features of its second half that RoPE rotates with them. A multiple of 8 times a power of
  // two.
  int32_t head_half = 0;
};
void launch_skinny_gemm_bf16(const SkinnyGemmParams& params, void* stream);
void launch_skinny_gemm_f16(const SkinnyGemmParams& params, void* stream);

}  // namespace attend::kernels::cuda::sm80
