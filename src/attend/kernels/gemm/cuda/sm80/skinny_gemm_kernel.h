// The skinny GEMM (skinny_gemm.cuh): what crosses to the device, and the launches.
#pragma once

#include "attend/kernels/common/cuda/params.h"

namespace attend::kernels::cuda::sm80 {

// Shared memory that a CTA of sm_90 can have, and one of sm_86, the least of all.
inline constexpr int kLargeSharedBytes = 227 << 10, kSmallSharedBytes = 99 << 10;
inline constexpr int kMaxRowsWithRoom = 32, kMaxRowsAnywhere = 16;
// Rows that the kernel takes where a CTA has so much shared memory: one of these.
constexpr int max_skinny_rows(int shared_bytes) {
  return shared_bytes >= kLargeSharedBytes ? kMaxRowsWithRoom : kMaxRowsAnywhere;
}
int max_skinny_rows();  // on the current device

inline constexpr int kFeatures = 8;  // rows of W of one mma (n8): a group

// out = x weight^T (+ bias) (+ out), or silu(gate) * up of its two halves, with x of at most
// max_skinny_rows() rows; x and weight are of the function's type, their rows begin at multiples of 16 bytes,
// and in_features and out_features are multiples of 8.
struct SkinnyGemmParams {
  const void* x;  // row r begins at element r * x_stride
  const void* weight;
  int64_t x_stride;
  DeviceVector bias;
  // [in_features], bf16 as x is then, aligned to 16 bytes: rows of x are first divided by the root of their
  // mean square plus norm_eps, and multiplied with it; null: not
  const void* norm;
  float norm_eps;
  void* out;  // row r begins at element r * out_stride
  int64_t out_stride;
  int32_t num_rows, in_features, out_features;  // gated: weight and bias have twice as many outputs
  bool gated;
  bool accumulate;  // not gated: what out holds is added
  Element out_element;
  // Not 0: out is heads of twice as many features, and an n-tile is features of a head's first half together
  // with those of its second half that they are rotated with. A multiple of 8 times a power of two.
  int32_t head_half = 0;
};
void launch_skinny_gemm_bf16(const SkinnyGemmParams& params, void* stream);
void launch_skinny_gemm_f16(const SkinnyGemmParams& params, void* stream);

}  // namespace attend::kernels::cuda::sm80
