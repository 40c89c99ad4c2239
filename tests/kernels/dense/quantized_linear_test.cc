// Products with quantized weights, on every instruction set of the CPU and on the GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "attend/kernels/gemm/weights.h"
#include "tests/kernels/dense/quantized_weight.h"
#include "tests/kernels/dense/target.h"
#include "tests/kernels/dense/test_tensor.h"
#include "tests/support/error_message.h"

namespace attend::kernels {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing_support::error_message;
using testing_support::Format;
using testing_support::kFormats;
using testing_support::NeedsTarget;
using testing_support::random_weight;
using testing_support::Target;
using testing_support::targets;
using testing_support::TestTensor;
using testing_support::TestWeight;

using QuantizedLinear = NeedsTarget;

// Rounding of dequantized elements to 16 bits, which kernels for many rows do.
double element_rounding(DType x_dtype, int64_t num_rows) {
  constexpr int64_t kMaxQuantizedRows = 64;
  if (x_dtype == DType::kF32 || num_rows <= kMaxQuantizedRows) return 0.0;
  return x_dtype == DType::kBF16 ? 0x1p-9 : 0x1p-12;
}

void expect_matches_float64(const Target& target, DType x_dtype, const Format& format, int64_t num_rows,
                            int64_t num_outs, int64_t in_features) {
  const auto weight = random_weight(format, num_outs, in_features);
  const TestTensor x = TestTensor::random({num_rows, in_features}, x_dtype, 1);
  const TestTensor bias = TestTensor::random({num_outs}, DType::kBF16, 3);
  const std::vector<double> xs = x.values();
  // Scales differ by a factor of a thousand, so few products dominate each sum, and f32 roundings are
  // relatively larger than with normally distributed products.
  const double tolerance = 4.0 * target.linear_tolerance() + element_rounding(x_dtype, num_rows);
  SCOPED_TRACE(testing::Message() << format << " " << num_rows << " x " << in_features << " -> " << num_outs
                                  << " " << target << " " << x_dtype);
  TestTensor out({num_rows, num_outs}, DType::kF32);
  out.fill(std::numeric_limits<float>::quiet_NaN());
  target.linear({.x = x, .weight = weight->view, .bias = bias, .out = out});
  for (int64_t o = 0; o < num_outs; ++o) {
    const std::vector<double> row = reference::weight_row(weight->view, o);
    for (int64_t r = 0; r < num_rows; ++r) {
      double value = bias.at(o), magnitude = std::abs(value);
      for (int64_t i = 0; i < in_features; ++i) {
        const double product = xs[static_cast<size_t>(r * in_features + i)] * row[static_cast<size_t>(i)];
        value += product;
        magnitude += std::abs(product);
      }
      ASSERT_NEAR(out.at(r * num_outs + o), value, tolerance * magnitude) << "row " << r << ", output " << o;
    }
  }
}

void expect_matches_float64(const Format& format, int64_t num_rows, int64_t num_outs, int64_t in_features) {
  for (const auto& target : targets())
    for (const DType x_dtype : target->activations_for_quantized())
      expect_matches_float64(*target, x_dtype, format, num_rows, num_outs, in_features);
}

TEST_F(QuantizedLinear, ReadsEveryFormat) {
  TestWeight fp8(WeightFormat::kFp8, 1, 8, 1, 8, DType::kF32);
  const uint8_t e4m3[] = {0x01, 0x08, 0x38, 0x3c, 0x40, 0xb8, 0x7e, 0xfe};
  std::ranges::copy(e4m3, fp8.codes());
  fp8.scales.fill(2.0f);
  EXPECT_THAT(reference::weight_row(fp8.view, 0),
              ElementsAre(0x1p-8, 0x1p-5, 2.0, 3.0, 4.0, -2.0, 896.0, -896.0));

  TestWeight int8(WeightFormat::kInt8, 1, 4, 1, 4, DType::kF32);
  const int8_t integers[] = {0, 127, -1, -128};
  std::ranges::copy(integers, reinterpret_cast<int8_t*>(int8.codes()));
  int8.scales.fill(0.5f);
  EXPECT_THAT(reference::weight_row(int8.view, 0), ElementsAre(0.0, 63.5, -0.5, -64.0));

  // The first eight values of 0x76543210 are 0 to 7; with a zero point of 8 they are -8 to -1.
  TestWeight int4(WeightFormat::kInt4, 1, 32, 1, 32, DType::kF32);
  const uint8_t word[] = {0x10, 0x32, 0x54, 0x76};
  std::ranges::copy(word, int4.codes());
  int4.scales.fill(0.5f);
  const std::vector<double> by_eight = reference::weight_row(int4.view, 0);
  EXPECT_THAT(std::vector(by_eight.begin(), by_eight.begin() + 8),
              ElementsAre(-4.0, -3.5, -3.0, -2.5, -2.0, -1.5, -1.0, -0.5));
  static_cast<uint8_t*>(int4.zeros.view().data)[0] = 3;
  int4.view.zeros = int4.zeros;
  EXPECT_EQ(reference::weight_row(int4.view, 0)[0], -1.5);

  TestWeight mxfp4(WeightFormat::kMxFp4, 2, 32, 1, 32, DType::kU8);
  mxfp4.codes()[0] = 0x21;
  mxfp4.codes()[16] = 0xf7;
  static_cast<uint8_t*>(mxfp4.scales.view().data)[0] = 126;
  static_cast<uint8_t*>(mxfp4.scales.view().data)[1] = 127;
  EXPECT_EQ(reference::weight_row(mxfp4.view, 0)[0], 0.25);
  EXPECT_EQ(reference::weight_row(mxfp4.view, 0)[1], 0.5);
  EXPECT_EQ(reference::weight_row(mxfp4.view, 1)[0], 6.0);
  EXPECT_EQ(reference::weight_row(mxfp4.view, 1)[1], -6.0);
}

// One input is 1, the others are 0, so each output equals one element exactly.
TEST_F(QuantizedLinear, DequantizesEveryValueExactly) {
  for (const Format& format : kFormats) {
    const auto weight = random_weight(format, 256, 256);
    for (const auto& target : targets())
      for (const int64_t input : {0, 1, 7, 8, 15, 16, 31, 33, 130, 255})
        for (const DType x_dtype : target->activations_for_quantized()) {
          TestTensor x({1, 256}, x_dtype), many({40, 256}, x_dtype);
          for (int64_t row = 0; row < 40; ++row) many.set(row * 256 + input, 1.0f);
          x.set(input, 1.0f);
          TestTensor out({1, 256}, DType::kF32), outs({40, 256}, DType::kF32);
          target->linear({.x = x, .weight = weight->view, .bias = {}, .out = out});
          target->linear({.x = many, .weight = weight->view, .bias = {}, .out = outs});
          for (int64_t o = 0; o < 256; ++o) {
            const auto element = static_cast<double>(
                static_cast<float>(reference::weight_row(weight->view, o)[static_cast<size_t>(input)]));
            ASSERT_EQ(out.at(o), element)
                << format << " " << *target << " input " << input << " output " << o;
            ASSERT_EQ(outs.at(39 * 256 + o), element) << format << " " << *target;
          }
        }
  }
}

TEST_F(QuantizedLinear, MatchesFloat64ForFewAndForManyRows) {
  for (const Format& format : kFormats) {
    for (const int64_t num_rows : {1, 2, 5, 9, 32}) expect_matches_float64(format, num_rows, 29, 256);
    for (const int64_t num_rows : {33, 70}) expect_matches_float64(format, num_rows, 45, 640);
  }
}

// 576 outputs are four and a half blocks, as in DeepSeek's kv_a_proj; 200 inputs are a block and a part.
TEST_F(QuantizedLinear, SupportsPartialBlocks) {
  expect_matches_float64({WeightFormat::kFp8, 128, 128, DType::kF32}, 3, 576, 200);
  expect_matches_float64({WeightFormat::kFp8, 128, 128, DType::kF32}, 40, 300, 200);
  for (const int64_t in_features : {1, 3, 15, 17, 45, 130})
    expect_matches_float64({WeightFormat::kFp8, 1, 0, DType::kF32}, 2, 25, in_features);
}

TEST_F(QuantizedLinear, MatchesFloat64WhenThreadsShareTheWork) {
  for (const Format& format : kFormats) expect_matches_float64(format, 1, 1027, 512);
}

TEST_F(QuantizedLinear, AppliesGateForAnyFormat) {
  for (const Format& format : kFormats)
    for (const auto& target : targets())
      for (const int64_t num_rows : {1, 20, 70}) {
        const DType x_dtype = target->activations_for_quantized().back();
        constexpr int64_t kOuts = 88, kInputs = 384;
        const auto weight = random_weight(format, 2 * kOuts, kInputs);
        const TestTensor x = TestTensor::random({num_rows, kInputs}, x_dtype, 1);
        const TestTensor gate_up({num_rows, 2 * kOuts}, x_dtype), sums({num_rows, 2 * kOuts}, DType::kF32);
        TestTensor out({num_rows, kOuts}, x_dtype);
        target->linear({.x = x, .weight = weight->view, .bias = {}, .out = sums});
        target->gated_linear({.x = x, .weight = weight->view, .bias = {}, .gate_up = gate_up, .out = out});
        const double rounding = x_dtype == DType::kF32 ? 1e-4 : x_dtype == DType::kF16 ? 0x1p-8 : 0x1p-5;
        // Error of each sum from rounding elements: only one of the two products may dequantize the weight.
        const double rounding_of_elements = element_rounding(x_dtype, num_rows);
        const std::vector<double> xs = x.values();
        const auto off = [&](int64_t row, const std::vector<double>& weights) {
          double magnitude = 0.0;
          for (int64_t i = 0; i < kInputs; ++i)
            magnitude +=
                std::abs(xs[static_cast<size_t>(row * kInputs + i)] * weights[static_cast<size_t>(i)]);
          return rounding_of_elements * magnitude;
        };
        for (int64_t o = 0; o < kOuts; ++o) {
          const std::vector<double> gate_weights = reference::weight_row(weight->view, o),
                                    up_weights = reference::weight_row(weight->view, kOuts + o);
          for (int64_t row = 0; row < num_rows; ++row) {
            const double gate = sums.at(row * 2 * kOuts + o), up = sums.at(row * 2 * kOuts + kOuts + o);
            const double gate_off = off(row, gate_weights), up_off = off(row, up_weights);
            // The slope of SiLU is at most 1.1.
            const double tolerance = rounding * (1.0 + std::abs(gate)) * (1.0 + std::abs(up)) +
                                     1.1 * gate_off * (std::abs(up) + up_off) + std::abs(gate) * up_off;
            ASSERT_NEAR(out.at(row * kOuts + o), gate / (1.0 + std::exp(-gate)) * up, tolerance)
                << format << " " << *target << " " << num_rows << " rows, row " << row << ", output " << o;
          }
        }
      }
}

TEST_F(QuantizedLinear, IsBatchInvariant) {
  // On Hopper, 80 outputs have tiles and 77 do not.
  for (const int64_t num_outs : {77, 80})
    for (const Format& format : kFormats) {
      const auto weight = random_weight(format, num_outs, 384);
      for (const auto& target : targets())
        for (const DType x_dtype : target->activations_for_quantized()) {
          const TestTensor x = TestTensor::random({150, 384}, x_dtype, 5);
          TestTensor all({150, num_outs}, DType::kF32), one({1, num_outs}, DType::kF32);
          target->linear({.x = x,
                          .weight = weight->view,
                          .bias = {},
                          .out = all,
                          .workspace = {},
                          .batch_invariant = true});
          for (const int64_t row : {0, 11, 49, 149}) {
            target->linear({.x = x.view().slice(0, row, row + 1),
                            .weight = weight->view,
                            .bias = {},
                            .out = one,
                            .workspace = {},
                            .batch_invariant = true});
            for (int64_t o = 0; o < num_outs; ++o)
              ASSERT_EQ(one.at(o), all.at(row * num_outs + o)) << format << " " << *target << " row " << row;
          }
        }
    }
}

// The GPU adds to existing values, rounds once, and supports rows of a wider tensor.
TEST_F(QuantizedLinear, AddsToExistingOutput) {
  for (const auto& target : targets()) {
    if (!target->on_gpu()) GTEST_SKIP() << "on a CPU the next norm adds the output";
    for (const DType x_dtype : target->activations_for_quantized())
      for (const Format& format : kFormats)
        for (const int64_t num_rows : {2, 20, 100}) {
          const auto weight = random_weight(format, 45, 256);
          const TestTensor wide = TestTensor::random({num_rows, 512}, x_dtype, 1);
          const TensorView x = wide.view().slice(1, 256, 512);
          TestTensor sums({num_rows, 45}, DType::kF32), out({num_rows, 45}, x_dtype);
          out.fill(1.0f);
          target->linear({.x = x, .weight = weight->view, .bias = {}, .out = sums});
          target->linear({.x = x, .weight = weight->view, .bias = {}, .out = out, .accumulate = true});
          const double epsilon = x_dtype == DType::kF32 ? 0x1p-22 : x_dtype == DType::kF16 ? 0x1p-11 : 0x1p-8;
          for (int64_t i = 0; i < out.size(); ++i)
            ASSERT_NEAR(out.at(i), sums.at(i) + 1.0, epsilon * (std::abs(sums.at(i)) + 1.0))
                << format << " " << x_dtype << " " << num_rows << " rows, element " << i;
        }
  }
}

TEST_F(QuantizedLinear, SupportsRowRanges) {
  for (const Format& format : kFormats) {
    const auto weight = random_weight(format, 300, 128);
    const int64_t begin = format.group_outs > 1 ? format.group_outs : 40;
    const Weight some = weight->view.rows(begin, 290);
    ASSERT_EQ(some.out_features(), 290 - begin);
    for (const int64_t out : {int64_t{0}, int64_t{100}, 289 - begin})
      ASSERT_EQ(reference::weight_row(some, out), reference::weight_row(weight->view, begin + out)) << format;
  }
  const auto blocks = random_weight(kFormats[2], 300, 128);
  EXPECT_THAT(error_message(ErrorCode::kInternal, [&] { blocks->view.rows(100, 200); }),
              HasSubstr("not the first of a group"));
}

TEST_F(QuantizedLinear, RejectsTensorsThatDoNotMatchTheFormat) {
  Stream stream;
  const TestTensor x({2, 64}, DType::kF32), out({2, 8}, DType::kF32);
  const auto error_text = [&](ErrorCode code, const Weight& weight) {
    return error_message(code, [&] { linear({.x = x, .weight = weight, .bias = {}, .out = out}, stream); });
  };
  const auto weight = random_weight({WeightFormat::kInt4, 1, 32, DType::kF16}, 8, 64);
  Weight changed = weight->view;
  changed.group_ins = 16;
  EXPECT_THAT(error_text(ErrorCode::kInvalidArgument, changed),
              HasSubstr("weight int4 weight[8, 64], groups of 1 x 16: expected groups of a multiple of 32"));
  changed = weight->view;
  changed.group_ins = 64;
  EXPECT_THAT(error_text(ErrorCode::kInvalidArgument, changed),
              HasSubstr("weight.scales float16[8, 2] on cpu: expected 1 in dimension 1"));
  changed = weight->view;
  changed.scales = {};
  EXPECT_THAT(error_text(ErrorCode::kInvalidArgument, changed), HasSubstr("weight.scales: not given"));
  changed = weight->view;
  changed.zeros = TestTensor({8, 1}, DType::kU8);
  EXPECT_THAT(error_text(ErrorCode::kInvalidArgument, changed), HasSubstr("weight.zeros uint8[8, 1]"));
  changed = weight->view;
  changed.format = WeightFormat::kMxFp4;
  EXPECT_THAT(error_text(ErrorCode::kInvalidArgument, changed), HasSubstr("weight.scales float16[8, 2]"));
  const TestTensor elements({8, 64}, DType::kF16);
  changed = weight->view;
  changed.format = WeightFormat::kFp8;
  changed.data = elements;
  EXPECT_THAT(error_text(ErrorCode::kInvalidArgument, changed), HasSubstr("expected fp8_e4m3"));
  const auto narrow = random_weight({WeightFormat::kInt4, 1, 32, DType::kF16}, 8, 96);
  EXPECT_THAT(error_text(ErrorCode::kInvalidArgument, narrow->view), HasSubstr("expected 64 input features"));
}

}  // namespace
}  // namespace attend::kernels
