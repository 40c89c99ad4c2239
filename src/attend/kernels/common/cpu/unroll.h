// Loops with a constant index, so that arrays of vectors stay in registers.
#pragma once

#include <type_traits>
#include <utility>

namespace attend::kernels::cpu {
namespace {

template <int kIndex>
using Index = std::integral_constant<int, kIndex>;

// Calls fn(Index<0>{}), fn(Index<1>{}), ..., fn(Index<kCount - 1>{}).
template <int kCount, class Fn>
[[gnu::always_inline]] inline void unrolled(const Fn& fn) {
  [&fn]<int... kIndices>(std::integer_sequence<int, kIndices...>) __attribute__((always_inline)) {
    (fn(Index<kIndices>{}), ...);
  }
  (std::make_integer_sequence<int, kCount>{});
}

}  // namespace
}  // namespace attend::kernels::cpu
