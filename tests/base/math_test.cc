#include "attend/base/math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>

namespace attend {
namespace {

TEST(Math, CeilDivRoundsTheQuotientUp) {
  for (int value = -40; value <= 40; ++value)
    for (int divisor = 1; divisor <= 17; ++divisor)
      EXPECT_EQ(ceil_div(value, divisor), static_cast<int>(std::ceil(static_cast<double>(value) / divisor)))
          << value << " / " << divisor;
}

TEST(Math, CeilDivDoesNotOverflow) {
  constexpr int32_t kMax = std::numeric_limits<int32_t>::max();
  EXPECT_EQ(ceil_div(kMax, 2), kMax / 2 + 1);
  EXPECT_EQ(ceil_div(kMax, kMax), 1);
  constexpr uint64_t kMax64 = std::numeric_limits<uint64_t>::max();
  EXPECT_EQ(ceil_div(kMax64, uint64_t{2}), uint64_t{1} << 63);
}

TEST(Math, RoundUpReturnsTheSmallestMultipleNotBelow) {
  for (int value = 0; value <= 70; ++value)
    for (int multiple = 1; multiple <= 33; ++multiple) {
      const int rounded = round_up(value, multiple);
      EXPECT_EQ(rounded % multiple, 0);
      EXPECT_GE(rounded, value);
      EXPECT_LT(rounded - value, multiple);
    }
}

TEST(Math, PowersOfTwoHaveOneBit) {
  for (int value = -5; value <= 1025; ++value) {
    bool power = false;
    for (int shift = 0; shift <= 10; ++shift) power = power || value == 1 << shift;
    EXPECT_EQ(is_power_of_two(value), power) << value;
  }
}

}  // namespace
}  // namespace attend
