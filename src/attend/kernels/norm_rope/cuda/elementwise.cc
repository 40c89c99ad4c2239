#include "attend/kernels/norm_rope/cuda/elementwise.h"

#include <algorithm>

#include "attend/base/error.h"
#include "attend/kernels/common/cuda/view_params.h"
#include "attend/kernels/kv_store/cuda/store_kernel.h"
#include "attend/kernels/norm_rope/cuda/dynamic_angles_kernel.h"
#include "attend/kernels/norm_rope/cuda/elementwise_kernels.h"

namespace attend::kernels::cuda {
namespace {

constexpr int64_t kGroup = 8;  // elements per aligned access

CopyRowsParams copy_params(const TensorView& from, View<const int32_t> rows, const TensorView& out) {
  return {.from = device_rows(from),
          .out = device_rows(out),
          .rows = rows.data(),
          .num_rows = static_cast<int32_t>(out.shape[0]),
          .num_columns = static_cast<int32_t>(out.shape[1]),
          .aligned = out.shape[1] % kGroup == 0 && rows_aligned({&from, &out}),
          .add = false};
}

void norm(const TensorView& x, const TensorView& residual, const TensorView& weight, float eps,
          float weight_offset, const TensorView& out, Stream& stream) {
  const int64_t dim = weight.shape[0];
  launch_rms_norm({.x = device_rows(x),
                   .residual = device_rows(residual),
                   .out = device_rows(out),
                   .weight = device_vector(weight),
                   .eps = eps,
                   .weight_offset = weight_offset,
                   .num_rows = static_cast<int32_t>(dim == 0 ? 0 : x.num_elements() / dim),
                   .dim = static_cast<int32_t>(dim),
                   .aligned = dim % kGroup == 0 && rows_aligned({&x, &residual, &weight, &out})},
                  stream.handle);
}

ActivationParams activation_params(const TensorView& x) {
  return {.x = device_rows(x),
          .num_rows = static_cast<int32_t>(x.shape[0]),
          .num_columns = static_cast<int32_t>(x.shape[1]),
          .aligned = x.shape[1] % kGroup == 0 && rows_aligned({&x})};
}

GateParams gate_params(const TensorView& gate_up, const TensorView& out) {
  const int64_t num_columns = out.shape[1];
  return {.gate = device_rows(gate_up.slice(1, 0, num_columns)),
          .up = device_rows(gate_up.slice(1, num_columns, 2 * num_columns)),
          .out = device_rows(out),
          .num_rows = static_cast<int32_t>(out.shape[0]),
          .num_columns = static_cast<int32_t>(num_columns),
          .aligned = num_columns % kGroup == 0 && rows_aligned({&gate_up, &out})};
}

// x = activation(factor) * x for rows of tokens, or of heads.
GateParams factor_params(const TensorView& factor, const TensorView& x) {
  const int64_t num_columns = x.shape[static_cast<size_t>(x.rank) - 1];
  return {.gate = device_rows(factor),
          .up = device_rows(x),
          .out = device_rows(x),
          .num_rows = static_cast<int32_t>(num_columns == 0 ? 0 : x.num_elements() / num_columns),
          .num_columns = static_cast<int32_t>(num_columns),
          .aligned = num_columns % kGroup == 0 && rows_aligned({&factor, &x})};
}

LimitParams limit_params(const TensorView& x, float limit) {
  return {.x = device_rows(x),
          .limit = limit,
          .num_rows = static_cast<int32_t>(x.shape[0]),
          .num_columns = static_cast<int32_t>(x.shape[1]),
          .aligned = x.shape[1] % kGroup == 0 && rows_aligned({&x})};
}

ScaleParams scale_params(const TensorView& x, const TensorView& gates, float factor) {
  const int64_t num_columns = x.shape[static_cast<size_t>(x.rank) - 1];
  return {.x = device_rows(x),
          .gates = device_rows(gates),
          .softplus = false,
          .factor = factor,
          .device_factor = nullptr,
          .num_rows = static_cast<int32_t>(num_columns == 0 ? 0 : x.num_elements() / num_columns),
          .num_columns = static_cast<int32_t>(num_columns),
          .aligned = num_columns % kGroup == 0 && rows_aligned({&x})};
}

RopeHeads rope_heads(const TensorView& x, const TensorView& norm_weight) {
  if (x.empty())
    return {.data = nullptr, .token_stride = 0, .head_stride = 0, .num_heads = 0, .element = {}, .norm = {}};
  const DeviceRows rows = device_rows(x);
  return {.data = rows.data,
          .token_stride = rows.outer_stride,
          .head_stride = rows.inner_stride,
          .num_heads = static_cast<int32_t>(x.shape[1]),
          .element = rows.element,
          .norm = device_vector(norm_weight)};
}

NormRopeParams norm_rope_params(const NormRopeArgs& args) {
  const int max_half = args.interleaved ? kMaxNarrowRopeHalf : kMaxRopeHalf;
  if (args.cos.shape[1] > max_half)
    fail(ErrorCode::kUnsupported, "cos ", args.cos, ": GPUs support at most ", max_half,
         args.interleaved ? " interleaved pairs per head" : " pairs per head");
  return {.heads = {rope_heads(args.q, args.q_norm), rope_heads(args.k, args.k_norm)},
          .store = {},
          .positions = args.positions.data(),
          .cos = args.cos.as<float>(),
          .sin = args.sin.as<float>(),
          .cos_stride = args.cos.strides[0],
          .sin_stride = args.sin.strides[0],
          .eps = args.eps,
          .num_tokens = static_cast<int32_t>(args.q.shape[0]),
          .head_dim = static_cast<int32_t>(args.q.shape[2]),
          .half = static_cast<int32_t>(args.cos.shape[1]),
          .norm_after_rope = args.norm_after_rope,
          .norm_v = args.norm_v};
}

}  // namespace

void embedding(View<const int32_t> ids, const TensorView& table, const TensorView& out, float scale,
               Stream& stream) {
  const CopyRowsParams params = copy_params(table, ids, out);
  if (scale == 1.0f) return launch_copy_rows(params, stream.handle);
  launch_scaled_rows({params, scale}, stream.handle);
}

void rms_norm(const TensorView& x, const TensorView& weight, float eps, const TensorView& out, Stream& stream,
              float weight_offset) {
  norm(x, {}, weight, eps, weight_offset, out, stream);
}

void add_rms_norm(const TensorView& x, const TensorView& residual, const TensorView& weight, float eps,
                  const TensorView& out, Stream& stream, float weight_offset) {
  norm(x, residual, weight, eps, weight_offset, out, stream);
}

void rms_norm_add(const TensorView& x, const TensorView& weight, float eps, const TensorView& residual,
                  Stream& stream) {
  const int64_t dim = weight.shape[0];
  launch_rms_norm_add({.x = device_rows(x),
                       .residual = device_rows(residual),
                       .weight = device_vector(weight),
                       .eps = eps,
                       .num_rows = static_cast<int32_t>(dim == 0 ? 0 : x.shape[0]),
                       .dim = static_cast<int32_t>(dim),
                       .aligned = dim % kGroup == 0 && rows_aligned({&x, &residual}),
                       .weight_aligned = dim % kGroup == 0 && rows_aligned({&weight})},
                      stream.handle);
}

void add_embedding(View<const int32_t> ids, const TensorView& table, const TensorView& out, Stream& stream) {
  CopyRowsParams params = copy_params(table, ids, out);
  params.add = true;
  launch_copy_rows(params, stream.handle);
}

void layer_norm(const TensorView& x, const TensorView& addend, const TensorView& weight,
                const TensorView& bias, float eps, const TensorView& out, Stream& stream) {
  const int64_t dim = x.shape[static_cast<size_t>(x.rank) - 1];
  launch_layer_norm({.x = device_rows(x),
                     .addend = device_rows(addend),
                     .out = device_rows(out),
                     .weight = device_vector(weight),
                     .bias = device_vector(bias),
                     .eps = eps,
                     .num_rows = static_cast<int32_t>(dim == 0 ? 0 : x.num_elements() / dim),
                     .dim = static_cast<int32_t>(dim),
                     .num_heads = static_cast<int32_t>(x.rank == 3 ? x.shape[1] : 1),
                     .aligned = dim % kGroup == 0 && rows_aligned({&x, &addend, &out}),
                     .weight_aligned = dim % kGroup == 0 && rows_aligned({&weight, &bias})},
                    stream.handle);
}

void gelu(const TensorView& x, Stream& stream) { launch_gelu(activation_params(x), stream.handle); }

void gelu_tanh(const TensorView& x, Stream& stream) { launch_gelu_tanh(activation_params(x), stream.handle); }

void relu(const TensorView& x, Stream& stream) { launch_relu(activation_params(x), stream.handle); }

void relu2(const TensorView& x, Stream& stream) { launch_relu2(activation_params(x), stream.handle); }

void silu(const TensorView& x, Stream& stream) { launch_silu(activation_params(x), stream.handle); }

void gate_mul(const TensorView& gate, const TensorView& x, GateFunction function, Stream& stream) {
  const bool sigmoid = function == GateFunction::kSigmoid;
  (sigmoid ? launch_sigmoid_mul : launch_softplus_mul)(factor_params(gate, x), stream.handle);
}

void multiply(const TensorView& factor, const TensorView& x, Stream& stream) {
  launch_multiply(factor_params(factor, x), stream.handle);
}

void scale_by_gate(const TensorView& gate, const TensorView& x, GateFunction function, Stream& stream) {
  ScaleParams params = scale_params(x, gate, 1.0f);
  params.softplus = function == GateFunction::kSoftplus;
  launch_scale(params, stream.handle);
}

void xielu(const TensorView& x, const XieluAlphas& alphas, Stream& stream) {
  launch_xielu({activation_params(x), alphas.positive.as<const float>(), alphas.negative.as<const float>()},
               stream.handle);
}

void scale(const TensorView& x, float factor, Stream& stream) {
  launch_scale(scale_params(x, {}, factor), stream.handle);
}

void scale(const TensorView& x, const TensorView& factor, Stream& stream) {
  ScaleParams params = scale_params(x, {}, 1.0f);
  params.device_factor = factor.as<const float>();
  launch_scale(params, stream.handle);
}

void silu_mul(const TensorView& gate_up, const TensorView& out, Stream& stream) {
  launch_silu_mul(gate_params(gate_up, out), stream.handle);
}

void gelu_mul(const TensorView& gate_up, const TensorView& out, Stream& stream) {
  launch_gelu_mul(gate_params(gate_up, out), stream.handle);
}

void gelu_tanh_mul(const TensorView& gate_up, const TensorView& out, Stream& stream) {
  launch_gelu_tanh_mul(gate_params(gate_up, out), stream.handle);
}

void soft_cap(const TensorView& x, float cap, Stream& stream) {
  launch_soft_cap(limit_params(x, cap), stream.handle);
}

void clamp(const TensorView& x, float limit, Stream& stream) {
  launch_clamp(limit_params(x, limit), stream.handle);
}

void norm_rope(const NormRopeArgs& args, Stream& stream) {
  launch_norm_rope(norm_rope_params(args), args.interleaved, stream.handle);
}

void norm_rope_store(const NormRopeArgs& rope, const StoreKvArgs& store, Stream& stream) {
  launch_norm_rope(norm_rope_store_params(rope, store, stream), rope.interleaved, stream.handle);
}

NormRopeParams norm_rope_store_params(const NormRopeArgs& rope, const StoreKvArgs& store,
                                      const Stream& stream) {
  NormRopeParams params = norm_rope_params(rope);
  params.store = store_params(store, stream);
  return params;
}

void scale_by_position(const TensorView& q, View<const int32_t> positions,
                       const QueryTemperature& temperature, Stream& stream) {
  const DeviceRows rows = device_rows(q);
  launch_scale_by_position({.x = rows.data,
                            .token_stride = rows.outer_stride,
                            .head_stride = rows.inner_stride,
                            .positions = positions.data(),
                            .slope = temperature.slope,
                            .floor_scale = temperature.floor_scale,
                            .first = temperature.first,
                            .num_tokens = static_cast<int32_t>(q.shape[0]),
                            .num_heads = static_cast<int32_t>(q.shape[1]),
                            .head_dim = static_cast<int32_t>(q.shape[2]),
                            .element = rows.element},
                           stream.handle);
}

void copy_heads(const TensorView& x, const TensorView& out, Stream& stream) {
  launch_copy_heads({.from = device_rows(x),
                     .to = device_rows(out),
                     .num_tokens = static_cast<int32_t>(x.shape[0]),
                     .num_heads = static_cast<int32_t>(x.shape[1]),
                     .from_dim = static_cast<int32_t>(x.shape[2]),
                     .to_dim = static_cast<int32_t>(out.shape[2])},
                    stream.handle);
}

void dynamic_angles(const DynamicAnglesArgs& args, Stream& stream) {
  launch_dynamic_angles({.positions = args.positions.data(),
                         .cu_seqlen_q = args.cu_seqlen_q.data(),
                         .prompt_lens = args.prompt_lens.data(),
                         .theta = args.theta,
                         .factor = args.factor,
                         .cos = args.cos.as<float>(),
                         .sin = args.sin.as<float>(),
                         .num_tokens = static_cast<int32_t>(args.positions.size()),
                         .num_reqs = static_cast<int32_t>(args.prompt_lens.size()),
                         .original_length = args.original_length,
                         .half = static_cast<int32_t>(args.cos.shape[1])},
                        stream.handle);
}

void axis_angles(const AxisAnglesArgs& args, Stream& stream) {
  AxisAnglesParams params{.positions = args.positions.data(),
                          .table_cos = args.table_cos.as<const float>(),
                          .table_sin = args.table_sin.as<const float>(),
                          .cos = args.cos.as<float>(),
                          .sin = args.sin.as<float>(),
                          .num_tokens = static_cast<int32_t>(args.cos.shape[0]),
                          .half = static_cast<int32_t>(args.cos.shape[1]),
                          .pair_axes = {}};
  std::ranges::copy(args.pair_axes, params.pair_axes);
  launch_axis_angles(params, stream.handle);
}

void rope_rows_by_length(const RopeRowsByLengthArgs& args, Stream& stream) {
  launch_rope_rows_by_length({.positions = args.positions.data(),
                              .cu_seqlen_q = args.cu_seqlen_q.data(),
                              .prompt_lens = args.prompt_lens.data(),
                              .rows = args.rows.data(),
                              .num_tokens = static_cast<int32_t>(args.positions.size()),
                              .num_reqs = static_cast<int32_t>(args.prompt_lens.size()),
                              .original_length = args.original_length,
                              .num_positions = args.num_positions},
                             stream.handle);
}

void gather_rows(const TensorView& x, View<const int32_t> rows, const TensorView& out, Stream& stream) {
  launch_copy_rows(copy_params(x, rows, out), stream.handle);
}

void add_rows(const TensorView& x, const TensorView& out, Stream& stream) {
  CopyRowsParams params = copy_params(x, {}, out);
  params.add = true;
  launch_copy_rows(params, stream.handle);
}

void clear_first_rows(View<const int32_t> positions, const TensorView& x, Stream& stream) {
  launch_clear_first_rows({.x = device_rows(x),
                           .positions = positions.data(),
                           .num_rows = static_cast<int32_t>(x.shape[0]),
                           .num_columns = static_cast<int32_t>(x.shape[1])},
                          stream.handle);
}

}  // namespace attend::kernels::cuda
