#include "attend/kernels/norm_rope/cpu/elementwise.h"

#include <algorithm>
#include <cmath>

#include "attend/base/math.h"
#include "attend/base/parallel.h"
#include "attend/kernels/norm_rope/cpu/elementwise_kernels.h"
#include "attend/kernels/norm_rope/gate_functions.h"
#include "attend/kernels/norm_rope/rotate.h"

namespace attend::kernels::cpu {
namespace {

// Rows of a rank 2 or 3 tensor, indexed through its outer dimensions.
struct OuterRows {
  explicit OuterRows(const TensorView& view)
      : data(view.as<float>()),
        inner_extent(view.rank == 3 ? view.shape[1] : 1),
        outer_stride(view.strides[0]),
        inner_stride(view.rank == 3 ? view.strides[1] : 0),
        num_rows(view.shape[0] * inner_extent) {}

  float* operator[](int64_t row) const {
    return data + row / inner_extent * outer_stride + row % inner_extent * inner_stride;
  }

  float* data;
  int64_t inner_extent, outer_stride, inner_stride;
  int64_t num_rows;
};

// Returns row `row` of a contiguous table.
const void* table_row(const TensorView& table, int64_t row) {
  const int64_t row_bytes = table.shape[1] * static_cast<int64_t>(size_of(table.dtype));
  return static_cast<const char*>(table.data) + row * row_bytes;
}

void gate_rows(const TensorView& gate_up, const TensorView& out,
               decltype(ElementwiseKernels::silu_mul) gate) {
  const OuterRows from(gate_up), to(out);
  const int64_t intermediate = out.shape[1];
  parallel_for_rows(from.num_rows, intermediate,
                    [&](int64_t row) { gate(from[row], from[row] + intermediate, to[row], intermediate); });
}

void activate_rows(const TensorView& x, decltype(ElementwiseKernels::gelu) activate) {
  const OuterRows rows(x);
  const int64_t num_columns = x.shape[1];
  parallel_for_rows(rows.num_rows, num_columns, [&](int64_t row) { activate(rows[row], num_columns); });
}

// Rotates pairs (2 i, 2 i + 1).
void rotate_adjacent(float* head, const float* cos, const float* sin, int64_t num_pairs) {
  for (int64_t i = 0; i < num_pairs; ++i) {
    const RotatedPair pair = rotate(head[2 * i], head[2 * i + 1], cos[i], sin[i]);
    head[2 * i] = pair.first;
    head[2 * i + 1] = pair.second;
  }
}

}  // namespace

ElementwiseKernels elementwise_kernels(Isa isa) {
  require_isa(isa);
  if constexpr (kX86Kernels) {
    if (isa >= Isa::kAvx512) return elementwise_kernels_avx512();
    if (isa == Isa::kAvx2) return elementwise_kernels_avx2();
  }
  return elementwise_kernels_portable();
}

void embedding(View<const int32_t> ids, const TensorView& table, const TensorView& out, float scale,
               Isa isa) {
  const ElementwiseKernels kernels = elementwise_kernels(isa);
  const OuterRows to(out);
  const int64_t hidden = table.shape[1];
  parallel_for_rows(to.num_rows, hidden, [&](int64_t row) {
    kernels.widen(table_row(table, ids[static_cast<size_t>(row)]), table.dtype, to[row], hidden);
    if (scale != 1.0f) kernels.scale(to[row], scale, hidden);
  });
}

void add_embedding(View<const int32_t> ids, const TensorView& table, const TensorView& out, Isa isa) {
  const ElementwiseKernels kernels = elementwise_kernels(isa);
  const OuterRows to(out);
  const int64_t hidden = table.shape[1];
  parallel_for_rows(to.num_rows, hidden, [&](int64_t row) {
    kernels.add_weights(to[row], table_row(table, ids[static_cast<size_t>(row)]), table.dtype, hidden);
  });
}

void rms_norm(const TensorView& x, const TensorView& weight, float eps, const TensorView& out,
              float weight_offset, Isa isa) {
  const ElementwiseKernels kernels = elementwise_kernels(isa);
  const OuterRows from(x), to(out);
  const int64_t dim = weight.shape[0];
  parallel_for_rows(from.num_rows, dim, [&](int64_t row) {
    kernels.rms_norm(from[row], weight.data, weight.dtype, weight_offset, eps, to[row], dim);
  });
}

void add_rms_norm(const TensorView& x, const TensorView& residual, const TensorView& weight, float eps,
                  const TensorView& out, float weight_offset, Isa isa) {
  const ElementwiseKernels kernels = elementwise_kernels(isa);
  const OuterRows from(x), sum(residual), to(out);
  const int64_t dim = weight.shape[0];
  parallel_for_rows(from.num_rows, dim, [&](int64_t row) {
    kernels.add(sum[row], from[row], dim);
    kernels.rms_norm(sum[row], weight.data, weight.dtype, weight_offset, eps, to[row], dim);
  });
}

void rms_norm_add(const TensorView& x, const TensorView& weight, float eps, const TensorView& residual,
                  Isa isa) {
  const ElementwiseKernels kernels = elementwise_kernels(isa);
  const OuterRows from(x), sum(residual);
  const int64_t dim = weight.shape[0];
  parallel_for_rows(from.num_rows, dim, [&](int64_t row) {
    kernels.rms_norm(from[row], weight.data, weight.dtype, 0.0f, eps, from[row], dim);
    kernels.add(sum[row], from[row], dim);
  });
}

void layer_norm(const TensorView& x, const TensorView& weight, const TensorView& bias, float eps,
                const TensorView& out, Isa isa) {
  const ElementwiseKernels kernels = elementwise_kernels(isa);
  const OuterRows from(x), to(out);
  const int64_t dim = x.shape[static_cast<size_t>(x.rank) - 1], num_heads = x.rank == 3 ? x.shape[1] : 1;
  const DType dtype = weight.empty() ? bias.dtype : weight.dtype;
  const auto weight_bytes = dim * static_cast<int64_t>(size_of(dtype));
  parallel_for_rows(from.num_rows, dim, [&](int64_t row) {
    const void* const weights =
        weight.empty() ? nullptr : static_cast<const char*>(weight.data) + row % num_heads * weight_bytes;
    kernels.layer_norm(from[row], weights, bias.data, dtype, eps, to[row], dim);
  });
}

void add_layer_norm(const TensorView& x, const TensorView& residual, const TensorView& weight,
                    const TensorView& bias, float eps, Isa isa) {
  const ElementwiseKernels kernels = elementwise_kernels(isa);
  const OuterRows from(x), sum(residual);
  const int64_t dim = x.shape[1];
  const DType dtype = weight.empty() ? bias.dtype : weight.dtype;
  parallel_for_rows(from.num_rows, dim, [&](int64_t row) {
    kernels.add(sum[row], from[row], dim);
    kernels.layer_norm(sum[row], weight.data, bias.data, dtype, eps, sum[row], dim);
  });
}

void silu_mul(const TensorView& gate_up, const TensorView& out, Isa isa) {
  gate_rows(gate_up, out, elementwise_kernels(isa).silu_mul);
}

void gelu_mul(const TensorView& gate_up, const TensorView& out, Isa isa) {
  gate_rows(gate_up, out, elementwise_kernels(isa).gelu_mul);
}

void gelu_tanh_mul(const TensorView& gate_up, const TensorView& out, Isa isa) {
  gate_rows(gate_up, out, elementwise_kernels(isa).gelu_tanh_mul);
}

void gelu(const TensorView& x, Isa isa) { activate_rows(x, elementwise_kernels(isa).gelu); }

void gelu_tanh(const TensorView& x, Isa isa) { activate_rows(x, elementwise_kernels(isa).gelu_tanh); }

void relu(const TensorView& x, Isa isa) { activate_rows(x, elementwise_kernels(isa).relu); }

void relu2(const TensorView& x, Isa isa) { activate_rows(x, elementwise_kernels(isa).relu2); }

void silu(const TensorView& x, Isa isa) { activate_rows(x, elementwise_kernels(isa).silu); }

void clamp(const TensorView& x, float limit, Isa isa) {
  const ElementwiseKernels kernels = elementwise_kernels(isa);
  const OuterRows rows(x);
  parallel_for_rows(rows.num_rows, x.shape[1],
                    [&](int64_t row) { kernels.clamp(rows[row], limit, x.shape[1]); });
}

void gate_mul(const TensorView& gate, const TensorView& x, GateFunction function, Isa isa) {
  const ElementwiseKernels kernels = elementwise_kernels(isa);
  const OuterRows gates(gate), rows(x);
  const int64_t dim = x.shape[2];
  parallel_for_rows(rows.num_rows, dim, [&](int64_t row) {
    if (function == GateFunction::kSigmoid) return kernels.sigmoid_mul(gates[row], rows[row], dim);
    for (int64_t i = 0; i < dim; ++i) rows[row][i] *= softplus(gates[row][i]);
  });
}

void scale_by_gate(const TensorView& gate, const TensorView& x, GateFunction function, Isa isa) {
  const ElementwiseKernels kernels = elementwise_kernels(isa);
  const OuterRows gates(gate), rows(x);
  const int64_t dim = x.shape[static_cast<size_t>(x.rank) - 1];
  parallel_for_rows(rows.num_rows, dim, [&](int64_t row) {
    const float value = *gates[row];
    kernels.scale(rows[row],
                  function == GateFunction::kSigmoid ? 1.0f / (1.0f + std::exp(-value)) : softplus(value),
                  dim);
  });
}

void xielu(const TensorView& x, float alpha_p, float alpha_n) {
  const OuterRows rows(x);
  const float a = softplus(alpha_p), b = kXieluBeta + softplus(alpha_n);
  parallel_for_rows(rows.num_rows, x.shape[1], [&](int64_t row) {
    for (int64_t i = 0; i < x.shape[1]; ++i) rows[row][i] = xielu_of(rows[row][i], a, b);
  });
}

void copy_heads(const TensorView& x, const TensorView& out) {
  const OuterRows from(x), to(out);
  const int64_t dim = out.shape[2], kept = std::min(x.shape[2], dim);
  parallel_for_rows(to.num_rows, dim, [&](int64_t row) {
    std::copy_n(from[row], kept, to[row]);
    std::fill(to[row] + kept, to[row] + dim, 0.0f);
  });
}

void multiply(const TensorView& factor, const TensorView& x, Isa isa) {
  const ElementwiseKernels kernels = elementwise_kernels(isa);
  const OuterRows factors(factor), rows(x);
  parallel_for_rows(rows.num_rows, x.shape[1],
                    [&](int64_t row) { kernels.multiply(factors[row], rows[row], x.shape[1]); });
}

void scale(const TensorView& x, float factor, Isa isa) {
  const ElementwiseKernels kernels = elementwise_kernels(isa);
  const OuterRows rows(x);
  parallel_for_rows(rows.num_rows, x.shape[1],
                    [&](int64_t row) { kernels.scale(rows[row], factor, x.shape[1]); });
}

void soft_cap(const TensorView& x, float cap, Isa isa) {
  const ElementwiseKernels kernels = elementwise_kernels(isa);
  const OuterRows rows(x);
  const int64_t num_columns = x.shape[1];
  parallel_for_rows(rows.num_rows, num_columns,
                    [&](int64_t row) { kernels.soft_cap(rows[row], cap, num_columns); });
}

void rope(const TensorView& x, View<const int32_t> positions, const TensorView& cos, const TensorView& sin,
          bool interleaved, Isa isa) {
  const ElementwiseKernels kernels = elementwise_kernels(isa);
  const int64_t num_heads = x.shape[1], half = cos.shape[1];
  parallel_for_rows(x.shape[0], num_heads * 2 * half, [&](int64_t token) {
    const int64_t position = positions[static_cast<size_t>(token)];
    const float* const cosines = cos.as<const float>() + position * cos.strides[0];
    const float* const sines = sin.as<const float>() + position * sin.strides[0];
    for (int64_t head = 0; head < num_heads; ++head) {
      float* const low = x.as<float>() + token * x.strides[0] + head * x.strides[1];
      if (interleaved)
        rotate_adjacent(low, cosines, sines, half);
      else
        kernels.rotate(low, low + half, cosines, sines, half);
    }
  });
}

void gather_rows(const TensorView& x, View<const int32_t> rows, const TensorView& out, Isa isa) {
  const ElementwiseKernels kernels = elementwise_kernels(isa);
  const OuterRows from(x), to(out);
  const int64_t hidden = x.shape[1];
  parallel_for_rows(to.num_rows, hidden, [&](int64_t row) {
    kernels.widen(from[rows[static_cast<size_t>(row)]], DType::kF32, to[row], hidden);
  });
}

}  // namespace attend::kernels::cpu
