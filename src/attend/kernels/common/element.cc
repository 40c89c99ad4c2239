#include "attend/kernels/common/element.h"

namespace attend::kernels::reference {

double load(const TensorView& view, int64_t i) {
  double value = 0;
  const bool known = visit_float_dtype(view.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    value = static_cast<double>(static_cast<float>(static_cast<const T*>(view.data)[i]));
  });
  ensure(known, "reference: dtype ", view.dtype);
  return value;
}

std::vector<double> load_row(const TensorView& view, int64_t i, int64_t count) {
  std::vector<double> row(static_cast<size_t>(count));
  const bool known = visit_float_dtype(view.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* elements = static_cast<const T*>(view.data) + i;
    for (size_t d = 0; d < row.size(); ++d) row[d] = static_cast<double>(static_cast<float>(elements[d]));
  });
  ensure(known, "reference: dtype ", view.dtype);
  return row;
}

void store(const TensorView& view, int64_t i, double value) {
  const bool known = visit_float_dtype(view.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    static_cast<T*>(view.data)[i] = static_cast<T>(static_cast<float>(value));
  });
  ensure(known, "reference: dtype ", view.dtype);
}

}  // namespace attend::kernels::reference
