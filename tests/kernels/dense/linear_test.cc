#include "attend/kernels/gemm/linear.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "attend/kernels/gemm/cpu/linear_kernel.h"
#include "attend/tensor/arena.h"
#include "tests/kernels/dense/target.h"
#include "tests/kernels/dense/test_tensor.h"
#include "tests/support/error_message.h"

namespace attend::kernels {
namespace {

using testing_support::error_message;
using testing_support::kWeightTypes;
using testing_support::NeedsTarget;
using testing_support::Target;
using testing_support::targets;
using testing_support::TestTensor;

using Linear = NeedsTarget;

struct Shape {
  int64_t num_rows, num_outs, in_features;
};

std::ostream& operator<<(std::ostream& out, const Shape& shape) {
  return out << "{" << shape.num_rows << ", " << shape.num_outs << ", " << shape.in_features << "}";
}

// One dot product in float64, and the sum of the magnitudes of its terms, which rounding errors are
// proportional to.
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

void expect_matches_float64(const Shape& shape, DType dtype, const Target& target) {
  SCOPED_TRACE(testing::Message() << shape << " " << dtype << " " << target);
  const TestTensor x =
      TestTensor::random({shape.num_rows, shape.in_features}, target.activation_for(dtype), 1);
  const TestTensor weight = TestTensor::random({shape.num_outs, shape.in_features}, dtype, 2);
  const TestTensor bias = TestTensor::random({shape.num_outs}, dtype, 3);
  TestTensor out({shape.num_rows, shape.num_outs}, DType::kF32);
  out.fill(std::numeric_limits<float>::quiet_NaN());
  target.linear({.x = x, .weight = weight, .bias = bias, .out = out});
  const std::vector<double> xs = x.values(), weights = weight.values();
  for (int64_t row = 0; row < shape.num_rows; ++row)
    for (int64_t o = 0; o < shape.num_outs; ++o) {
      const Expected expected = expect_element(xs, weights, row, o, shape.in_features);
      ASSERT_NEAR(out.at(row * shape.num_outs + o), expected.value + bias.at(o),
                  target.linear_tolerance() * (expected.magnitude + std::abs(bias.at(o))))
          << "row " << row << ", output " << o;
    }
}

TEST_F(Linear, MatchesFloat64ForEveryNumberOfRowsOfTheSkinnyGemm) {
  for (const auto& target : targets())
    for (const DType dtype : kWeightTypes)
      for (int64_t num_rows = 1; num_rows <= cpu::kMaxSkinnyRows; ++num_rows)
        expect_matches_float64({num_rows, 27, 45}, dtype, *target);
}

TEST_F(Linear, MatchesFloat64ForMoreRows) {
  for (const auto& target : targets())
    for (const DType dtype : kWeightTypes)
      for (const int64_t more : {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 35})
        expect_matches_float64({cpu::kMaxSkinnyRows + more, 71, 150}, dtype, *target);
}

TEST_F(Linear, MatchesFloat64ForEveryRemainderOfOutputFeatures) {
  for (const auto& target : targets())
    for (int64_t num_outs = 1; num_outs <= 66; ++num_outs) {
      expect_matches_float64({3, num_outs, 19}, DType::kBF16, *target);
      expect_matches_float64({cpu::kMaxSkinnyRows + 1, num_outs, 19}, DType::kBF16, *target);
    }
}

TEST_F(Linear, MatchesFloat64ForEveryRemainderOfInputFeatures) {
  for (const auto& target : targets())
    for (const DType dtype : kWeightTypes)
      for (const int64_t in_features : {1,  2,  3,  4,  5,  7,   8,   9,   11,  13,  15,  16,  17,  23,
                                        29, 31, 32, 33, 63, 127, 128, 129, 144, 255, 511, 512, 513, 1030}) {
        expect_matches_float64({2, 25, in_features}, dtype, *target);
        expect_matches_float64({34, 25, in_features}, dtype, *target);
      }
}

TEST_F(Linear, MatchesFloat64WhenThreadsShareTheWork) {
  for (const auto& target : targets())
    for (const DType dtype : kWeightTypes) {
      expect_matches_float64({1, 1027, 515}, dtype, *target);
      expect_matches_float64({6, 500, 1024}, dtype, *target);
      expect_matches_float64({70, 331, 200}, dtype, *target);
    }
  expect_matches_float64({1025, 300, 24}, DType::kBF16, *targets().back());
  // More rows and input features, or rows and output features, than are packed together, and partial vectors.
  expect_matches_float64({521, 45, 515}, DType::kF16, *targets().back());
  expect_matches_float64({521, 1051, 24}, DType::kF16, *targets().back());
  expect_matches_float64({1039, 130, 515}, DType::kF16, *targets().back());
}

TEST_F(Linear, MatchesWithoutBias) {
  const TestTensor x = TestTensor::random({2, 10}, DType::kF32, 1);
  const TestTensor weight = TestTensor::random({5, 10}, DType::kF32, 2);
  TestTensor with_zero({2, 5}, DType::kF32), without({2, 5}, DType::kF32);
  const TestTensor zero({5}, DType::kF32);
  for (const auto& target : targets()) {
    target->linear({.x = x, .weight = weight, .bias = zero, .out = with_zero});
    target->linear({.x = x, .weight = weight, .bias = {}, .out = without});
    EXPECT_EQ(with_zero.values(), without.values()) << *target;
  }
}

TEST_F(Linear, SupportsABiasOfAnotherType) {
  const TestTensor weight = TestTensor::random({37, 8}, DType::kBF16, 2);
  for (const auto& target : targets())
    for (const DType dtype : kWeightTypes) {
      const TestTensor x = TestTensor::random({2, 8}, target->activation_for(DType::kBF16), 1);
      const TestTensor bias = TestTensor::random({37}, dtype, 3);
      TestTensor product({2, 37}, DType::kF32), out({2, 37}, DType::kF32);
      target->linear({.x = x, .weight = weight, .bias = {}, .out = product});
      target->linear({.x = x, .weight = weight, .bias = bias, .out = out});
      for (int64_t i = 0; i < out.size(); ++i)
        ASSERT_EQ(static_cast<float>(out.at(i)),
                  static_cast<float>(product.at(i)) + static_cast<float>(bias.at(i % 37)))
            << *target << " " << dtype << " " << i;
    }
}

TEST_F(Linear, ReadsAndWritesRowsInPlaceOfAWiderTensor) {
  for (const auto& target : targets())
    for (const int64_t num_rows : {3, 40, 300}) {
      const DType x_dtype = target->activation_for(DType::kF16);
      const TestTensor x = TestTensor::random({num_rows, 21}, x_dtype, 1);
      const TestTensor weight = TestTensor::random({35, 21}, DType::kF16, 2);
      TestTensor out({num_rows, 35}, DType::kF32);
      TestTensor wide_x({num_rows, 40}, x_dtype), wide_out({num_rows, 50}, DType::kF32);
      wide_x.fill(std::numeric_limits<float>::quiet_NaN());
      wide_out.fill(7.0f);
      for (int64_t row = 0; row < num_rows; ++row)
        for (int64_t i = 0; i < 21; ++i) wide_x.set(row * 40 + 9 + i, static_cast<float>(x.at(row * 21 + i)));
      target->linear({.x = x, .weight = weight, .bias = {}, .out = out});
      target->linear({.x = wide_x.view().slice(1, 9, 30),
                      .weight = weight,
                      .bias = {},
                      .out = wide_out.view().slice(1, 5, 40)});
      for (int64_t row = 0; row < num_rows; ++row)
        for (int64_t i = 0; i < 50; ++i)
          // Another layout may use another summation order.
          ASSERT_NEAR(wide_out.at(row * 50 + i), i < 5 || i >= 40 ? 7.0 : out.at(row * 35 + i - 5),
                      i < 5 || i >= 40 ? 0.0 : 21 * target->linear_tolerance())
              << *target << " row " << row << " column " << i;
    }
}

TEST_F(Linear, GatedIsSiluOfTheFirstHalfTimesTheSecond) {
  for (const auto& target : targets())
    for (const DType dtype : kWeightTypes)
      for (const int64_t num_rows : {1, 3, 8, 9, 16, 17, 40})
        for (const auto& [intermediate, in_features] :
             std::vector<std::pair<int64_t, int64_t>>{{24, 40}, {129, 264}, {8, 1032}, {20, 33}}) {
          SCOPED_TRACE(testing::Message() << *target << " " << dtype << " " << num_rows << " rows, "
                                          << intermediate << " of " << in_features);
          const DType x_dtype = target->activation_for(dtype);
          const TestTensor x = TestTensor::random({num_rows, in_features}, x_dtype, 1);
          const TestTensor weight = TestTensor::random({2 * intermediate, in_features}, dtype, 2, 0.05f);
          const TestTensor bias = TestTensor::random({2 * intermediate}, dtype, 3);
          TestTensor gate_up({num_rows, 2 * intermediate}, x_dtype), out({num_rows, intermediate}, x_dtype);
          out.fill(std::numeric_limits<float>::quiet_NaN());
          target->gated_linear({.x = x, .weight = weight, .bias = bias, .gate_up = gate_up, .out = out});
          const std::vector<double> xs = x.values(), weights = weight.values();
          // For many rows, gate and up are rounded to the dtype of x before they are multiplied.
          const double rounding = x_dtype == DType::kBF16 ? 0x1p-7 : x_dtype == DType::kF16 ? 0x1p-10 : 1e-5;
          for (int64_t row = 0; row < num_rows; ++row)
            for (int64_t o = 0; o < intermediate; ++o) {
              const double gate = expect_element(xs, weights, row, o, in_features).value + bias.at(o);
              const double up = expect_element(xs, weights, row, intermediate + o, in_features).value +
                                bias.at(intermediate + o);
              ASSERT_NEAR(out.at(row * intermediate + o), gate / (1.0 + std::exp(-gate)) * up,
                          rounding * (1.0 + std::abs(gate)) * (1.0 + std::abs(up)))
                  << "row " << row << ", output " << o;
            }
        }
}

// Returns the error message of a call with these arguments.
std::string error_text(const LinearArgs& args, ErrorCode code = ErrorCode::kInvalidArgument) {
  Stream stream;
  return error_message(code, [&] { linear(args, stream); });
}

TEST_F(Linear, RejectsMismatchedArgumentsAndReportsWhy) {
  using testing::HasSubstr;
  const TestTensor x({4, 8}, DType::kF32), weight({6, 8}, DType::kBF16), out({4, 6}, DType::kF32);
  EXPECT_THAT(error_text({.x = x, .weight = {}, .bias = {}, .out = out}), HasSubstr("weight: not given"));
  const TestTensor narrow({4, 7}, DType::kF32);
  EXPECT_THAT(error_text({.x = narrow, .weight = weight, .bias = {}, .out = out}),
              HasSubstr("weight bfloat16[6, 8] on cpu: expected 7 in dimension 1"));
  EXPECT_THAT(error_text({.x = x, .weight = weight, .bias = {}, .out = narrow}),
              HasSubstr("out float32[4, 7] on cpu: expected 6 in dimension 1"));
  EXPECT_THAT(error_text({.x = x, .weight = weight, .bias = TestTensor({5}, DType::kF32), .out = out}),
              HasSubstr("bias float32[5] on cpu: expected 6 in dimension 0"));
  EXPECT_THAT(error_text({.x = TestTensor({4, 8}, DType::kBF16), .weight = weight, .bias = {}, .out = out},
                         ErrorCode::kUnsupported),
              HasSubstr("activations are float32 on the CPU"));
  EXPECT_THAT(error_text({.x = x, .weight = TestTensor({6, 8}, DType::kF8E4M3), .bias = {}, .out = out}),
              HasSubstr("expected float32, float16 or bfloat16"));
  const TestTensor wide({6, 16}, DType::kBF16);
  EXPECT_THAT(error_text({.x = x, .weight = wide.view().slice(1, 0, 8), .bias = {}, .out = out}),
              HasSubstr("expected a contiguous tensor"));
  const TestTensor tall({8, 4}, DType::kF32);
  TensorView transposed = tall;
  std::swap(transposed.shape[0], transposed.shape[1]);
  std::swap(transposed.strides[0], transposed.strides[1]);
  EXPECT_THAT(
      error_text({.x = transposed, .weight = weight, .bias = {}, .out = out}, ErrorCode::kUnsupported),
      HasSubstr("in the last dimension, expected 1"));
  TensorView repeated = x;
  repeated.strides[0] = 0;
  EXPECT_THAT(error_text({.x = repeated, .weight = weight, .bias = {}, .out = out}),
              HasSubstr("expected rows that do not overlap, a stride of at least 8, not 0"));
}

TEST_F(Linear, RejectsScalesForAFormatWithoutScales) {
  const TestTensor x({4, 8}, DType::kF32), elements({6, 8}, DType::kBF16), out({4, 6}, DType::kF32),
      scales({6}, DType::kF32);
  Weight weight(elements.view());
  weight.scales = scales;
  EXPECT_THAT(error_text({.x = x, .weight = weight, .bias = {}, .out = out}),
              testing::HasSubstr("scales float32[6] on cpu: expected none with plain elements"));
}

TEST_F(Linear, RejectsATensorOnAnotherDevice) {
  const TestTensor x({1, 8}, DType::kF32), weight({6, 8}, DType::kF32), out({1, 6}, DType::kF32);
  Stream stream{.device = {DeviceType::kCuda, 0}, .handle = nullptr};
  const LinearArgs args = {.x = x, .weight = weight, .bias = {}, .out = out};
  EXPECT_EQ(error_message(ErrorCode::kInvalidArgument, [&] { linear(args, stream); }),
            "x float32[1, 8] on cpu: expected on cuda:0");
}

TEST_F(Linear, RejectsAWorkspaceThatIsTooSmall) {
  const size_t needed = linear_workspace_bytes(4, 8, {});
  if (needed == 0) GTEST_SKIP() << "this machine's kernels need no workspace";
  const TestTensor x({4, 8}, DType::kF32), weight({6, 8}, DType::kBF16), out({4, 6}, DType::kF32);
  std::vector<std::byte> workspace(needed - 1);
  EXPECT_THAT(error_text({.x = x,
                          .weight = weight,
                          .bias = {},
                          .out = out,
                          .workspace = {workspace.data(), workspace.size()}}),
              testing::HasSubstr("4 rows of 8 input features need " + std::to_string(needed) + ", or none"));
}

TEST_F(Linear, RejectsAnUnalignedWorkspace) {
  const TestTensor x({4, 8}, DType::kF32), weight({6, 8}, DType::kBF16), out({4, 6}, DType::kF32);
  std::vector<std::byte> workspace(linear_workspace_bytes(4, 8, {}) + 128);
  const size_t off = 64 - reinterpret_cast<uintptr_t>(workspace.data()) % 64 + 4;
  EXPECT_THAT(error_text({.x = x,
                          .weight = weight,
                          .bias = {},
                          .out = out,
                          .workspace = {workspace.data() + off, workspace.size() - off}}),
              testing::HasSubstr("expected a multiple of 64"));
}

// No bias is added, and memory around an empty output stays unchanged.
TEST_F(Linear, DoesNothingWithoutRowsOrOutputFeatures) {
  constexpr int64_t kRows = 16, kOuts = 6, kIns = 8;
  Stream stream;
  for (const auto& [num_rows, num_outs] : {std::pair<int64_t, int64_t>{0, kOuts}, {4, 0}, {kRows, 0}, {0, 0}})
    for (const bool batch_invariant : {false, true}) {
      const TestTensor x = TestTensor::random({kRows, kIns}, DType::kF32, 1);
      const TestTensor weight = TestTensor::random({kOuts, kIns}, DType::kBF16, 2);
      const TestTensor bias = TestTensor::random({kOuts}, DType::kBF16, 3);
      const TestTensor out = TestTensor::random({kRows, kOuts}, DType::kF32, 4);
      const std::vector<double> before = out.values();
      Arena arena(linear_workspace_bytes(num_rows, kIns, {}) + 64);
      const Tensor workspace =
          arena.allocate({static_cast<int64_t>(linear_workspace_bytes(num_rows, kIns, {}))}, DType::kU8);
      linear({.x = x.view().slice(0, 0, num_rows),
              .weight = weight.view().slice(0, 0, num_outs),
              .bias = bias.view().slice(0, 0, num_outs),
              .out = out.view().slice(0, 0, num_rows).slice(1, 0, num_outs),
              .workspace = {static_cast<std::byte*>(workspace.view().data), workspace.view().num_bytes()},
              .batch_invariant = batch_invariant},
             stream);
      EXPECT_EQ(out.values(), before) << num_rows << " rows, " << num_outs << " output features";
    }
}

}  // namespace
}  // namespace attend::kernels
