// Kernels of small operations between attention and linear layers.
#pragma once

#include "attend/kernels/common/cuda/params.h"
#include "attend/kernels/kv_store/cuda/store_kernel.h"

namespace attend::kernels::cuda {

// out[i] = from[rows[i]], converted; without rows from[i]. With `add`, out[i] += from[rows[i]].
struct CopyRowsParams {
  DeviceRows from, out;
  const int32_t* rows;  // [num_rows]; null: 0, 1, 2, ...
  int32_t num_rows, num_columns;
  bool aligned;  // every row starts at a multiple of 16 bytes and has whole groups
  bool add;
};
void launch_copy_rows(const CopyRowsParams& params, void* stream);

// out[i] = scale * from[rows[i]].
struct ScaledRowsParams : CopyRowsParams {
  float scale;
};
void launch_scaled_rows(const ScaledRowsParams& params, void* stream);

// residual += x if there is a residual; out = RMSNorm of that sum, or of x.
struct NormParams {
  DeviceRows x, residual, out;
  DeviceVector weight;  // [dim]
  float eps, weight_offset;
  int32_t num_rows, dim;
  bool aligned;
};
void launch_rms_norm(const NormParams& params, void* stream);

// residual += RMSNorm of x.
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
  int32_t rows_per_cta = 1;
};
void launch_silu_mul(const GateParams& params, void* stream);
void launch_gelu_mul(const GateParams& params, void* stream);
void launch_gelu_tanh_mul(const GateParams& params, void* stream);
// out = sigmoid(gate) * up, out = softplus(gate) * up, and out = gate * up. out may be up.
void launch_sigmoid_mul(const GateParams& params, void* stream);
void launch_softplus_mul(const GateParams& params, void* stream);
void launch_multiply(const GateParams& params, void* stream);

// out = LayerNorm of x, or of x + addend. out may be x or addend.
struct LayerNormParams {
  DeviceRows x, addend, out;
  DeviceVector weight, bias;  // [num_heads * dim], [dim]; null: ones, zeros
  float eps;
  int32_t num_rows, dim;
  int32_t num_heads;  // row r has the weights of head r % num_heads
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
void launch_relu(const ActivationParams& params, void* stream);
void launch_relu2(const ActivationParams& params, void* stream);
void launch_silu(const ActivationParams& params, void* stream);
struct XieluParams : ActivationParams {
  const float *alpha_p, *alpha_n;  // one value each
};
void launch_xielu(const XieluParams& params, void* stream);

// x = factor x, or sigmoid(gates[row]) factor x if there are gates, or *device_factor factor x.
struct ScaleParams {
  DeviceRows x;
  DeviceRows gates;  // [num_rows, 1]
  bool softplus;     // softplus instead of sigmoid of the gates
  float factor;
  const float* device_factor;  // null: none
  int32_t num_rows, num_columns;
  bool aligned;
};
void launch_scale(const ScaleParams& params, void* stream);

// x = 0 in rows with position 0.
struct ClearFirstRowsParams {
  DeviceRows x;
  const int32_t* positions;  // [num_rows]
  int32_t num_rows, num_columns;
};
void launch_clear_first_rows(const ClearFirstRowsParams& params, void* stream);

// x = limit tanh(x / limit), and x = min(max(x, -limit), limit).
struct LimitParams {
  DeviceRows x;
  float limit;
  int32_t num_rows, num_columns;
  bool aligned;
};
void launch_soft_cap(const LimitParams& params, void* stream);
void launch_clamp(const LimitParams& params, void* stream);

// x = (1 + slope log(1 + floor((position + first) / floor_scale))) x for all heads of each token.
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

// to[token][head] = from[token][head], cut or filled with zeros.
struct CopyHeadsParams {
  DeviceRows from, to;
  int32_t num_tokens, num_heads, from_dim, to_dim;
};
void launch_copy_heads(const CopyHeadsParams& params, void* stream);

// Heads [num_tokens, num_heads, head_dim], normalized if there is a weight.
struct RopeHeads {
  void* data;
  int64_t token_stride, head_stride;
  int32_t num_heads;
  Element element;
  DeviceVector norm;  // [head_dim]
};
// Rotated pairs of a head: (i, i + half), and (2 i, 2 i + 1).
inline constexpr int kMaxRopeHalf = 256, kMaxNarrowRopeHalf = 128;
// Positions and angles are read before the previous kernel has finished, so that kernel must not write them.
struct NormRopeParams {
  RopeHeads heads[2];  // q and k; k may have no heads
  // Destination of the rotated k and of v. Without slots k is rotated in place and v is not stored.
  StoreParams store;
  const int32_t* positions;
  const float *cos, *sin;  // row p starts at p * stride
  int64_t cos_stride, sin_stride;
  float eps;
  int32_t num_tokens, head_dim, half;  // half: number of rotated pairs, at most kMaxRopeHalf; 0: no angles
  bool norm_after_rope;                // heads of q and k are normalized after the rotation, not before it
  bool norm_v;                         // stored heads of v are normalized, without weights
};
// `interleaved`: pairs are (2 i, 2 i + 1), otherwise (i, i + half).
void launch_norm_rope(const NormRopeParams& params, bool interleaved, void* stream);

// norm_rope() for heads that can be accessed in groups of eight elements.

// Returns true if all of every head is rotated, elements are 16-bit of one type, including norms, and rows
// and halves of heads, also in the cache, are whole aligned groups of eight.
bool supports_groups(const NormRopeParams& params);

// Same bits as launch_norm_rope(), which calls this if supports_groups() returns true.
void launch_norm_rope_groups(const NormRopeParams& params, void* stream);

}  // namespace attend::kernels::cuda
