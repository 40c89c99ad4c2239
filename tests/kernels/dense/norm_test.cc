// RMSNorm, RMSNorm of a sum with the residual, and LayerNorm.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "attend/kernels/norm_rope/cpu/elementwise.h"
#include "attend/kernels/norm_rope/elementwise.h"
#include "tests/kernels/dense/elementwise_case.h"
#include "tests/kernels/dense/target.h"
#include "tests/kernels/dense/test_tensor.h"
#include "tests/support/error_message.h"

namespace attend::kernels {
namespace {

using testing_support::kDims;
using testing_support::kWeightTypes;
using testing_support::NeedsTarget;
using testing_support::row_values;
using testing_support::targets;
using testing_support::TestTensor;

using RmsNorm = NeedsTarget;
using AddRmsNorm = NeedsTarget;
using LayerNormOnTargets = NeedsTarget;

const float kNan = std::numeric_limits<float>::quiet_NaN();

// x / sqrt(mean(x^2) + eps) * (weight + offset) of one row, in float64.
std::vector<double> rms_norm_in_float64(const std::vector<double>& x, const std::vector<double>& weight,
                                        double eps, double offset) {
  double sum = 0;
  for (const double element : x) sum += element * element;
  const double scale = 1.0 / std::sqrt(sum / static_cast<double>(x.size()) + eps);
  std::vector<double> result;
  for (size_t i = 0; i < x.size(); ++i) result.push_back(x[i] * scale * (weight[i] + offset));
  return result;
}

void expect_rows_near(const TestTensor& out, int64_t row, const std::vector<double>& expected) {
  const auto dim = static_cast<int64_t>(expected.size());
  for (int64_t i = 0; i < dim; ++i) {
    const double value = expected[static_cast<size_t>(i)];
    ASSERT_NEAR(out.at(row * dim + i), value, 1e-6 * std::abs(value)) << "row " << row << ", element " << i;
  }
}

// Weights 1 + w of zero-centered norms are float32 for activations of any dtype.
TEST_F(RmsNorm, AppliesFloat32WeightsToHalfPrecisionRows) {
  for (const auto& target : targets())
    for (const DType type : {DType::kBF16, DType::kF16})
      for (const int64_t dim : {64, 2048, 45}) {
        const DType dtype = target->activation_for(type);
        SCOPED_TRACE(testing::Message() << *target << " " << dtype << " dim " << dim);
        const TestTensor x = TestTensor::random({3, dim}, dtype, 1, 5.0f),
                         weight = TestTensor::random({dim}, DType::kF32, 2, 0.25f), out({3, dim}, dtype);
        target->rms_norm(x, weight, 1e-5f, out, 0.0f);
        const double rounding = dtype == DType::kBF16 ? 0x1p-8 : dtype == DType::kF16 ? 0x1p-11 : 1e-6;
        for (int64_t row = 0; row < 3; ++row) {
          const std::vector<double> expected =
              rms_norm_in_float64(row_values(x, row, dim), weight.values(), 1e-5f, 0.0f);
          for (int64_t i = 0; i < dim; ++i) {
            const double value = expected[static_cast<size_t>(i)];
            ASSERT_NEAR(out.at(row * dim + i), value, rounding * std::abs(value) + 1e-7) << row << ", " << i;
          }
        }
      }
}

TEST_F(RmsNorm, MatchesFloat64) {
  for (const auto& target : targets())
    for (const DType dtype : kWeightTypes)
      for (const int64_t dim : kDims)
        for (const float offset : {0.0f, 1.0f}) {
          SCOPED_TRACE(testing::Message()
                       << *target << " " << dtype << " dim " << dim << " offset " << offset);
          const TestTensor x = TestTensor::random({3, dim}, DType::kF32, 1, 5.0f);
          const TestTensor weight = TestTensor::random({dim}, dtype, 2, 0.25f);
          TestTensor out({3, dim}, DType::kF32);
          target->rms_norm(x, weight, 1e-5f, out, offset);
          for (int64_t row = 0; row < 3; ++row)
            expect_rows_near(out, row,
                             rms_norm_in_float64(row_values(x, row, dim), weight.values(), 1e-5f, offset));
        }
}

TEST_F(RmsNorm, IsZeroForZeros) {
  for (const auto& target : targets()) {
    const TestTensor x({1, 37}, DType::kF32), weight = TestTensor::random({37}, DType::kF32, 1);
    TestTensor out({1, 37}, DType::kF32);
    out.fill(kNan);
    target->rms_norm(x, weight, 1e-6f, out, 0.0f);
    for (int64_t i = 0; i < 37; ++i) EXPECT_EQ(out.at(i), 0.0) << *target;
  }
}

TEST_F(RmsNorm, CanOverwriteItsInput) {
  for (const auto& target : targets()) {
    TestTensor x = TestTensor::random({2, 45}, DType::kF32, 1);
    const TestTensor weight = TestTensor::random({45}, DType::kF32, 2);
    TestTensor out({2, 45}, DType::kF32);
    target->rms_norm(x, weight, 1e-6f, out, 0.0f);
    target->rms_norm(x, weight, 1e-6f, x, 0.0f);
    EXPECT_EQ(x.values(), out.values()) << *target;
  }
}

TEST_F(RmsNorm, NormalizesEachHeadInsideAWiderRow) {
  constexpr int64_t kTokens = 3, kHeads = 2, kDim = 20, kWidth = 64, kFirst = 8;
  for (const auto& target : targets()) {
    TestTensor qkv = TestTensor::random({kTokens, kWidth}, DType::kF32, 1);
    const std::vector<double> before = qkv.values();
    const TestTensor weight = TestTensor::random({kDim}, DType::kF32, 2);
    const TensorView heads = qkv.view().slice(1, kFirst, kFirst + kHeads * kDim).split(1, kDim);
    target->rms_norm(heads, weight, 1e-6f, heads, 0.0f);
    std::vector<double> expected = before;
    for (int64_t token = 0; token < kTokens; ++token)
      for (int64_t head = 0; head < kHeads; ++head) {
        const auto at = before.begin() + token * kWidth + kFirst + head * kDim;
        const std::vector<double> row = rms_norm_in_float64({at, at + kDim}, weight.values(), 1e-6f, 0.0);
        std::copy(row.begin(), row.end(), expected.begin() + (at - before.begin()));
      }
    expect_rows_near(qkv, 0, expected);
  }
}

TEST_F(AddRmsNorm, ComputesTheSumThenTheNorm) {
  for (const auto& target : targets())
    for (const int64_t hidden : kDims) {
      SCOPED_TRACE(testing::Message() << *target << " hidden " << hidden);
      for (const float offset : {0.0f, 1.0f}) {
        TestTensor x = TestTensor::random({2, hidden}, DType::kF32, 1);
        TestTensor residual = TestTensor::random({2, hidden}, DType::kF32, 2);
        const TestTensor weight = TestTensor::random({hidden}, DType::kBF16, 3);
        TestTensor sum({2, hidden}, DType::kF32), normalized({2, hidden}, DType::kF32);
        for (int64_t i = 0; i < sum.size(); ++i)
          sum.set(i, static_cast<float>(x.at(i)) + static_cast<float>(residual.at(i)));
        target->rms_norm(sum, weight, 1e-6f, normalized, offset);
        target->add_rms_norm(x, residual, weight, 1e-6f, x, offset);
        EXPECT_EQ(residual.values(), sum.values());
        EXPECT_EQ(x.values(), normalized.values());
      }
    }
}

// Every instruction set, not only the best of this machine.
class LayerNormOf : public testing::TestWithParam<cpu::Isa> {
 protected:
  void SetUp() override {
    if (GetParam() > cpu::detect_isa()) GTEST_SKIP() << "this machine has no " << cpu::to_string(GetParam());
  }
};

std::vector<double> layer_norm_in_float64(const std::vector<double>& x, const std::vector<double>& weight,
                                          const std::vector<double>& bias, double eps) {
  const auto n = static_cast<double>(x.size());
  double mean = 0, variance = 0;
  for (const double element : x) mean += element / n;
  for (const double element : x) variance += (element - mean) * (element - mean) / n;
  std::vector<double> result;
  for (size_t i = 0; i < x.size(); ++i)
    result.push_back((x[i] - mean) / std::sqrt(variance + eps) * weight[i] + bias[i]);
  return result;
}

TEST_P(LayerNormOf, MatchesFloat64ForARowFarFromZero) {
  for (const DType dtype : kWeightTypes)
    for (const int64_t dim : kDims) {
      SCOPED_TRACE(testing::Message() << dtype << " dim " << dim);
      TestTensor x = TestTensor::random({3, dim}, DType::kF32, 1, 2.0f);
      for (int64_t i = 0; i < x.size(); ++i) x.set(i, static_cast<float>(x.at(i)) + 3.0f);
      const TestTensor weight = TestTensor::random({dim}, dtype, 2),
                       bias = TestTensor::random({dim}, dtype, 3);
      TestTensor out({3, dim}, DType::kF32);
      cpu::layer_norm(x, weight, bias, 1e-5f, out, GetParam());
      for (int64_t row = 0; row < 3; ++row) {
        const auto expected =
            layer_norm_in_float64(row_values(x, row, dim), weight.values(), bias.values(), 1e-5f);
        for (int64_t i = 0; i < dim; ++i)
          // A single element equals its mean; the remainder is the rounding of the mean divided by sqrt(eps).
          ASSERT_NEAR(out.at(row * dim + i), expected[static_cast<size_t>(i)], dim == 1 ? 1e-3 : 1e-5);
      }
      cpu::layer_norm(x, weight, bias, 1e-5f, x, GetParam());
      EXPECT_EQ(x.values(), out.values()) << "over its input";
    }
}

TEST_P(LayerNormOf, UpdatesTheStreamThenNormalizesIt) {
  constexpr int64_t kHidden = 45;
  const TestTensor x = TestTensor::random({2, kHidden}, DType::kF32, 1);
  TestTensor residual = TestTensor::random({2, kHidden}, DType::kF32, 2);
  const TestTensor weight = TestTensor::random({kHidden}, DType::kF16, 3),
                   bias = TestTensor::random({kHidden}, DType::kF16, 4);
  TestTensor sum({2, kHidden}, DType::kF32);
  for (int64_t i = 0; i < sum.size(); ++i)
    sum.set(i, static_cast<float>(x.at(i)) + static_cast<float>(residual.at(i)));
  cpu::layer_norm(sum, weight, bias, 1e-12f, sum, GetParam());
  cpu::add_layer_norm(x, residual, weight, bias, 1e-12f, GetParam());
  EXPECT_EQ(residual.values(), sum.values());
}

TEST_F(LayerNormOnTargets, MatchesFloat64InRowsOfAnyDtypeAndWidth) {
  for (const auto& target : targets())
    for (const DType activation : kWeightTypes) {
      if (!target->on_gpu() && activation != DType::kF32) continue;
      // Half a unit in the last place of the result (2^-11 in f16, 2^-8 in bf16, relative), and the error of
      // the float32 sums.
      const double tolerance = activation == DType::kF32 ? 2e-5 : activation == DType::kF16 ? 6e-4 : 4.5e-3;
      for (const DType dtype : kWeightTypes)
        for (const int64_t dim : {7, 64, 384, 1000, 4096, 8200}) {
          SCOPED_TRACE(testing::Message() << *target << " " << activation << " " << dtype << " dim " << dim);
          TestTensor x = TestTensor::random({3, dim}, activation, 1, 2.0f);
          for (int64_t i = 0; i < x.size(); ++i) x.set(i, static_cast<float>(x.at(i)) + 3.0f);
          const TestTensor weight = TestTensor::random({dim}, dtype, 2),
                           bias = TestTensor::random({dim}, dtype, 3),
                           addend = TestTensor::random({3, dim}, activation, 4);
          TestTensor out({3, dim}, activation);
          target->layer_norm(x, weight, bias, 1e-5f, out);
          std::vector<double> sum = x.values();
          for (size_t i = 0; i < sum.size(); ++i) sum[i] += addend.at(static_cast<int64_t>(i));
          const auto expect_rows = [&](const TestTensor& got, const std::vector<double>& from) {
            for (int64_t row = 0; row < 3; ++row) {
              const auto begin = from.begin() + row * dim;
              const auto expected =
                  layer_norm_in_float64({begin, begin + dim}, weight.values(), bias.values(), 1e-5f);
              for (int64_t i = 0; i < dim; ++i)
                ASSERT_NEAR(got.at(row * dim + i), expected[static_cast<size_t>(i)],
                            tolerance * std::max(1.0, std::abs(expected[static_cast<size_t>(i)])));
            }
          };
          expect_rows(out, x.values());
          target->add_layer_norm(addend, x, weight, bias, 1e-5f);
          expect_rows(x, sum);
        }
    }
}

TEST_F(LayerNormOnTargets, TakesAbsentWeightsAsOnesAndAnAbsentBiasAsZero) {
  for (const auto& target : targets())
    for (const int64_t dim : {7, 64, 1000}) {
      SCOPED_TRACE(testing::Message() << *target << " dim " << dim);
      const TestTensor x = TestTensor::random({3, dim}, DType::kF32, 1, 2.0f);
      const TestTensor weight = TestTensor::random({dim}, DType::kBF16, 2),
                       bias = TestTensor::random({dim}, DType::kBF16, 3);
      TestTensor ones({dim}, DType::kBF16), zeros({dim}, DType::kBF16);
      for (int64_t i = 0; i < dim; ++i) ones.set(i, 1.0f), zeros.set(i, 0.0f);
      TestTensor out({3, dim}, DType::kF32), expected({3, dim}, DType::kF32);
      const auto expect_same = [&](const TensorView& w, const TensorView& b, const TensorView& full_w,
                                   const TensorView& full_b) {
        target->layer_norm(x, w, b, 1e-5f, out);
        target->layer_norm(x, full_w, full_b, 1e-5f, expected);
        // A kernel without the other factor may round once more.
        EXPECT_THAT(out.values(), testing::Pointwise(testing::DoubleNear(1e-5), expected.values()));
      };
      expect_same({}, {}, ones, zeros);
      expect_same(weight, {}, weight, zeros);
      expect_same({}, bias, ones, bias);
    }
}

INSTANTIATE_TEST_SUITE_P(Isas, LayerNormOf,
                         testing::Values(cpu::Isa::kPortable, cpu::Isa::kAvx2, cpu::Isa::kAvx512),
                         [](const auto& isa) { return testing::PrintToString(static_cast<int>(isa.param)); });

TEST(LayerNormEntry, RejectsMismatchedArguments) {
  using testing_support::error_message;
  const TestTensor x({2, 8}, DType::kF32), weight({8}, DType::kF16), wide({8}, DType::kF32),
      short_({7}, DType::kF16);
  Stream stream;
  const auto error_text = [&](const TestTensor& bias) {
    return error_message(ErrorCode::kInvalidArgument, [&] { layer_norm(x, weight, bias, 1e-5f, x, stream); });
  };
  EXPECT_EQ(error_text(wide), "bias of float32: expected float16, the dtype of the weight");
  EXPECT_NE(error_text(short_).find("bias"), std::string::npos);
  Stream gpu;
  gpu.device = {.type = DeviceType::kCuda};
  EXPECT_NE(error_message(ErrorCode::kInvalidArgument, [&] { layer_norm(x, weight, weight, 1e-5f, x, gpu); })
                .find("x "),
            std::string::npos);
}

}  // namespace
}  // namespace attend::kernels
