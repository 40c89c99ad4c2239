#include "attend/kernels/linear.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "attend/base/parallel.h"
#include "attend/kernels/cpu/linear.h"
#include "attend/kernels/cpu/linear_kernel.h"
#include "tests/kernels/dense/test_tensor.h"
#include "tests/support/error_message.h"

namespace attend::kernels {
namespace {

using cpu::Isa;
using testing_support::error_message;
using testing_support::kWeightTypes;
using testing_support::TestTensor;

struct Shape {
  int64_t num_rows, num_outs, in_features;
};

std::ostream& operator<<(std::ostream& out, const Shape& shape) {
  return out << "{" << shape.num_rows << ", " << shape.num_outs << ", " << shape.in_features << "}";
}

static_assert(cpu::kFewRows == 32, "the tests of many rows have 33 and more");

// One dot product in float64, and the sum of the magnitudes of its terms, which rounding errors scale with.
struct Expected {
  double value = 0, magnitude = 0;
};

Expected expect_element(const std::vector<double>& x, const std::vector<double>& weight, int64_t row,
                        int64_t out, int64_t in_features) {
  Expected expected;
  for (int64_t i = 0; i < in_features; ++i) {
    const double product =
        x[static_cast<size_t>(row * in_features + i)] * weight[static_cast<size_t>(out * in_features + i)];
    expected.value += product;
    expected.magnitude += std::abs(product);
  }
  return expected;
}

// Rounding x or the products to 16 bits would be 100 times as far off.
constexpr double kTolerance = 3e-7;

void expect_matches_float64(const Shape& shape, DType dtype, Isa isa) {
  SCOPED_TRACE(testing::Message() << shape << " " << dtype << " " << isa);
  const TestTensor x = TestTensor::random({shape.num_rows, shape.in_features}, DType::kF32, 1);
  const TestTensor weight = TestTensor::random({shape.num_outs, shape.in_features}, dtype, 2);
  const TestTensor bias = TestTensor::random({shape.num_outs}, dtype, 3);
  TestTensor out({shape.num_rows, shape.num_outs}, DType::kF32);
  out.fill(std::numeric_limits<float>::quiet_NaN());
  cpu::linear({.x = x, .weight = weight, .bias = bias, .out = out}, isa);
  const std::vector<double> xs = x.values(), weights = weight.values();
  for (int64_t row = 0; row < shape.num_rows; ++row)
    for (int64_t o = 0; o < shape.num_outs; ++o) {
      const Expected expected = expect_element(xs, weights, row, o, shape.in_features);
      ASSERT_NEAR(out.at(row * shape.num_outs + o), expected.value + bias.at(o),
                  kTolerance * (expected.magnitude + std::abs(bias.at(o))))
          << "row " << row << ", output " << o;
    }
}

TEST(Linear, MatchesFloat64ForEveryNumberOfFewRows) {
  for (const Isa isa : cpu::available_isas())
    for (const DType dtype : kWeightTypes)
      for (int64_t num_rows = 1; num_rows <= cpu::kFewRows; ++num_rows)
        expect_matches_float64({num_rows, 27, 45}, dtype, isa);
}

TEST(Linear, MatchesFloat64ForManyRows) {
  for (const Isa isa : cpu::available_isas())
    for (const DType dtype : kWeightTypes)
      for (const int64_t num_rows : {33, 34, 35, 36, 37, 38, 39, 40, 41, 48, 67})
        expect_matches_float64({num_rows, 71, 150}, dtype, isa);
}

TEST(Linear, MatchesFloat64ForEveryRemainderOfOutputFeatures) {
  for (const Isa isa : cpu::available_isas())
    for (int64_t num_outs = 1; num_outs <= 66; ++num_outs) {
      expect_matches_float64({3, num_outs, 19}, DType::kBF16, isa);
      expect_matches_float64({33, num_outs, 19}, DType::kBF16, isa);
    }
}

TEST(Linear, MatchesFloat64ForEveryRemainderOfInputFeatures) {
  for (const Isa isa : cpu::available_isas())
    for (const DType dtype : kWeightTypes)
      for (const int64_t in_features : {1,  2,  3,  4,  5,  7,   8,   9,   11,  13,  15,  16,  17,  23,
                                        29, 31, 32, 33, 63, 127, 128, 129, 144, 255, 511, 512, 513, 1030}) {
        expect_matches_float64({2, 25, in_features}, dtype, isa);
        expect_matches_float64({34, 25, in_features}, dtype, isa);
      }
}

TEST(Linear, MatchesFloat64WhenThreadsShareTheWork) {
  for (const Isa isa : cpu::available_isas())
    for (const DType dtype : kWeightTypes) {
      expect_matches_float64({1, 1027, 515}, dtype, isa);
      expect_matches_float64({6, 500, 1024}, dtype, isa);
      expect_matches_float64({70, 331, 200}, dtype, isa);
    }
  expect_matches_float64({1025, 300, 24}, DType::kBF16, cpu::detect_isa());
}

TEST(Linear, WithoutBiasIsTheProductAlone) {
  const TestTensor x = TestTensor::random({2, 10}, DType::kF32, 1);
  const TestTensor weight = TestTensor::random({5, 10}, DType::kF32, 2);
  TestTensor with_zero({2, 5}, DType::kF32), without({2, 5}, DType::kF32);
  const TestTensor zero({5}, DType::kF32);
  for (const Isa isa : cpu::available_isas()) {
    cpu::linear({.x = x, .weight = weight, .bias = zero, .out = with_zero}, isa);
    cpu::linear({.x = x, .weight = weight, .bias = {}, .out = without}, isa);
    EXPECT_EQ(with_zero.values(), without.values()) << isa;
  }
}

TEST(Linear, TakesABiasOfAnotherTypeThanTheWeight) {
  const TestTensor x = TestTensor::random({2, 8}, DType::kF32, 1);
  const TestTensor weight = TestTensor::random({37, 8}, DType::kBF16, 2);
  for (const Isa isa : cpu::available_isas())
    for (const DType dtype : kWeightTypes) {
      const TestTensor bias = TestTensor::random({37}, dtype, 3);
      TestTensor product({2, 37}, DType::kF32), out({2, 37}, DType::kF32);
      cpu::linear({.x = x, .weight = weight, .bias = {}, .out = product}, isa);
      cpu::linear({.x = x, .weight = weight, .bias = bias, .out = out}, isa);
      for (int64_t i = 0; i < out.size(); ++i)
        ASSERT_EQ(static_cast<float>(out.at(i)),
                  static_cast<float>(product.at(i)) + static_cast<float>(bias.at(i % 37)))
            << isa << " " << dtype << " " << i;
    }
}

TEST(Linear, ReadsAndWritesRowsInPlaceOfAWiderTensor) {
  for (const Isa isa : cpu::available_isas())
    for (const int64_t num_rows : {3, 40, 300}) {
      const TestTensor x = TestTensor::random({num_rows, 21}, DType::kF32, 1);
      const TestTensor weight = TestTensor::random({35, 21}, DType::kF16, 2);
      TestTensor out({num_rows, 35}, DType::kF32);
      TestTensor wide_x({num_rows, 40}, DType::kF32), wide_out({num_rows, 50}, DType::kF32);
      wide_x.fill(std::numeric_limits<float>::quiet_NaN());
      wide_out.fill(7.0f);
      for (int64_t row = 0; row < num_rows; ++row)
        for (int64_t i = 0; i < 21; ++i) wide_x.set(row * 40 + 9 + i, static_cast<float>(x.at(row * 21 + i)));
      cpu::linear({.x = x, .weight = weight, .bias = {}, .out = out}, isa);
      cpu::linear({.x = wide_x.view().slice(1, 9, 30),
                   .weight = weight,
                   .bias = {},
                   .out = wide_out.view().slice(1, 5, 40)},
                  isa);
      for (int64_t row = 0; row < num_rows; ++row)
        for (int64_t i = 0; i < 50; ++i)
          ASSERT_EQ(wide_out.at(row * 50 + i), i < 5 || i >= 40 ? 7.0 : out.at(row * 35 + i - 5))
              << isa << " row " << row << " column " << i;
    }
}

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

TEST(Linear, AFewRowsBitsDependNeitherOnOtherRowsNorOnTheirNumber) {
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

TEST(Linear, ManyRowsBitsDependNeitherOnOtherRowsNorOnTheirNumber) {
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

TEST(Linear, BitsDoNotDependOnTheNumberOfThreads) {
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

// What a call with these arguments is refused with.
std::string refusal(const LinearArgs& args, ErrorCode code = ErrorCode::kInvalidArgument) {
  Stream stream;
  return error_message(code, [&] { linear(args, stream); });
}

TEST(Linear, RefusesWhatDoesNotFitAndSaysWhy) {
  using testing::HasSubstr;
  const TestTensor x({4, 8}, DType::kF32), weight({6, 8}, DType::kBF16), out({4, 6}, DType::kF32);
  EXPECT_THAT(refusal({.x = x, .weight = {}, .bias = {}, .out = out}), HasSubstr("weight: not given"));
  const TestTensor narrow({4, 7}, DType::kF32);
  EXPECT_THAT(refusal({.x = narrow, .weight = weight, .bias = {}, .out = out}),
              HasSubstr("weight bfloat16[6, 8] on cpu: expected 7 in dimension 1"));
  EXPECT_THAT(refusal({.x = x, .weight = weight, .bias = {}, .out = narrow}),
              HasSubstr("out float32[4, 7] on cpu: expected 6 in dimension 1"));
  EXPECT_THAT(refusal({.x = x, .weight = weight, .bias = TestTensor({5}, DType::kF32), .out = out}),
              HasSubstr("bias float32[5] on cpu: expected 6 in dimension 0"));
  EXPECT_THAT(refusal({.x = TestTensor({4, 8}, DType::kBF16), .weight = weight, .bias = {}, .out = out},
                      ErrorCode::kUnsupported),
              HasSubstr("activations are float32 on the CPU"));
  EXPECT_THAT(refusal({.x = x, .weight = TestTensor({6, 8}, DType::kF8E4M3), .bias = {}, .out = out}),
              HasSubstr("expected float32, float16 or bfloat16"));
  const TestTensor wide({6, 16}, DType::kBF16);
  EXPECT_THAT(refusal({.x = x, .weight = wide.view().slice(1, 0, 8), .bias = {}, .out = out}),
              HasSubstr("expected a contiguous tensor"));
  const TestTensor tall({8, 4}, DType::kF32);
  TensorView transposed = tall;
  std::swap(transposed.shape[0], transposed.shape[1]);
  std::swap(transposed.strides[0], transposed.strides[1]);
  EXPECT_THAT(refusal({.x = transposed, .weight = weight, .bias = {}, .out = out}, ErrorCode::kUnsupported),
              HasSubstr("in the last dimension, kernels take 1"));
}

TEST(Linear, RefusesADeviceThatThisBuildLacks) {
  const TestTensor x({1, 8}, DType::kF32), weight({6, 8}, DType::kBF16), out({1, 6}, DType::kF32);
  Stream stream{.device = {DeviceType::kCuda, 0}, .handle = nullptr};
  const LinearArgs args = {.x = x, .weight = weight, .bias = {}, .out = out};
  EXPECT_EQ(error_message(ErrorCode::kUnsupported, [&] { linear(args, stream); }),
            "linear on cuda:0: this build has kernels for cpu");
}

}  // namespace
}  // namespace attend::kernels
