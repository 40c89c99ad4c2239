#include "attend/kernels/reference/element.h"

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

void store(const TensorView& view, int64_t i, double value) {
  const bool known = visit_float_dtype(view.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    static_cast<T*>(view.data)[i] = static_cast<T>(static_cast<float>(value));
  });
  ensure(known, "reference: dtype ", view.dtype);
}

}  // namespace attend::kernels::reference
