// Values rounded to a float dtype.
#pragma once

#include "attend/tensor/dtype.h"

namespace attend::conformance {

inline float rounded(DType dtype, float value) {
  visit_float_dtype(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    value = static_cast<float>(static_cast<T>(value));
  });
  return value;
}

}  // namespace attend::conformance
