// linear() with x rounded to bfloat16: results of CPUs with bf16 pair instructions.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "attend/base/parallel.h"
#include "attend/kernels/gemm/cpu/linear.h"
#include "tests/kernels/dense/linear_with_workspace.h"
#include "tests/kernels/dense/test_tensor.h"

namespace attend::kernels {
namespace {

using cpu::Isa;
using testing_support::linear_with_workspace;
using testing_support::TestTensor;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

class RoundedLinear : public testing::Test {
 protected:
  void SetUp() override {
    if (cpu::detect_isa() < Isa::kAvx512Bf16) GTEST_SKIP() << "this CPU does not multiply bfloat16";
  }
};

// x in float32, and x rounded to bfloat16.
struct Rows {
  TestTensor x, rounded;
};

Rows random_rows(int64_t num_rows, int64_t in_features) {
  Rows rows{TestTensor::random({num_rows, in_features}, DType::kF32, 1),
            TestTensor({num_rows, in_features}, DType::kF32)};
  for (int64_t i = 0; i < rows.x.size(); ++i)
    rows.rounded.set(i, static_cast<float>(BF16(static_cast<float>(rows.x.at(i)))));
  return rows;
}

TestTensor multiply(const TensorView& x, const TensorView& weight, const TensorView& bias = {},
                    bool batch_invariant = false, bool rounds_x = true) {
  TestTensor out({x.shape[0], weight.shape[0]}, DType::kF32);
  out.fill(std::numeric_limits<float>::quiet_NaN());
  linear_with_workspace({.x = x,
                         .weight = weight,
                         .bias = bias,
                         .out = out,
                         .batch_invariant = batch_invariant,
                         .rounds_x = rounds_x},
                        Isa::kAvx512Bf16);
  return out;
}

// Relative to rounded x, the only error is that of float32 sums.
void expect_matches_float64(int64_t num_rows, int64_t num_outs, int64_t in_features) {
  SCOPED_TRACE(testing::Message() << num_rows << " x " << in_features << " -> " << num_outs);
  const Rows rows = random_rows(num_rows, in_features);
  const TestTensor weight = TestTensor::random({num_outs, in_features}, DType::kBF16, 2);
  const TestTensor bias = TestTensor::random({num_outs}, DType::kBF16, 3);
  const TestTensor out = multiply(rows.x, weight, bias);
  EXPECT_EQ(out.values(), multiply(rows.rounded, weight, bias).values()) << "x is rounded to the nearest";
  const std::vector<double> xs = rows.rounded.values(), weights = weight.values();
  for (int64_t row = 0; row < num_rows; ++row)
    for (int64_t o = 0; o < num_outs; ++o) {
      double value = bias.at(o), magnitude = std::abs(bias.at(o));
      for (int64_t i = 0; i < in_features; ++i) {
        const double product = xs[static_cast<size_t>(row * in_features + i)] *
                               weights[static_cast<size_t>(o * in_features + i)];
        value += product;
        magnitude += std::abs(product);
      }
      ASSERT_NEAR(out.at(row * num_outs + o), value, 3e-7 * magnitude) << "row " << row << ", output " << o;
    }
}

TEST_F(RoundedLinear, MatchesFloat64ForEveryNumberOfRows) {
  for (int64_t num_rows = 1; num_rows <= 40; ++num_rows) {
    expect_matches_float64(num_rows, 27, 45);
    expect_matches_float64(num_rows, 53, 4100);
  }
  expect_matches_float64(519, 40, 96);
}

TEST_F(RoundedLinear, MatchesFloat64ForEveryRemainderOfOutputFeatures) {
  for (int64_t num_outs = 1; num_outs <= 70; ++num_outs) {
    expect_matches_float64(3, num_outs, 19);
    expect_matches_float64(14, num_outs, 2400);
  }
}

TEST_F(RoundedLinear, MatchesFloat64ForEveryRemainderOfInputFeatures) {
  for (const int64_t in_features : {1,  2,  3,   4,   5,   7,   15,  16,  17,  23,  31,   32,  33,
                                    63, 65, 127, 351, 352, 353, 383, 384, 385, 416, 1030, 3073})
    for (const int64_t num_rows : {1, 2, 5, 8, 100}) expect_matches_float64(num_rows, 35, in_features);
}

TEST_F(RoundedLinear, MatchesFloat64WhenThreadsShareTheWork) {
  expect_matches_float64(1, 1027, 515);
  expect_matches_float64(6, 500, 1024);
  expect_matches_float64(70, 331, 600);
}

TEST_F(RoundedLinear, RoundsOnlyForBfloat16WeightsOnRequest) {
  const Rows rows = random_rows(20, 2000);
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    const TestTensor weight = TestTensor::random({48, 2000}, dtype, 2);
    const TestTensor exact = multiply(rows.x, weight, {}, false, false);
    EXPECT_EQ(multiply(rows.x, weight).values() == exact.values(), dtype != DType::kBF16) << dtype;
    // Rounding x changes results far more than another summation order.
    const TestTensor rounded = multiply(rows.rounded, weight, {}, false, false);
    double rounding_error = 0;
    for (int64_t i = 0; i < exact.size(); ++i)
      rounding_error = std::max(rounding_error, std::abs(exact.at(i) - rounded.at(i)));
    EXPECT_GT(rounding_error, 1e-3) << dtype;
  }
}

// Bits of row `row` of num_rows, where the other rows are NaN.
std::vector<double> row_in_batch(const TestTensor& x, const TestTensor& weight, int64_t row, int64_t num_rows,
                                 bool batch_invariant) {
  const int64_t num_outs = weight.view().shape[0], in_features = weight.view().shape[1];
  TestTensor mine({num_rows, in_features}, DType::kF32);
  mine.fill(std::numeric_limits<float>::quiet_NaN());
  for (int64_t i = 0; i < in_features; ++i) mine.set(row * in_features + i, static_cast<float>(x.at(i)));
  const TestTensor out = multiply(mine, weight, {}, batch_invariant);
  std::vector<double> result;
  for (int64_t o = 0; o < num_outs; ++o) result.push_back(out.at(row * num_outs + o));
  return result;
}

TEST_F(RoundedLinear, BitsOfARowDependOnlyOnThatRowOnRequest) {
  const TestTensor x = TestTensor::random({1, 4133}, DType::kF32, 1);
  const TestTensor weight = TestTensor::random({101, 4133}, DType::kBF16, 2);
  const std::vector<double> alone = row_in_batch(x, weight, 0, 1, true);
  for (const int64_t num_rows : {2, 3, 4, 5, 6, 7, 12, 13, 24, 25, 33, 64, 100, 520})
    for (const int64_t row : {int64_t{0}, num_rows / 2, num_rows - 1})
      ASSERT_EQ(row_in_batch(x, weight, row, num_rows, true), alone) << "row " << row << " of " << num_rows;
}

TEST_F(RoundedLinear, BitsOfManyRowsDoNotDependOnOtherRowsOrTheirNumber) {
  const TestTensor x = TestTensor::random({1, 4133}, DType::kF32, 1);
  const TestTensor weight = TestTensor::random({101, 4133}, DType::kBF16, 2);
  const std::vector<double> first = row_in_batch(x, weight, 0, 8, false);
  for (const int64_t num_rows : {9, 12, 13, 23, 64, 513, 600})
    ASSERT_EQ(row_in_batch(x, weight, num_rows - 1, num_rows, false), first) << "last of " << num_rows;
}

TEST_F(RoundedLinear, BitsDoNotDependOnTheNumberOfThreads) {
  const int all_threads = num_threads();
  const TestTensor weight = TestTensor::random({700, 1512}, DType::kBF16, 2);
  for (const int64_t num_rows : {2, 40}) {
    const TestTensor x = TestTensor::random({num_rows, 1512}, DType::kF32, 1);
    std::vector<std::vector<double>> results;
    for (const int threads : {1, 2, 3, 7}) {
      set_num_threads(threads);
      results.push_back(multiply(x, weight).values());
    }
    set_num_threads(all_threads);
    for (const std::vector<double>& result : results) EXPECT_EQ(result, results[0]) << num_rows << " rows";
  }
}

TEST_F(RoundedLinear, KeepsInfinitiesAndNaNsInTheirRows) {
  for (const int64_t num_rows : {2, 20, 70})
    for (const int64_t in_features : {40, 4000}) {
      TestTensor x({num_rows, in_features}, DType::kF32), weight({17, in_features}, DType::kBF16);
      x.fill(1.0f);
      weight.fill(1.0f);
      x.set(5, kInfinity);
      x.set(in_features + 7, std::numeric_limits<float>::quiet_NaN());
      const TestTensor out = multiply(x, weight);
      for (int64_t o = 0; o < 17; ++o) {
        EXPECT_EQ(out.at(o), kInfinity) << num_rows;
        EXPECT_TRUE(std::isnan(out.at(17 + o))) << num_rows;
        for (int64_t row = 2; row < num_rows; ++row) EXPECT_EQ(out.at(row * 17 + o), in_features);
      }
    }
}

TEST_F(RoundedLinear, ReadsAndWritesRowsInPlaceOfAWiderTensor) {
  const TestTensor weight = TestTensor::random({35, 2100}, DType::kBF16, 2);
  for (const int64_t num_rows : {3, 40}) {
    const Rows rows = random_rows(num_rows, 2100);
    TestTensor wide_x({num_rows, 2200}, DType::kF32), wide_out({num_rows, 50}, DType::kF32);
    wide_out.fill(-1.0f);
    for (int64_t row = 0; row < num_rows; ++row)
      for (int64_t i = 0; i < 2100; ++i)
        wide_x.set(row * 2200 + 30 + i, static_cast<float>(rows.x.at(row * 2100 + i)));
    linear_with_workspace({.x = wide_x.view().slice(1, 30, 2130),
                           .weight = weight,
                           .bias = {},
                           .out = wide_out.view().slice(1, 7, 42),
                           .rounds_x = true},
                          Isa::kAvx512Bf16);
    const TestTensor expected = multiply(rows.x, weight);
    for (int64_t row = 0; row < num_rows; ++row)
      for (int64_t o = 0; o < 50; ++o) {
        const bool inside = o >= 7 && o < 42;
        ASSERT_EQ(wide_out.at(row * 50 + o), inside ? expected.at(row * 35 + o - 7) : -1.0)
            << row << " " << o;
      }
  }
}

}  // namespace
}  // namespace attend::kernels
