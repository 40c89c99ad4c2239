#include "attend/kernels/elementwise.h"

#include <string_view>

#include "attend/base/error.h"
#include "attend/kernels/check_plan.h"
#include "attend/kernels/check_view.h"
#include "attend/kernels/cpu/elementwise.h"

namespace attend::kernels {
namespace {

void require_matrix(std::string_view name, const TensorView& view, int64_t num_rows, int64_t num_columns) {
  require_shape(name, view, {num_rows, num_columns});
  require_cpu_activation(name, view);
}

void require_norm_weight(const TensorView& weight, int64_t dim) {
  require_shape("weight", weight, {dim});
  require_weight("weight", weight);
}

void require_angles(std::string_view name, const TensorView& view) {
  require_dtype(name, view, DType::kF32);
  require_unit_stride(name, view);
}

// Host arrays of indices are short beside the rows that they choose, so they are read here.
void require_indices(std::string_view name, View<const int32_t> indices, int64_t count, int64_t end,
                     std::string_view rows) {
  require(indices.size() == static_cast<size_t>(count), name, ": ", indices.size(), " entries for ", count,
          " rows of out");
  for (size_t i = 0; i < indices.size(); ++i)
    require(indices[i] >= 0 && indices[i] < end, name, "[", i, "] = ", indices[i], ": ", rows, " has ", end,
            " rows");
}

}  // namespace

void embedding(View<const int32_t> ids, const TensorView& table, const TensorView& out, Stream& stream) {
  require_cpu("embedding", stream);
  require_rank("table", table, 2);
  require_weight("table", table);
  require_matrix("out", out, static_cast<int64_t>(ids.size()), table.shape[1]);
  require_indices("ids", ids, out.shape[0], table.shape[0], "table");
  cpu::embedding(ids, table, out, cpu::detect_isa());
}

void rms_norm(const TensorView& x, const TensorView& weight, float eps, const TensorView& out, Stream& stream,
              float weight_offset) {
  require_cpu("rms_norm", stream);
  require(!x.empty(), "x: not given");
  require(x.rank == 2 || x.rank == 3, "x ", x, ": expected 2 or 3 dimensions");
  if (x.rank == 2)
    require_shape("out", out, {x.shape[0], x.shape[1]});
  else
    require_shape("out", out, {x.shape[0], x.shape[1], x.shape[2]});
  require_cpu_activation("x", x);
  require_cpu_activation("out", out);
  require_norm_weight(weight, x.shape[static_cast<size_t>(x.rank) - 1]);
  cpu::rms_norm(x, weight, eps, out, weight_offset, cpu::detect_isa());
}

void add_rms_norm(const TensorView& x, const TensorView& residual, const TensorView& weight, float eps,
                  const TensorView& out, Stream& stream) {
  require_cpu("add_rms_norm", stream);
  require_rank("x", x, 2);
  require_cpu_activation("x", x);
  require_matrix("residual", residual, x.shape[0], x.shape[1]);
  require_matrix("out", out, x.shape[0], x.shape[1]);
  require_norm_weight(weight, x.shape[1]);
  cpu::add_rms_norm(x, residual, weight, eps, out, cpu::detect_isa());
}

void silu_mul(const TensorView& gate_up, const TensorView& out, Stream& stream) {
  require_cpu("silu_mul", stream);
  require_rank("out", out, 2);
  require_cpu_activation("out", out);
  require_matrix("gate_up", gate_up, out.shape[0], 2 * out.shape[1]);
  cpu::silu_mul(gate_up, out, cpu::detect_isa());
}

void rope(const TensorView& x, View<const int32_t> positions, const TensorView& cos, const TensorView& sin,
          Stream& stream) {
  require_cpu("rope", stream);
  require_rank("x", x, 3);
  require_cpu_activation("x", x);
  require_rank("cos", cos, 2);
  require_shape("sin", sin, {cos.shape[0], cos.shape[1]});
  require_angles("cos", cos);
  require_angles("sin", sin);
  require(2 * cos.shape[1] <= x.shape[2], "cos ", cos, ": rotates ", 2 * cos.shape[1],
          " elements, the heads of x have ", x.shape[2]);
  require_indices("positions", positions, x.shape[0], cos.shape[0], "cos");
  cpu::rope(x, positions, cos, sin, cpu::detect_isa());
}

void gather_rows(const TensorView& x, View<const int32_t> rows, const TensorView& out, Stream& stream) {
  require_cpu("gather_rows", stream);
  require_rank("x", x, 2);
  require_cpu_activation("x", x);
  require_matrix("out", out, static_cast<int64_t>(rows.size()), x.shape[1]);
  require_indices("rows", rows, out.shape[0], x.shape[0], "x");
  cpu::gather_rows(x, rows, out, cpu::detect_isa());
}

}  // namespace attend::kernels
