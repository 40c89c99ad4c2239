// Integer math.
#pragma once

#include <concepts>

namespace attend {

// Returns value / divisor rounded up, for divisor > 0. Never overflows.
template <std::integral T>
constexpr T ceil_div(T value, T divisor) {
  return static_cast<T>(value / divisor + (value % divisor > 0 ? 1 : 0));
}

// Returns value rounded up to a multiple of `multiple`.
template <std::integral T>
constexpr T round_up(T value, T multiple) {
  return static_cast<T>(ceil_div(value, multiple) * multiple);
}

template <std::integral T>
constexpr bool is_power_of_two(T value) {
  return value > 0 && (value & (value - 1)) == 0;
}

}  // namespace attend
