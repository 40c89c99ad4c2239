#include "attend/kernels/norm_rope/elementwise.h"

#include <algorithm>

#include "attend/base/error.h"
#include "attend/base/parallel.h"
#include "attend/kernels/common/on_gpu.h"
#include "attend/kernels/norm_rope/check_rows.h"
#include "attend/kernels/norm_rope/cpu/elementwise.h"
#include "attend/kernels/norm_rope/cuda/elementwise.h"

namespace attend::kernels {

void rms_norm(const TensorView& x, const TensorView& weight, float eps, const TensorView& out, Stream& stream,
              float weight_offset) {
  require(!x.empty(), "x: not given");
  require(x.rank == 2 || x.rank == 3, "x ", x, ": expected 2 or 3 dimensions");
  if (x.rank == 2)
    require_shape("out", out, {x.shape[0], x.shape[1]});
  else
    require_shape("out", out, {x.shape[0], x.shape[1], x.shape[2]});
  require_activation_on(stream, "x", x);
  require_activation_on(stream, "out", out);
  require_norm_weight(weight, x.shape[static_cast<size_t>(x.rank) - 1], stream);
  if (const OnGpu gpu(stream); gpu) return cuda::rms_norm(x, weight, eps, out, stream, weight_offset);
  cpu::rms_norm(x, weight, eps, out, weight_offset, cpu::detect_isa());
}

void add_rms_norm(const TensorView& x, const TensorView& residual, const TensorView& weight, float eps,
                  const TensorView& out, Stream& stream, float weight_offset) {
  require_rank("x", x, 2);
  require_activation_on(stream, "x", x);
  require_matrix("residual", residual, x.shape[0], x.shape[1], stream);
  require_matrix("out", out, x.shape[0], x.shape[1], stream);
  require_norm_weight(weight, x.shape[1], stream);
  if (const OnGpu gpu(stream); gpu)
    return cuda::add_rms_norm(x, residual, weight, eps, out, stream, weight_offset);
  cpu::add_rms_norm(x, residual, weight, eps, out, weight_offset, cpu::detect_isa());
}

void rms_norm_add(const TensorView& x, const TensorView& weight, float eps, const TensorView& residual,
                  Stream& stream) {
  require_rank("x", x, 2);
  require_activation_on(stream, "x", x);
  require_matrix("residual", residual, x.shape[0], x.shape[1], stream);
  require_norm_weight(weight, x.shape[1], stream);
  if (const OnGpu gpu(stream); gpu) return cuda::rms_norm_add(x, weight, eps, residual, stream);
  cpu::rms_norm_add(x, weight, eps, residual, cpu::detect_isa());
}

namespace {

void check_layer_norm(const TensorView& x, const TensorView& weight, const TensorView& bias,
                      const Stream& stream) {
  require_rank("x", x, 2);
  require_activation_on(stream, "x", x);
  if (!weight.empty()) require_norm_weight(weight, x.shape[1], stream);
  if (bias.empty()) return;
  require_shape("bias", bias, {x.shape[1]});
  require_on(stream, "bias", bias);
  require(weight.empty() || bias.dtype == weight.dtype, "bias of ", bias.dtype, ": expected ", weight.dtype,
          ", the dtype of the weight");
}

}  // namespace

void layer_norm(const TensorView& x, const TensorView& weight, const TensorView& bias, float eps,
                const TensorView& out, Stream& stream) {
  if (x.rank == 3) {
    require_activation_on(stream, "x", x);
    require_shape("weight", weight, {x.shape[1] * x.shape[2]});
    require_on(stream, "weight", weight);
    require(bias.empty(), "bias ", bias, ": expected none for heads");
    require_shape("out", out, {x.shape[0], x.shape[1], x.shape[2]});
    require_activation_on(stream, "out", out);
  } else {
    check_layer_norm(x, weight, bias, stream);
    require_matrix("out", out, x.shape[0], x.shape[1], stream);
  }
  if (const OnGpu gpu(stream); gpu) return cuda::layer_norm(x, {}, weight, bias, eps, out, stream);
  cpu::layer_norm(x, weight, bias, eps, out, cpu::detect_isa());
}

void add_layer_norm(const TensorView& x, const TensorView& residual, const TensorView& weight,
                    const TensorView& bias, float eps, Stream& stream) {
  check_layer_norm(x, weight, bias, stream);
  require_matrix("residual", residual, x.shape[0], x.shape[1], stream);
  if (const OnGpu gpu(stream); gpu) return cuda::layer_norm(residual, x, weight, bias, eps, residual, stream);
  cpu::add_layer_norm(x, residual, weight, bias, eps, cpu::detect_isa());
}

namespace {

void check_gated(const TensorView& gate_up, const TensorView& out, const Stream& stream) {
  require_rank("out", out, 2);
  require_activation_on(stream, "out", out);
  require_matrix("gate_up", gate_up, out.shape[0], 2 * out.shape[1], stream);
}

}  // namespace

void silu_mul(const TensorView& gate_up, const TensorView& out, Stream& stream) {
  check_gated(gate_up, out, stream);
  if (const OnGpu gpu(stream); gpu) return cuda::silu_mul(gate_up, out, stream);
  cpu::silu_mul(gate_up, out, cpu::detect_isa());
}

void gelu_mul(const TensorView& gate_up, const TensorView& out, Stream& stream) {
  check_gated(gate_up, out, stream);
  if (const OnGpu gpu(stream); gpu) return cuda::gelu_mul(gate_up, out, stream);
  cpu::gelu_mul(gate_up, out, cpu::detect_isa());
}

void gelu_tanh_mul(const TensorView& gate_up, const TensorView& out, Stream& stream) {
  check_gated(gate_up, out, stream);
  if (const OnGpu gpu(stream); gpu) return cuda::gelu_tanh_mul(gate_up, out, stream);
  cpu::gelu_tanh_mul(gate_up, out, cpu::detect_isa());
}

void gelu(const TensorView& x, Stream& stream) {
  require_rank("x", x, 2);
  require_activation_on(stream, "x", x);
  if (const OnGpu gpu(stream); gpu) return cuda::gelu(x, stream);
  cpu::gelu(x, cpu::detect_isa());
}

void gelu_tanh(const TensorView& x, Stream& stream) {
  require_rank("x", x, 2);
  require_activation_on(stream, "x", x);
  if (const OnGpu gpu(stream); gpu) return cuda::gelu_tanh(x, stream);
  cpu::gelu_tanh(x, cpu::detect_isa());
}

void relu(const TensorView& x, Stream& stream) {
  require_rank("x", x, 2);
  require_activation_on(stream, "x", x);
  if (const OnGpu gpu(stream); gpu) return cuda::relu(x, stream);
  cpu::relu(x, cpu::detect_isa());
}

void relu2(const TensorView& x, Stream& stream) {
  require_rank("x", x, 2);
  require_activation_on(stream, "x", x);
  if (const OnGpu gpu(stream); gpu) return cuda::relu2(x, stream);
  cpu::relu2(x, cpu::detect_isa());
}

void silu(const TensorView& x, Stream& stream) {
  require_rank("x", x, 2);
  require_activation_on(stream, "x", x);
  if (const OnGpu gpu(stream); gpu) return cuda::silu(x, stream);
  cpu::silu(x, cpu::detect_isa());
}

void clamp(const TensorView& x, float limit, Stream& stream) {
  require_rank("x", x, 2);
  require_activation_on(stream, "x", x);
  require(limit >= 0.0f, "limit ", limit, ": expected at least 0");
  if (const OnGpu gpu(stream); gpu) return cuda::clamp(x, limit, stream);
  cpu::clamp(x, limit, cpu::detect_isa());
}

void gate_mul(const TensorView& gate, const TensorView& x, Stream& stream, GateFunction function) {
  require_rank("x", x, 3);
  require_activation_on(stream, "x", x);
  require_shape("gate", gate, {x.shape[0], x.shape[1], x.shape[2]});
  require_activation_on(stream, "gate", gate);
  if (const OnGpu gpu(stream); gpu) return cuda::gate_mul(gate, x, function, stream);
  cpu::gate_mul(gate, x, function, cpu::detect_isa());
}

void scale_by_gate(const TensorView& gate, const TensorView& x, Stream& stream, GateFunction function) {
  if (x.rank == 3)
    require_shape("gate", gate, {x.shape[0], x.shape[1], 1});
  else
    require_matrix("gate", gate, x.shape[0], 1, stream);
  require_activation_on(stream, "gate", gate);
  require_activation_on(stream, "x", x);
  if (const OnGpu gpu(stream); gpu) return cuda::scale_by_gate(gate, x, function, stream);
  cpu::scale_by_gate(gate, x, function, cpu::detect_isa());
}

void xielu(const TensorView& x, const XieluAlphas& alphas, Stream& stream) {
  require_rank("x", x, 2);
  require_activation_on(stream, "x", x);
  for (const auto& [name, alpha] : {std::pair{"alpha_p", &alphas.positive}, {"alpha_n", &alphas.negative}}) {
    require_shape(name, *alpha, {1});
    require_dtype(name, *alpha, DType::kF32);
    require_on(stream, name, *alpha);
  }
  if (const OnGpu gpu(stream); gpu) return cuda::xielu(x, alphas, stream);
  cpu::xielu(x, *alphas.positive.as<const float>(), *alphas.negative.as<const float>());
}

void multiply(const TensorView& factor, const TensorView& x, Stream& stream) {
  require_rank("x", x, 2);
  require_activation_on(stream, "x", x);
  require_matrix("factor", factor, x.shape[0], x.shape[1], stream);
  if (const OnGpu gpu(stream); gpu) return cuda::multiply(factor, x, stream);
  cpu::multiply(factor, x, cpu::detect_isa());
}

void scale(const TensorView& x, float factor, Stream& stream) {
  if (factor == 1.0f) return;
  require_rank("x", x, 2);
  require_activation_on(stream, "x", x);
  if (const OnGpu gpu(stream); gpu) return cuda::scale(x, factor, stream);
  cpu::scale(x, factor, cpu::detect_isa());
}

void scale(const TensorView& x, const TensorView& factor, Stream& stream) {
  require_rank("x", x, 2);
  require_activation_on(stream, "x", x);
  require_shape("factor", factor, {1});
  require_dtype("factor", factor, DType::kF32);
  require_on(stream, "factor", factor);
  if (const OnGpu gpu(stream); gpu) return cuda::scale(x, factor, stream);
  cpu::scale(x, *factor.as<const float>(), cpu::detect_isa());
}

void soft_cap(const TensorView& x, float cap, Stream& stream) {
  require_rank("x", x, 2);
  require_activation_on(stream, "x", x);
  require(cap > 0.0f, "cap ", cap, ": expected above 0");
  if (const OnGpu gpu(stream); gpu) return cuda::soft_cap(x, cap, stream);
  cpu::soft_cap(x, cap, cpu::detect_isa());
}

namespace {

void check_embedding(View<const int32_t> ids, const TensorView& table, const TensorView& out,
                     const Stream& stream) {
  require_rank("table", table, 2);
  require_weight("table", table);
  require_on(stream, "table", table);
  require_matrix("out", out, static_cast<int64_t>(ids.size()), table.shape[1], stream);
  require_indices(stream, "ids", ids, out.shape[0], table.shape[0], "table");
}

}  // namespace

void embedding(View<const int32_t> ids, const TensorView& table, const TensorView& out, Stream& stream,
               float scale) {
  check_embedding(ids, table, out, stream);
  if (const OnGpu gpu(stream); gpu) return cuda::embedding(ids, table, out, scale, stream);
  cpu::embedding(ids, table, out, scale, cpu::detect_isa());
}

void add_embedding(View<const int32_t> ids, const TensorView& table, const TensorView& out, Stream& stream) {
  check_embedding(ids, table, out, stream);
  if (const OnGpu gpu(stream); gpu) return cuda::add_embedding(ids, table, out, stream);
  cpu::add_embedding(ids, table, out, cpu::detect_isa());
}

void gather_rows(const TensorView& x, View<const int32_t> rows, const TensorView& out, Stream& stream) {
  require_rank("x", x, 2);
  require_activation_on(stream, "x", x);
  require_matrix("out", out, static_cast<int64_t>(rows.size()), x.shape[1], stream);
  require_indices(stream, "rows", rows, out.shape[0], x.shape[0], "x");
  if (const OnGpu gpu(stream); gpu) return cuda::gather_rows(x, rows, out, stream);
  cpu::gather_rows(x, rows, out, cpu::detect_isa());
}

void copy_rows(const TensorView& x, const TensorView& out, Stream& stream) {
  require_rank("x", x, 2);
  require_activation_on(stream, "x", x);
  require_matrix("out", out, x.shape[0], x.shape[1], stream);
  require(out.dtype == x.dtype, "out of ", out.dtype, ": expected ", x.dtype, ", the dtype of x");
  if (const OnGpu gpu(stream); gpu) return cuda::gather_rows(x, {}, out, stream);
  parallel_for_rows(x.shape[0], x.shape[1], [&](int64_t row) {
    std::ranges::copy(x[row].span<const float>(), out[row].as<float>());
  });
}

void copy_heads(const TensorView& x, const TensorView& out, Stream& stream) {
  require_rank("x", x, 3);
  require_activation_on(stream, "x", x);
  require_shape("out", out, {x.shape[0], x.shape[1], out.shape[2]});
  require_activation_on(stream, "out", out);
  require_dtype("out", out, x.dtype);
  if (const OnGpu gpu(stream); gpu) return cuda::copy_heads(x, out, stream);
  cpu::copy_heads(x, out);
}

void clear_first_rows(View<const int32_t> positions, const TensorView& x, Stream& stream) {
  require_rank("x", x, 2);
  require_activation_on(stream, "x", x);
  require(std::ssize(positions) == x.shape[0], "positions of ", positions.size(), " tokens: expected ",
          x.shape[0]);
  if (const OnGpu gpu(stream); gpu) return cuda::clear_first_rows(positions, x, stream);
  for (int64_t row = 0; row < x.shape[0]; ++row)
    if (positions[static_cast<size_t>(row)] == 0) std::ranges::fill(x[row].span<float>(), 0.0f);
}

}  // namespace attend::kernels
