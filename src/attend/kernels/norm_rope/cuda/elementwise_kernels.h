// The small operations between attention and the dense layers, on the device.
#pragma once

#include "attend/kernels/common/cuda/params.h"
#include "attend/kernels/kv_store/cuda/store_kernel.h"

namespace attend::kernels::cuda {

// out[i] = from[rows[i]], converted; without rows from[i]; with `add`, out[i] += that.
struct CopyRowsParams {
  DeviceRows from, out;
  const int32_t* rows;  // [num_rows]; null: 0, 1, 2, ...
  int32_t num_rows, num_columns;
  bool aligned;  // every row begins at a multiple of 16 bytes and holds whole groups
  bool add;
};
void launch_copy_rows(const CopyRowsParams& params, void* stream);

// out[i] = scale * from[rows[i]].
struct ScaledRowsParams : CopyRowsParams {
  float scale;
};
void launch_scaled_rows(const ScaledRowsParams& params, void* stream);

// residual += x, if there is one; out = norm of that sum, or of x.
struct NormParams {
  DeviceRows x, residual, out;
  DeviceVector weight;  // [dim]
  float eps, weight_offset;
  int32_t num_rows, dim;
  bool aligned;
};
void launch_rms_norm(const NormParams& params, void* stream);

// residual += norm of x.
struct NormAddParams {
  DeviceRows x, residual;
  DeviceVector weight;  // [dim]
  float eps;
  int32_t num_rows, dim;
  bool aligned, weight_aligned;
};
void launch_rms_norm_add(const NormAddParams& params, void* stream);

// out = activation(gate) * up.
struct GateParams {
  DeviceRows gate, up, out;
  int32_t num_rows, num_columns;
  bool aligned;
};
void launch_silu_mul(const GateParams& params, void* stream);
void launch_gelu_mul(const GateParams& params, void* stream);
void launch_gelu_tanh_mul(const GateParams& params, void* stream);

// out = LayerNorm of x, or of x + addend. out may be either.
struct LayerNormParams {
  DeviceRows x, addend, out;
  DeviceVector weight, bias;  // [dim]
  float eps;
  int32_t num_rows, dim;
  bool aligned, weight_aligned;
};
void launch_layer_norm(const LayerNormParams& params, void* stream);

// x = activation(x).
struct ActivationParams {
  DeviceRows x;
  int32_t num_rows, num_columns;
  bool aligned;
};
void launch_gelu(const ActivationParams& params, void* stream);
void launch_gelu_tanh(const ActivationParams& params, void* stream);

// x = cap tanh(x / cap).
struct SoftCapParams {
  DeviceRows x;
  float cap;
  int32_t num_rows, num_columns;
  bool aligned;
};
void launch_soft_cap(const SoftCapParams& params, void* stream);

// x = (1 + slope log(1 + floor((position + 1) / floor_scale))) x, of all heads of each token.
struct ScaleByPositionParams {
  void* x;  // [num_tokens, num_heads, head_dim]
  int64_t token_stride, head_stride;
  const int32_t* positions;  // [num_tokens]
  float slope, floor_scale;
  int32_t first;
  int32_t num_tokens, num_heads, head_dim;
  Element element;
};
void launch_scale_by_position(const ScaleByPositionParams& params, void* stream);

// Heads [num_tokens, num_heads, head_dim], normalized where there is a weight.
struct RopeHeads {
  void* data;
  int64_t token_stride, head_stride;
  int32_t num_heads;
  Element element;
  DeviceVector norm;  // [head_dim]
};
inline constexpr int kMaxRopeHalf = 128;
// Positions and angles are read while the kernel before may still run: no kernel may just have written them.
struct NormRopeParams {
  RopeHeads heads[2];  // q and k; the second may have no heads
  // Where k, once rotated, and v go; without slots k stays where it was and there is no v.
  StoreParams store;
  const int32_t* positions;
  const float *cos, *sin;  // row p of either begins at p * its stride
  int64_t cos_stride, sin_stride;
  float eps;
  int32_t num_tokens, head_dim, half;  // half: pairs that are rotated, at most kMaxRopeHalf; 0: no angles
  bool norm_after_rope;  // heads of q and k are normalized once more, without weights, behind the rotation
};
// `interleaved`: pairs are (2 i, 2 i + 1), otherwise (i, i + half).
void launch_norm_rope(const NormRopeParams& params, bool interleaved, void* stream);

// norm_rope() where heads can be moved eight elements at once.

// Whether all of every head is rotated, in 16-bit elements of one type, norms included, and rows and halves
// of heads, also in the cache, are whole groups of eight that begin where one access can read them.
bool takes_groups(const NormRopeParams& params);

// The bits of launch_norm_rope(), which calls this for what takes_groups().
void launch_norm_rope_groups(const NormRopeParams& params, void* stream);

}  // namespace attend::kernels::cuda
