// Small operations between attention and linear layers: copy of rows, RMSNorm with residual, activation(gate)
// * up, activation(x), factors of rows, soft cap of logits.
//
//   tile        copy and norm: one row per CTA; others: up to 256 groups of eight elements of a row per CTA,
//               or several short rows
//   warps       1 to 8 (norm: up to 16), all alike, one thread per group (norm: per two groups)
//   registers   37; 56 to 82 for the norm, which keeps rows of up to 8192 elements; 32
//   shared      64 bytes for the sum of the norm
//   bytes       every row read and written once
//   bound       memory; latency if rows are few
#include <type_traits>

#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/norm_rope/cuda/elementwise_kernels.h"
#include "attend/kernels/norm_rope/cuda/row_kernels.cuh"
#include "attend/kernels/norm_rope/gate_functions.h"
#include "attend/kernels/norm_rope/gelu.h"

namespace attend::kernels::cuda {
namespace {

constexpr int kMaxThreads = 256;
// Groups of a row that a thread of the norm keeps in registers: rows of up to 8192 elements are read once.
constexpr int kKeptGroups = 2;

// One CTA per row. Params: CopyRowsParams or ScaledRowsParams.
template <class Params>
__global__ void __launch_bounds__(kMaxThreads) copy_rows_kernel(const __grid_constant__ Params params) {
  ptx::launch_dependents();
  ptx::griddepcontrol_wait();
  // A row without a token (kNoToken) copies row 0; its result is not used.
  const int64_t row = params.rows == nullptr ? blockIdx.x : max(params.rows[blockIdx.x], 0);
  const UnalignedRow from(params.from, row, params.num_columns, params.aligned);
  const UnalignedRow out(params.out, blockIdx.x, params.num_columns, params.aligned);
  const int num_groups = num_element_groups(params.num_columns);
  for (int g = static_cast<int>(threadIdx.x); g < num_groups; g += static_cast<int>(blockDim.x)) {
    Group group;
    UnalignedRow::convert(from.load(g), group);
    if constexpr (requires { params.scale; }) {
#pragma unroll
      for (int i = 0; i < kGroupElements; ++i) group[i] *= params.scale;
    }
    if (params.add) {
      const UnalignedRow::Bits sum = out.load(g);
#pragma unroll
      for (int i = 0; i < kGroupElements; ++i) group[i] += sum.values[i];
    }
    out.store(g, group);
  }
}

// One row of the norm. WeightRow: type of the row of weights.
template <class Row, class WeightRow>
class NormRow {
 public:
  using Bits = typename Row::Bits;
  using WeightBits = typename WeightRow::Bits;

  __device__ NormRow(const NormParams& params, int64_t row)
      : x_(params.x, row, params.dim, params.aligned),
        residual_(params.residual, row, params.dim, params.aligned),
        out_(params.out, row, params.dim, params.aligned),
        weight_(weight_rows(params), 0, params.dim, params.aligned),
        has_residual_(params.residual.data != nullptr),
        weight_offset_(params.weight_offset) {}

  // No kernel of a step writes the weights.
  __device__ WeightBits load_weights(int g) const { return weight_.load(g); }
  __device__ Bits load_x(int g) const { return x_.load(g); }
  __device__ Bits load_residual(int g) const { return has_residual_ ? residual_.load(g) : Bits{}; }

  // Computes group `g` of the normalizer's input and updates the residual. Returns the sum of its squares.
  __device__ float update(int g, const Bits& x, const Bits& before, Group& group) const {
    Row::convert(x, group);
    if (has_residual_) {
      Group residual;
      Row::convert(before, residual);
#pragma unroll
      for (int i = 0; i < kGroupElements; ++i) group[i] = residual_.rounded(group[i] + residual[i]);
      residual_.store(g, group);
    }
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < kGroupElements; ++i) sum = fmaf(group[i], group[i], sum);
    return sum;
  }

  // Reads the same group again.
  __device__ void reread(int g, Group& group) const {
    Row::convert(has_residual_ ? residual_.load(g) : x_.load(g), group);
  }

  __device__ void write_normalized(int g, Group& group, const WeightBits& weights, float scale) const {
    Group weight;
    WeightRow::convert(weights, weight);
#pragma unroll
    for (int i = 0; i < kGroupElements; ++i) group[i] *= scale * (weight[i] + weight_offset_);
    out_.store(g, group);
  }

 private:
  static __device__ DeviceRows weight_rows(const NormParams& params) {
    return {const_cast<void*>(params.weight.data), 0, 0, 1, params.weight.element};
  }

  Row x_, residual_, out_;
  WeightRow weight_;
  bool has_residual_;
  float weight_offset_;
};

// One CTA per row.
template <class Row, class WeightRow>
__global__ void __launch_bounds__(kMaxNormThreads, 1)
    rms_norm_kernel(const __grid_constant__ NormParams params) {
  ptx::launch_dependents();
  const NormRow<Row, WeightRow> row(params, blockIdx.x);
  const int num_groups = num_element_groups(params.dim), num_threads = static_cast<int>(blockDim.x);
  const int first_group = static_cast<int>(threadIdx.x);
  typename WeightRow::Bits weights[kKeptGroups];
  typename Row::Bits x[kKeptGroups], residual[kKeptGroups];
#pragma unroll
  for (int j = 0; j < kKeptGroups; ++j) {
    const int g = first_group + j * num_threads;
    if (g < num_groups) weights[j] = row.load_weights(g);
  }
  ptx::griddepcontrol_wait();
#pragma unroll
  for (int j = 0; j < kKeptGroups; ++j) {
    const int g = first_group + j * num_threads;
    if (g >= num_groups) break;
    x[j] = row.load_x(g);
    residual[j] = row.load_residual(g);
  }
  float sum = 0.0f;
  Group kept[kKeptGroups];
#pragma unroll
  for (int j = 0; j < kKeptGroups; ++j) {
    const int g = first_group + j * num_threads;
    if (g < num_groups) sum += row.update(g, x[j], residual[j], kept[j]);
  }
  for (int g = first_group + kKeptGroups * num_threads; g < num_groups; g += num_threads) {
    Group group;
    sum += row.update(g, row.load_x(g), row.load_residual(g), group);
  }
  const float scale = 1.0f / sqrtf(cta_sum(sum) / static_cast<float>(params.dim) + params.eps);
#pragma unroll
  for (int j = 0; j < kKeptGroups; ++j) {
    const int g = first_group + j * num_threads;
    if (g < num_groups) row.write_normalized(g, kept[j], weights[j], scale);
  }
  for (int g = first_group + kKeptGroups * num_threads; g < num_groups; g += num_threads) {
    Group group;
    row.reread(g, group);
    row.write_normalized(g, group, row.load_weights(g), scale);
  }
}

// x / (1 + e^-t). The division has two roundings: an exact one about doubles the number of
// instructions, which slows down prompts.
__device__ float times_sigmoid(float x, float t) { return __fdividef(x, 1.0f + expf(-t)); }

struct Silu {
  static __device__ float of(float x) { return times_sigmoid(x, x); }
};

struct Gelu {
  static __device__ float of(float x) { return x * normcdff(x); }
};

// (1 + tanh(u)) / 2 is the sigmoid of 2 u.
struct GeluTanh {
  static __device__ float of(float x) {
    return times_sigmoid(x, 2.0f * kGeluScale * (x + kGeluCubic * (x * (x * x))));
  }
};

// NaN stays NaN.
struct Relu {
  static __device__ float of(float x) { return x < 0.0f ? 0.0f : x; }
};
struct Relu2 {
  static __device__ float of(float x) {
    const float positive = x < 0.0f ? 0.0f : x;
    return positive * positive;
  }
};

struct Sigmoid {
  static __device__ float of(float x) { return times_sigmoid(1.0f, x); }
};

struct Softplus {
  static __device__ float of(float x) { return softplus(x); }
};

struct Identity {
  static __device__ float of(float x) { return x; }
};

// Grid: (rows, part of a row), one group per thread.
template <class Row, class Activation>
__global__ void __launch_bounds__(kMaxThreads) gate_kernel(const __grid_constant__ GateParams params) {
  ptx::launch_dependents();
  ptx::griddepcontrol_wait();
  const unsigned row_threads = blockDim.x / static_cast<unsigned>(params.rows_per_cta);
  const int row =
      static_cast<int>(blockIdx.x) * params.rows_per_cta + static_cast<int>(threadIdx.x / row_threads);
  const int g = static_cast<int>(blockIdx.y * row_threads + threadIdx.x % row_threads);
  if (g >= num_element_groups(params.num_columns) || row >= params.num_rows) return;
  const auto get_row = [&](const DeviceRows& rows) {
    return Row(rows, row, params.num_columns, params.aligned);
  };
  const typename Row::Bits gate_bits = get_row(params.gate).load(g), up_bits = get_row(params.up).load(g);
  Group gate, up;
  Row::convert(gate_bits, gate);
  Row::convert(up_bits, up);
#pragma unroll
  for (int i = 0; i < kGroupElements; ++i) gate[i] = Activation::of(gate[i]) * up[i];
  get_row(params.out).store(g, gate);
}

// Like gate_kernel, in place.
template <class Row, class Activation>
__global__ void __launch_bounds__(kMaxThreads)
    activation_kernel(const __grid_constant__ ActivationParams params) {
  ptx::launch_dependents();
  ptx::griddepcontrol_wait();
  const int g = static_cast<int>(blockIdx.y * blockDim.x + threadIdx.x);
  if (g >= num_element_groups(params.num_columns)) return;
  const Row row(params.x, blockIdx.x, params.num_columns, params.aligned);
  Group group;
  Row::convert(row.load(g), group);
#pragma unroll
  for (int i = 0; i < kGroupElements; ++i) group[i] = Activation::of(group[i]);
  row.store(g, group);
}

// Same grid as activation_kernel.
template <class Row>
__global__ void __launch_bounds__(kMaxThreads) xielu_kernel(const __grid_constant__ XieluParams params) {
  ptx::launch_dependents();
  const float a = softplus(*params.alpha_p), b = kXieluBeta + softplus(*params.alpha_n);
  ptx::griddepcontrol_wait();
  const int g = static_cast<int>(blockIdx.y * blockDim.x + threadIdx.x);
  if (g >= num_element_groups(params.num_columns)) return;
  const Row row(params.x, blockIdx.x, params.num_columns, params.aligned);
  Group group;
  Row::convert(row.load(g), group);
#pragma unroll
  for (int i = 0; i < kGroupElements; ++i) group[i] = xielu_of(group[i], a, b);
  row.store(g, group);
}

// Same grid as gate_kernel.
template <class Row>
__global__ void __launch_bounds__(kMaxThreads) scale_kernel(const __grid_constant__ ScaleParams params) {
  ptx::launch_dependents();
  ptx::griddepcontrol_wait();
  const int g = static_cast<int>(blockIdx.y * blockDim.x + threadIdx.x);
  if (g >= num_element_groups(params.num_columns)) return;
  const Row row(params.x, blockIdx.x, params.num_columns, params.aligned);
  float factor = params.factor;
  if (params.device_factor != nullptr) factor *= *params.device_factor;
  if (params.gates.data != nullptr) {
    const float gate =
        load_element(params.gates.data, row_begin(params.gates, blockIdx.x), params.gates.element);
    factor *= params.softplus ? softplus(gate) : Sigmoid::of(gate);
  }
  Group group;
  Row::convert(row.load(g), group);
#pragma unroll
  for (int i = 0; i < kGroupElements; ++i) group[i] *= factor;
  row.store(g, group);
}

struct SoftCap {
  static __device__ float of(float x, float cap) { return cap * tanhf(x / cap); }
};
// NaN stays NaN.
struct Clamp {
  static __device__ float of(float x, float limit) { return x < -limit ? -limit : x > limit ? limit : x; }
};

// Same grid as gate_kernel.
template <class Limit>
__global__ void __launch_bounds__(kMaxThreads) limit_kernel(const __grid_constant__ LimitParams params) {
  ptx::launch_dependents();
  ptx::griddepcontrol_wait();
  const int g = static_cast<int>(blockIdx.y * blockDim.x + threadIdx.x);
  if (g >= num_element_groups(params.num_columns)) return;
  const UnalignedRow row(params.x, blockIdx.x, params.num_columns, params.aligned);
  Group group;
  UnalignedRow::convert(row.load(g), group);
#pragma unroll
  for (int i = 0; i < kGroupElements; ++i) group[i] = Limit::of(group[i], params.limit);
  row.store(g, group);
}

// Grid of (row, part of the row) with parts of equal size.
struct RowParts {
  RowParts(int num_rows, int num_columns) {
    const int num_groups = num_element_groups(num_columns), num_parts = ceil_div(num_groups, kMaxThreads);
    if (num_groups > 0) num_threads = num_threads_for(ceil_div(num_groups, num_parts), kMaxThreads);
    grid = dim3(static_cast<unsigned>(num_rows), static_cast<unsigned>(num_parts));
  }
  bool empty() const { return grid.x == 0 || grid.y == 0; }

  dim3 grid;
  int num_threads = 0;
};

template <class Activation>
void launch_gate(GateParams params, void* stream, const char* what) {
  RowParts parts(params.num_rows, params.num_columns);
  if (parts.empty()) return;
  // Many short rows, such as heads: starting a CTA of one warp takes longer than its work.
  constexpr int kManyRows = 4096;
  if (params.num_rows >= kManyRows && parts.grid.y == 1)
    params.rows_per_cta = kMaxThreads / parts.num_threads;
  parts.grid.x = static_cast<unsigned>(ceil_div(params.num_rows, params.rows_per_cta));
  launch_for_rows(
      params.aligned, {params.gate.element, params.up.element, params.out.element}, [&]<class Row> {
        launch_dependent<GateParams>(gate_kernel<Row, Activation>, parts.grid,
                                     parts.num_threads * params.rows_per_cta, 0, stream, params, what);
      });
}

template <class Activation>
void launch_activation(const ActivationParams& params, void* stream, const char* what) {
  const RowParts parts(params.num_rows, params.num_columns);
  if (parts.empty()) return;
  launch_for_rows(params.aligned, {params.x.element}, [&]<class Row> {
    launch_dependent<ActivationParams>(activation_kernel<Row, Activation>, parts.grid, parts.num_threads, 0,
                                       stream, params, what);
  });
}

template <class Limit>
void launch_limit(const LimitParams& params, void* stream, const char* what) {
  const RowParts parts(params.num_rows, params.num_columns);
  if (parts.empty()) return;
  launch_dependent<LimitParams>(limit_kernel<Limit>, parts.grid, parts.num_threads, 0, stream, params, what);
}

template <class Params>
void launch_copy(const Params& params, void* stream) {
  if (params.num_rows == 0) return;
  launch_dependent<Params>(copy_rows_kernel<Params>, static_cast<unsigned>(params.num_rows),
                           num_threads_for(num_element_groups(params.num_columns), kMaxThreads), 0, stream,
                           params, "copy of rows");
}

}  // namespace

void launch_copy_rows(const CopyRowsParams& params, void* stream) { launch_copy(params, stream); }

void launch_scaled_rows(const ScaledRowsParams& params, void* stream) { launch_copy(params, stream); }

void launch_rms_norm(const NormParams& params, void* stream) {
  if (params.num_rows == 0) return;
  const Element residual = params.residual.data == nullptr ? params.x.element : params.residual.element;
  // Aligned rows have instances for weights of their dtype and for float32.
  const bool f32_weight = params.weight.element == Element::kF32;
  const Element weight = f32_weight ? params.x.element : params.weight.element;
  launch_for_rows(params.aligned, {params.x.element, residual, params.out.element, weight}, [&]<class Row> {
    auto* kernel = rms_norm_kernel<Row, Row>;
    if constexpr (!std::is_same_v<Row, UnalignedRow>)
      if (f32_weight) kernel = rms_norm_kernel<Row, AlignedF32Row>;
    launch_dependent<NormParams>(
        kernel, static_cast<unsigned>(params.num_rows),
        num_threads_for(ceil_div(num_element_groups(params.dim), kKeptGroups), kMaxNormThreads), 0, stream,
        params, "rms_norm");
  });
}

void launch_silu_mul(const GateParams& params, void* stream) {
  launch_gate<Silu>(params, stream, "silu_mul");
}

void launch_gelu_mul(const GateParams& params, void* stream) {
  launch_gate<Gelu>(params, stream, "gelu_mul");
}

void launch_gelu_tanh_mul(const GateParams& params, void* stream) {
  launch_gate<GeluTanh>(params, stream, "gelu_tanh_mul");
}

void launch_sigmoid_mul(const GateParams& params, void* stream) {
  launch_gate<Sigmoid>(params, stream, "sigmoid_mul");
}

void launch_softplus_mul(const GateParams& params, void* stream) {
  launch_gate<Softplus>(params, stream, "softplus_mul");
}

void launch_multiply(const GateParams& params, void* stream) {
  launch_gate<Identity>(params, stream, "multiply");
}

void launch_relu(const ActivationParams& params, void* stream) {
  launch_activation<Relu>(params, stream, "relu");
}

void launch_relu2(const ActivationParams& params, void* stream) {
  launch_activation<Relu2>(params, stream, "relu2");
}

void launch_silu(const ActivationParams& params, void* stream) {
  launch_activation<Silu>(params, stream, "silu");
}

void launch_xielu(const XieluParams& params, void* stream) {
  const RowParts parts(params.num_rows, params.num_columns);
  if (parts.empty()) return;
  launch_for_rows(params.aligned, {params.x.element}, [&]<class Row> {
    launch_dependent<XieluParams>(xielu_kernel<Row>, parts.grid, parts.num_threads, 0, stream, params,
                                  "xielu");
  });
}

void launch_scale(const ScaleParams& params, void* stream) {
  const RowParts parts(params.num_rows, params.num_columns);
  if (parts.empty()) return;
  launch_for_rows(params.aligned, {params.x.element}, [&]<class Row> {
    launch_dependent<ScaleParams>(scale_kernel<Row>, parts.grid, parts.num_threads, 0, stream, params,
                                  "scale");
  });
}

void launch_gelu(const ActivationParams& params, void* stream) {
  launch_activation<Gelu>(params, stream, "gelu");
}

void launch_gelu_tanh(const ActivationParams& params, void* stream) {
  launch_activation<GeluTanh>(params, stream, "gelu_tanh");
}

void launch_soft_cap(const LimitParams& params, void* stream) {
  launch_limit<SoftCap>(params, stream, "soft_cap");
}

void launch_clamp(const LimitParams& params, void* stream) { launch_limit<Clamp>(params, stream, "clamp"); }

}  // namespace attend::kernels::cuda
