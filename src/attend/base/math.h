// Small integer maths.
#pragma once

#include <bit>
#include <concepts>

namespace attend {

template <std::integral T>
constexpr T ceil_div(T value, T divisor) {
  return (value + divisor - 1) / divisor;
}

template <std::integral T>
constexpr T round_up(T value, T multiple) {
  return ceil_div(value, multiple) * multiple;
}

template <std::integral T>
constexpr bool is_power_of_two(T value) {
  return value > 0 && (value & (value - 1)) == 0;
}

// log2 of a power of two.
template <std::unsigned_integral T>
constexpr int log2_exact(T value) {
  return std::countr_zero(value);
}

}  // namespace attend
