// Guarantees of linear() on the CPU about bits: a row's bits depend only on the row.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "attend/base/parallel.h"
#include "attend/kernels/gemm/cpu/linear.h"
#include "attend/kernels/gemm/cpu/linear_tiles.h"
#include "attend/tensor/arena.h"
#include "tests/kernels/dense/linear_with_workspace.h"
#include "tests/kernels/dense/test_tensor.h"

namespace attend::kernels {
namespace {

using cpu::Isa;
using testing_support::kWeightTypes;
using testing_support::linear_with_workspace;
using testing_support::TestTensor;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Bits of row `row` of a product with `num_rows` rows, where the other rows are NaN.
std::vector<double> row_in_batch(const TestTensor& x, const TestTensor& weight, int64_t row, int64_t num_rows,
                                 Isa isa, bool batch_invariant) {
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

TEST(LinearBits, BitsOfARowDependOnlyOnThatRowOnRequest) {
  const TestTensor x = TestTensor::random({1, 333}, DType::kF32, 1);
  for (const Isa isa : cpu::available_isas())
    for (const DType dtype : kWeightTypes) {
      const TestTensor weight = TestTensor::random({101, 333}, dtype, 2);
      const std::vector<double> single = row_in_batch(x, weight, 0, 1, isa, true);
      for (const int64_t num_rows : {2, 3, 4, 5, 6, 7, 15, 16, 17, 31, 32, 33, 34, 64, 65, 70, 256, 257, 300})
        for (const int64_t row : {int64_t{0}, num_rows / 2, num_rows - 1})
          ASSERT_EQ(row_in_batch(x, weight, row, num_rows, isa, true), single)
              << isa << " " << dtype << " row " << row << " of " << num_rows;
    }
}

TEST(LinearBits, BitsOfFewRowsDoNotDependOnOtherRowsOrTheirNumber) {
  const TestTensor x = TestTensor::random({1, 333}, DType::kF32, 1);
  for (const Isa isa : cpu::available_isas())
    for (const DType dtype : kWeightTypes) {
      const TestTensor weight = TestTensor::random({101, 333}, dtype, 2);
      const std::vector<double> single = row_in_batch(x, weight, 0, 1, isa, false);
      for (int64_t num_rows = 2; num_rows < cpu::tile_min_rows(dtype); ++num_rows)
        for (const int64_t row : {int64_t{0}, num_rows - 1})
          ASSERT_EQ(row_in_batch(x, weight, row, num_rows, isa, false), single)
              << isa << " " << dtype << " row " << row << " of " << num_rows;
    }
}

// Matrix tiles split each value into parts. Infinities and NaN cannot be split, but must produce the results
// of other kernels.
TEST(LinearBits, KeepsInfinitiesAndNaNsInTheirRows) {
  for (const Isa isa : cpu::available_isas())
    for (const DType dtype : kWeightTypes)
      for (const int64_t num_rows : {2, 20, 40, 70}) {
        TestTensor x({num_rows, 40}, DType::kF32), weight({3, 40}, dtype), out({num_rows, 3}, DType::kF32);
        x.fill(1.0f);
        weight.fill(1.0f);
        x.set(5, kInfinity);
        x.set(40 + 7, std::numeric_limits<float>::quiet_NaN());
        linear_with_workspace({.x = x, .weight = weight, .bias = {}, .out = out}, isa);
        for (int64_t o = 0; o < 3; ++o) {
          EXPECT_EQ(out.at(o), kInfinity) << isa << " " << dtype << " " << num_rows;
          EXPECT_TRUE(std::isnan(out.at(3 + o))) << isa << " " << dtype << " " << num_rows;
          for (int64_t row = 2; row < num_rows; ++row)
            EXPECT_EQ(out.at(row * 3 + o), 40.0) << isa << " " << dtype;
        }
      }
}

TEST(LinearBits, KeepsInfinitiesAndNaNsInTheirOutputFeatures) {
  for (const Isa isa : cpu::available_isas())
    for (const DType dtype : kWeightTypes)
      for (const int64_t num_rows : {2, 20, 40, 70}) {
        TestTensor x({num_rows, 40}, DType::kF32), weight({4, 40}, dtype), out({num_rows, 4}, DType::kF32);
        x.fill(1.0f);
        weight.fill(1.0f);
        weight.set(5, kInfinity);
        weight.set(40 + 7, -kInfinity);
        weight.set(2 * 40 + 9, std::numeric_limits<float>::quiet_NaN());
        linear_with_workspace({.x = x, .weight = weight, .bias = {}, .out = out}, isa);
        for (int64_t row = 0; row < num_rows; ++row) {
          EXPECT_EQ(out.at(row * 4), kInfinity) << isa << " " << dtype << " " << num_rows;
          EXPECT_EQ(out.at(row * 4 + 1), -kInfinity) << isa << " " << dtype << " " << num_rows;
          EXPECT_TRUE(std::isnan(out.at(row * 4 + 2))) << isa << " " << dtype << " " << num_rows;
          EXPECT_EQ(out.at(row * 4 + 3), 40.0) << isa << " " << dtype << " " << num_rows;
        }
      }
}

// Every f16 value, including subnormals and the largest, equals the sum of its parts.
TEST(LinearBits, MultipliesEveryFloat16WeightExactly) {
  constexpr int64_t kOuts = 0x8000, kRows = 20;
  TestTensor x({kRows, 1}, DType::kF32), weight({kOuts, 1}, DType::kF16), out({kRows, kOuts}, DType::kF32);
  for (int64_t row = 0; row < kRows; ++row) x.set(row, row % 2 == 0 ? 1.0f : -0x1p-100f);
  for (int64_t bits = 0; bits < kOuts; ++bits)
    weight.set(bits, static_cast<float>(F16::from_bits(static_cast<uint16_t>(bits))));
  for (const Isa isa : cpu::available_isas()) {
    linear_with_workspace({.x = x, .weight = weight, .bias = {}, .out = out}, isa);
    for (int64_t row = 0; row < kRows; ++row)
      for (int64_t o = 0; o < kOuts; ++o)
        if (const double expected = weight.at(o) * x.at(row); std::isnan(expected))
          ASSERT_TRUE(std::isnan(out.at(row * kOuts + o))) << isa << " bits " << o;
        else
          ASSERT_EQ(out.at(row * kOuts + o), expected) << isa << " bits " << o << " row " << row;
  }
}

// A single product per output, so that a lost part is visible.
TEST(LinearBits, KeepsEveryBitOfTheLargestAndTheLongestValues) {
  const float largest = std::numeric_limits<float>::max();
  const std::vector<float> values = {largest,         -largest,  0x1.fffffep+0f, -0x1.010101p-20f,
                                     0x1.fefefep+60f, 0x1p-120f, 0x1.000002p+0f, 0.1f};
  constexpr int64_t kRows = 20;
  TestTensor x({kRows, 1}, DType::kF32);
  for (int64_t row = 0; row < kRows; ++row) x.set(row, values[static_cast<size_t>(row) % values.size()]);
  for (const Isa isa : cpu::available_isas())
    for (const DType dtype : kWeightTypes) {
      TestTensor weight({2, 1}, dtype), out({kRows, 2}, DType::kF32);
      weight.set(0, 1.0f);
      weight.set(1, -0.75f);
      linear_with_workspace({.x = x, .weight = weight, .bias = {}, .out = out}, isa);
      for (int64_t row = 0; row < kRows; ++row) {
        EXPECT_EQ(out.at(row * 2), x.at(row)) << isa << " " << dtype;
        EXPECT_NEAR(out.at(row * 2 + 1), -0.75 * x.at(row), 0x1p-23 * std::abs(x.at(row)))
            << isa << " " << dtype;
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

TEST(LinearBits, GatedLinearUsesTheSameKernelsAsLinear) {
  constexpr int64_t kRows = 40, kDim = 64;
  const TestTensor x = TestTensor::random({kRows, kDim}, DType::kF32, 1);
  const TestTensor weight = TestTensor::random({2 * kDim, kDim}, DType::kBF16, 2);
  TestTensor product({kRows, 2 * kDim}, DType::kF32), gate_up({kRows, 2 * kDim}, DType::kF32),
      out({kRows, kDim}, DType::kF32);
  const size_t num_bytes = linear_workspace_bytes(kRows, kDim, {});
  Arena arena(num_bytes + 64);
  const Tensor buffer = arena.allocate({static_cast<int64_t>(num_bytes)}, DType::kU8);
  Stream stream;
  gated_linear({.x = x,
                .weight = weight,
                .bias = {},
                .gate_up = gate_up,
                .out = out,
                .workspace = {static_cast<std::byte*>(buffer.view().data), num_bytes}},
               stream);
  linear_with_workspace({.x = x, .weight = weight, .bias = {}, .out = product}, cpu::detect_isa());
  EXPECT_EQ(gate_up.values(), product.values());
}

TEST(LinearBits, BitsOfManyRowsDoNotDependOnOtherRowsOrTheirNumber) {
  const TestTensor x = TestTensor::random({1, 333}, DType::kF32, 1);
  for (const Isa isa : cpu::available_isas())
    for (const DType dtype : kWeightTypes) {
      const TestTensor weight = TestTensor::random({101, 333}, dtype, 2);
      const std::vector<double> first = row_in_batch(x, weight, 0, 33, isa, false);
      for (const int64_t num_rows : {34, 39, 64, 65, 600})
        ASSERT_EQ(row_in_batch(x, weight, num_rows - 1, num_rows, isa, false), first)
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
