#include "attend/kernels/norm_rope/rows.h"

#include "attend/kernels/common/on_gpu.h"
#include "attend/kernels/norm_rope/check_rows.h"
#include "attend/kernels/norm_rope/cpu/elementwise.h"
#include "attend/kernels/norm_rope/cuda/elementwise.h"

namespace attend::kernels {
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
  require_cpu(stream, "add_embedding");
  check_embedding(ids, table, out, stream);
  cpu::add_embedding(ids, table, out, cpu::detect_isa());
}

void gather_rows(const TensorView& x, View<const int32_t> rows, const TensorView& out, Stream& stream) {
  require_rank("x", x, 2);
  require_activation_of(stream, "x", x);
  require_matrix("out", out, static_cast<int64_t>(rows.size()), x.shape[1], stream);
  require_indices(stream, "rows", rows, out.shape[0], x.shape[0], "x");
  if (const OnGpu gpu(stream); gpu) return cuda::gather_rows(x, rows, out, stream);
  cpu::gather_rows(x, rows, out, cpu::detect_isa());
}

}  // namespace attend::kernels
