#include "tests/kernels/cpu/vector_math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace attend::kernels::cpu {
namespace {

VectorMath vector_math(Isa isa) {
  if constexpr (kX86Kernels) {
    if (isa >= Isa::kAvx512) return vector_math_avx512();
    if (isa == Isa::kAvx2) return vector_math_avx2();
  }
  return vector_math_portable();
}

// Returns n values from `first` to `last`.
std::vector<float> sweep(float first, float last, int n) {
  std::vector<float> values(static_cast<size_t>(n));
  for (int i = 0; i < n; ++i)
    values[static_cast<size_t>(i)] =
        first + (last - first) * static_cast<float>(i) / static_cast<float>(n - 1);
  return values;
}

TEST(VectorMath, ExpIsCorrectToTwoUlps) {
  for (Isa isa : available_isas()) {
    const std::vector<float> x = sweep(-87.0f, 0.0f, 1 << 20);
    std::vector<float> y = x;
    vector_math(isa).exp_nonpositive(y.data(), static_cast<int>(y.size()));
    double worst = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const double exact = std::exp(static_cast<double>(x[i]));
      worst = std::max(worst, std::abs(y[i] - exact) / exact);
    }
    EXPECT_LT(worst, 1.2e-7) << isa;
  }
}

TEST(VectorMath, ExpIsExactAtTheEndsOfItsRange) {
  for (Isa isa : available_isas()) {
    std::vector<float> x(16, 0.0f);
    x[1] = -0.0f;
    x[2] = -87.4f;
    x[3] = -1e30f;
    x[4] = -std::numeric_limits<float>::infinity();
    x[5] = std::numeric_limits<float>::quiet_NaN();
    vector_math(isa).exp_nonpositive(x.data(), 16);
    EXPECT_EQ(x[0], 1.0f) << isa;
    EXPECT_EQ(x[1], 1.0f) << isa;
    EXPECT_EQ(x[2], 0.0f) << isa;
    EXPECT_EQ(x[3], 0.0f) << isa;
    EXPECT_EQ(x[4], 0.0f) << isa;
    EXPECT_TRUE(std::isnan(x[5])) << isa;
  }
}

TEST(VectorMath, TanhIsCorrectToAFewUlps) {
  for (Isa isa : available_isas()) {
    const std::vector<float> x = sweep(-20.0f, 20.0f, 1 << 20);
    std::vector<float> y = x;
    vector_math(isa).tanh(y.data(), static_cast<int>(y.size()));
    double worst = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      if (x[i] == 0) continue;
      const double exact = std::tanh(static_cast<double>(x[i]));
      worst = std::max(worst, std::abs(y[i] - exact) / std::abs(exact));
    }
    EXPECT_LT(worst, 3e-7) << isa;
  }
}

}  // namespace
}  // namespace attend::kernels::cpu
