#include <gtest/gtest.h>

#if defined(__x86_64__)

#include <cmath>

#include "attend/kernels/common/cpu/fp8_table.h"

namespace attend::kernels::cpu {
namespace {

template <class T>
void expect_exact_table() {
  constexpr Fp8Table table = Fp8Table::of<T>();
  for (int bits = 0; bits < 128; ++bits) {
    const auto expected = static_cast<float>(T::from_bits(static_cast<uint8_t>(bits)));
    const auto looked_up =
        static_cast<float>(BF16::from_bits(static_cast<uint16_t>(table.low[bits] | table.high[bits] << 8)));
    if (std::isnan(expected))
      EXPECT_TRUE(std::isnan(looked_up)) << bits;
    else
      EXPECT_EQ(looked_up, expected) << bits;
  }
}

TEST(Fp8Table, ContainsEveryValueExactly) {
  expect_exact_table<F8E4M3>();
  expect_exact_table<F8E5M2>();
}

}  // namespace
}  // namespace attend::kernels::cpu

#endif
