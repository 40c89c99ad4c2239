// What linear() promises on the CPU beyond the values: a row's bits depend on nothing but the row.
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "attend/base/parallel.h"
#include "attend/kernels/cpu/linear.h"
#include "attend/kernels/cpu/linear_kernel.h"
#include "tests/kernels/dense/test_tensor.h"

namespace attend::kernels {
namespace {

using cpu::Isa;
using testing_support::kWeightTypes;
using testing_support::TestTensor;

// Bits of row `row` of a product with `num_rows` rows, when the other rows are NaN.
std::vector<double> row_among_others(const TestTensor& x, const TestTensor& weight, int64_t row,
                                     int64_t num_rows, Isa isa) {
  const int64_t num_outs = weight.view().shape[0], in_features = weight.view().shape[1];
  TestTensor mine({num_rows, in_features}, DType::kF32), out({num_rows, num_outs}, DType::kF32);
  mine.fill(std::numeric_limits<float>::quiet_NaN());
  for (int64_t i = 0; i < in_features; ++i) mine.set(row * in_features + i, static_cast<float>(x.at(i)));
  cpu::linear({.x = mine, .weight = weight, .bias = {}, .out = out}, isa);
  std::vector<double> result;
  for (int64_t o = 0; o < num_outs; ++o) result.push_back(out.at(row * num_outs + o));
  return result;
}

TEST(LinearBits, OfAFewRowsDependNeitherOnOtherRowsNorOnTheirNumber) {
  const TestTensor x = TestTensor::random({1, 333}, DType::kF32, 1);
  for (const Isa isa : cpu::available_isas())
    for (const DType dtype : kWeightTypes) {
      const TestTensor weight = TestTensor::random({101, 333}, dtype, 2);
      const std::vector<double> alone = row_among_others(x, weight, 0, 1, isa);
      for (int64_t num_rows = 2; num_rows <= cpu::kFewRows; ++num_rows)
        for (const int64_t row : {int64_t{0}, num_rows / 2, num_rows - 1})
          ASSERT_EQ(row_among_others(x, weight, row, num_rows, isa), alone)
              << isa << " " << dtype << " row " << row << " of " << num_rows;
    }
}

TEST(LinearBits, OfManyRowsDependNeitherOnOtherRowsNorOnTheirNumber) {
  const TestTensor x = TestTensor::random({1, 333}, DType::kF32, 1);
  for (const Isa isa : cpu::available_isas())
    for (const DType dtype : kWeightTypes) {
      const TestTensor weight = TestTensor::random({101, 333}, dtype, 2);
      const std::vector<double> first = row_among_others(x, weight, 0, 33, isa);
      for (const int64_t num_rows : {34, 39, 64, 65, 600})
        ASSERT_EQ(row_among_others(x, weight, num_rows - 1, num_rows, isa), first)
            << isa << " " << dtype << " last of " << num_rows;
    }
}

TEST(LinearBits, DoNotDependOnTheNumberOfThreads) {
  const int all_threads = num_threads();
  const TestTensor weight = TestTensor::random({700, 512}, DType::kBF16, 2);
  for (const int64_t num_rows : {2, 40}) {
    const TestTensor x = TestTensor::random({num_rows, 512}, DType::kF32, 1);
    std::vector<std::vector<double>> results;
    for (const int threads : {1, 2, 3, 7}) {
      set_num_threads(threads);
      TestTensor out({num_rows, 700}, DType::kF32);
      cpu::linear({.x = x, .weight = weight, .bias = {}, .out = out}, cpu::detect_isa());
      results.push_back(out.values());
    }
    set_num_threads(all_threads);
    for (const std::vector<double>& result : results) EXPECT_EQ(result, results[0]) << num_rows << " rows";
  }
}

}  // namespace
}  // namespace attend::kernels
