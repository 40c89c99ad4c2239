// What linear() promises on the CPU beyond the values: a row's bits depend on nothing but the row.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "attend/base/parallel.h"
#include "attend/kernels/cpu/linear.h"
#include "attend/kernels/cpu/linear_tiles.h"
#include "tests/kernels/dense/linear_with_workspace.h"
#include "tests/kernels/dense/test_tensor.h"

namespace attend::kernels {
namespace {

using cpu::Isa;
using testing_support::kWeightTypes;
using testing_support::linear_with_workspace;
using testing_support::TestTensor;

// Bits of row `row` of a product with `num_rows` rows, when the other rows are NaN.
std::vector<double> row_among_others(const TestTensor& x, const TestTensor& weight, int64_t row,
                                     int64_t num_rows, Isa isa, bool batch_invariant) {
  const int64_t num_outs = weight.view().shape[0], in_features = weight.view().shape[1];
  TestTensor mine({num_rows, in_features}, DType::kF32), out({num_rows, num_outs}, DType::kF32);
  mine.fill(std::numeric_limits<float>::quiet_NaN());
  for (int64_t i = 0; i < in_features; ++i) mine.set(row * in_features + i, static_cast<float>(x.at(i)));
  linear_with_workspace(
      {.x = mine, .weight = weight, .bias = {}, .out = out, .batch_invariant = batch_invariant}, isa);
  std::vector<double> result;
  for (int64_t o = 0; o < num_outs; ++o) result.push_back(out.at(row * num_outs + o));
  return result;
}

TEST(LinearBits, ARowsBitsDependOnThatRowAloneWhenAsked) {
  const TestTensor x = TestTensor::random({1, 333}, DType::kF32, 1);
  for (const Isa isa : cpu::available_isas())
    for (const DType dtype : kWeightTypes) {
      const TestTensor weight = TestTensor::random({101, 333}, dtype, 2);
      const std::vector<double> alone = row_among_others(x, weight, 0, 1, isa, true);
      for (const int64_t num_rows : {2, 3, 4, 5, 6, 7, 15, 16, 17, 31, 32, 33, 34, 64, 65, 70, 256, 257, 300})
        for (const int64_t row : {int64_t{0}, num_rows / 2, num_rows - 1})
          ASSERT_EQ(row_among_others(x, weight, row, num_rows, isa, true), alone)
              << isa << " " << dtype << " row " << row << " of " << num_rows;
    }
}

TEST(LinearBits, AFewRowsBitsDependNeitherOnOtherRowsNorOnTheirNumber) {
  const TestTensor x = TestTensor::random({1, 333}, DType::kF32, 1);
  for (const Isa isa : cpu::available_isas())
    for (const DType dtype : kWeightTypes) {
      const TestTensor weight = TestTensor::random({101, 333}, dtype, 2);
      const std::vector<double> alone = row_among_others(x, weight, 0, 1, isa, false);
      for (int64_t num_rows = 2; num_rows < cpu::kTileMinRows; ++num_rows)
        for (const int64_t row : {int64_t{0}, num_rows - 1})
          ASSERT_EQ(row_among_others(x, weight, row, num_rows, isa, false), alone)
              << isa << " " << dtype << " row " << row << " of " << num_rows;
    }
}

// Matrix tiles split a float into parts; what has no parts must come out as other kernels have it.
TEST(LinearBits, KeepsInfinitiesAndNaNsInTheirRows) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const Isa isa : cpu::available_isas())
    for (const int64_t num_rows : {2, 20, 40}) {
      TestTensor x({num_rows, 40}, DType::kF32), weight({3, 40}, DType::kBF16),
          out({num_rows, 3}, DType::kF32);
      x.fill(1.0f);
      weight.fill(1.0f);
      x.set(5, infinity);
      x.set(40 + 7, std::numeric_limits<float>::quiet_NaN());
      linear_with_workspace({.x = x, .weight = weight, .bias = {}, .out = out}, isa);
      for (int64_t o = 0; o < 3; ++o) {
        EXPECT_EQ(out.at(o), infinity) << isa << " " << num_rows;
        EXPECT_TRUE(std::isnan(out.at(3 + o))) << isa << " " << num_rows;
        for (int64_t row = 2; row < num_rows; ++row) EXPECT_EQ(out.at(row * 3 + o), 40.0) << isa;
      }
    }
}

TEST(LinearBits, NeedsNoWorkspace) {
  const TestTensor x = TestTensor::random({40, 64}, DType::kF32, 1);
  const TestTensor weight = TestTensor::random({48, 64}, DType::kBF16, 2);
  TestTensor with({40, 48}, DType::kF32), without({40, 48}, DType::kF32);
  for (const Isa isa : cpu::available_isas()) {
    linear_with_workspace({.x = x, .weight = weight, .bias = {}, .out = with}, isa);
    cpu::linear({.x = x, .weight = weight, .bias = {}, .out = without}, isa);
    for (int64_t i = 0; i < with.size(); ++i) ASSERT_NEAR(with.at(i), without.at(i), 1e-4) << isa;
  }
}

TEST(LinearBits, ManyRowsBitsDependNeitherOnOtherRowsNorOnTheirNumber) {
  const TestTensor x = TestTensor::random({1, 333}, DType::kF32, 1);
  for (const Isa isa : cpu::available_isas())
    for (const DType dtype : kWeightTypes) {
      const TestTensor weight = TestTensor::random({101, 333}, dtype, 2);
      const std::vector<double> first = row_among_others(x, weight, 0, 33, isa, false);
      for (const int64_t num_rows : {34, 39, 64, 65, 600})
        ASSERT_EQ(row_among_others(x, weight, num_rows - 1, num_rows, isa, false), first)
            << isa << " " << dtype << " last of " << num_rows;
    }
}

TEST(LinearBits, BitsDoNotDependOnTheNumberOfThreads) {
  const int all_threads = num_threads();
  const TestTensor weight = TestTensor::random({700, 512}, DType::kBF16, 2);
  for (const int64_t num_rows : {2, 40}) {
    const TestTensor x = TestTensor::random({num_rows, 512}, DType::kF32, 1);
    std::vector<std::vector<double>> results;
    for (const int threads : {1, 2, 3, 7}) {
      set_num_threads(threads);
      TestTensor out({num_rows, 700}, DType::kF32);
      linear_with_workspace({.x = x, .weight = weight, .bias = {}, .out = out}, cpu::detect_isa());
      results.push_back(out.values());
    }
    set_num_threads(all_threads);
    for (const std::vector<double>& result : results) EXPECT_EQ(result, results[0]) << num_rows << " rows";
  }
}

}  // namespace
}  // namespace attend::kernels
