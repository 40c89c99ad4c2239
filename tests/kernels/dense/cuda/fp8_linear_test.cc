// Products of fp8 and fp8: x is rounded to e4m3 per row or per block of a row. The reference is float64 over
// the rounded values.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "attend/kernels/common/cuda/gpu_facts.h"
#include "attend/kernels/gemm/cuda/linear.h"
#include "attend/kernels/gemm/cuda/matmul.h"
#include "attend/kernels/gemm/weights.h"
#include "tests/kernels/dense/cuda/sm90_test.h"
#include "tests/kernels/dense/quantized_weight.h"

namespace attend::kernels::cuda {
namespace {

using testing_cuda::DeviceCopy;
using testing_cuda::kGpu;
using testing_support::Format;
using testing_support::TestTensor;

class Fp8Linear : public testing_cuda::Sm90Test {
 protected:
  void SetUp() override {
    Sm90Test::SetUp();
    if (!IsSkipped() && !has_scaled_matmul()) GTEST_SKIP() << "cuBLASLt before 12.9";
  }
};

// A row as the kernel quantizes it: normalized first, then every `block` inputs rounded to e4m3 relative to
// their largest magnitude.
std::vector<double> rounded_row(const TestTensor& x, int64_t row, const TestTensor* norm, float eps,
                                int64_t block) {
  const int64_t inputs = x.view().shape[1];
  std::vector<float> values(static_cast<size_t>(inputs));
  double squares = 0.0;
  for (int64_t i = 0; i < inputs; ++i) {
    values[static_cast<size_t>(i)] = static_cast<float>(x.at(row * inputs + i));
    squares += x.at(row * inputs + i) * x.at(row * inputs + i);
  }
  if (norm != nullptr) {
    TestTensor one({1}, x.view().dtype);
    const double scale = 1.0 / std::sqrt(squares / static_cast<double>(inputs) + static_cast<double>(eps));
    for (int64_t i = 0; i < inputs; ++i) {
      one.set(0, static_cast<float>(values[static_cast<size_t>(i)] * scale * norm->at(i)));
      values[static_cast<size_t>(i)] = static_cast<float>(one.at(0));
    }
  }
  TestTensor code({1}, DType::kF8E4M3);
  std::vector<double> rounded;
  for (int64_t first = 0; first < inputs; first += block) {
    const std::span<const float> group = std::span(values).subspan(
        static_cast<size_t>(first), static_cast<size_t>(std::min(block, inputs - first)));
    float largest = 0.0f;
    for (const float value : group) largest = std::max(largest, std::abs(value));
    for (const float value : group) {
      code.set(0, largest == 0.0f ? 0.0f : value * (448.0f / largest));
      rounded.push_back(code.at(0) * static_cast<double>(largest) / 448.0);
    }
  }
  return rounded;
}

constexpr int64_t kBlock = 128;

struct Product {
  Format format;
  int64_t num_rows, in_features, num_outs;
  DType x_dtype = DType::kBF16, out_dtype = DType::kF32;
  bool bias = false, norm = false;
  float before = 0.0f;         // initial value of out, which the result is added to
  size_t workspace_rows = 64;  // minimum number of quantized rows that fit into the workspace
};

// Compares the root mean square error relative to float64 with the tolerance.
void expect_near_float64(const Product& test_case, double tolerance) {
  const int64_t rows = test_case.num_rows, inputs = test_case.in_features, outs = test_case.num_outs;
  constexpr float kEps = 1e-5f;
  attend::cuda::OwnedStream stream(kGpu);
  const auto weight = testing_support::random_weight(test_case.format, outs, inputs);
  TestTensor x = TestTensor::random({rows, inputs}, test_case.x_dtype, 1);
  for (int64_t i = 0; i < inputs; ++i) x.set((rows - 1) * inputs + i, 0.0f);
  for (int64_t i = 0; i < rows; ++i) x.set(i * inputs + i % inputs, 30.0f + static_cast<float>(i % 5));
  const bool has_blocks = test_case.format.group_ins == kBlock;
  const TestTensor bias = TestTensor::random({outs}, DType::kF32, 2, 0.5f),
                   norm = TestTensor::random({inputs}, test_case.x_dtype, 3);
  TestTensor out({rows, outs}, test_case.out_dtype);
  out.fill(test_case.before == 0.0f ? std::numeric_limits<float>::quiet_NaN() : test_case.before);
  const DeviceCopy quantized(weight->view.data, stream.get()), scales(weight->view.scales, stream.get()),
      device_x(x, stream.get()), device_out(out, stream.get()), device_bias(bias, stream.get()),
      device_norm(norm, stream.get());
  Weight on_device = weight->view;
  on_device.data = quantized.view();
  on_device.scales = scales.view();
  const size_t bytes = static_cast<size_t>(4 * outs + 1024) +
                       test_case.workspace_rows * static_cast<size_t>(inputs + inputs / 32 + 8);
  const Tensor workspace = attend::cuda::empty({static_cast<int64_t>(bytes)}, DType::kU8, kGpu);
  const Tensor normalized = attend::cuda::empty({rows, inputs}, test_case.x_dtype, kGpu);
  LinearArgs args{.x = device_x.view(),
                  .weight = on_device,
                  .bias = test_case.bias ? device_bias.view() : TensorView{},
                  .out = device_out.view(),
                  .workspace = {static_cast<std::byte*>(workspace.view().data), bytes},
                  .rounds_x = true,
                  .accumulate = test_case.before != 0.0f};
  if (test_case.norm) args.norm = {.weight = device_norm.view(), .eps = kEps, .normalized = normalized};
  const GemmRow& row = choose(gemm_problem(args, /*gated=*/false), gpu_facts(kGpu));
  EXPECT_EQ(row.kernel, has_blocks ? GemmKernel::kFp8Blocks : GemmKernel::kFp8) << row.name;
  cuda::linear(args, stream.get());
  device_out.download(stream.get());
  attend::cuda::synchronize(stream.get());

  double error = 0.0, magnitude = 0.0;
  const int64_t row_step = 1 + rows / 20, out_step = 1 + outs / 60;
  for (int64_t r = 0; r < rows; r += r + row_step < rows || r == rows - 1 ? row_step : rows - 1 - r) {
    const std::vector<double> rounded =
        rounded_row(x, r, test_case.norm ? &norm : nullptr, kEps, has_blocks ? kBlock : inputs);
    for (int64_t o = 0; o < outs; o += out_step) {
      const std::vector<double> elements = reference::weight_row(weight->view, o);
      double sum = static_cast<double>(test_case.before) + (test_case.bias ? bias.at(o) : 0.0);
      for (size_t i = 0; i < elements.size(); ++i) sum += rounded[i] * elements[i];
      const double got = out.at(r * outs + o);
      ASSERT_TRUE(std::isfinite(got)) << "row " << r << ", output " << o;
      error += (got - sum) * (got - sum);
      magnitude += sum * sum;
    }
  }
  constexpr double kToleranceInputs = 4096.0;
  EXPECT_LT(std::sqrt(error / magnitude),
            tolerance * std::sqrt(std::max(1.0, static_cast<double>(inputs) / kToleranceInputs)))
      << inputs << " inputs";
}

constexpr Format kPerTensor{WeightFormat::kFp8, 0, 0, DType::kF32},
    kPerOutput{WeightFormat::kFp8, 1, 0, DType::kF32}, kPerFiveOutputs{WeightFormat::kFp8, 5, 0, DType::kF32};
// Tensor cores keep about 14 bits of fp8 sums, so the error grows with the number of inputs: without a norm,
// 1.7e-3 for 4096 inputs and 3.7e-3 for 14336 were measured. The error of rounding x to fp8 is several times
// larger.
constexpr double kTolerance = 3e-3, kToleranceOf16Bits = 4e-3;

TEST_F(Fp8Linear, MatchesFloat64OfRoundedRows) {
  for (const Format& format : {kPerTensor, kPerOutput, kPerFiveOutputs})
    for (const auto& [rows, inputs, outs] : std::vector<std::array<int64_t, 3>>{
             {9, 4096, 256}, {16, 96, 48}, {33, 1024, 4096}, {130, 2064, 144}, {300, 14336, 64}}) {
      SCOPED_TRACE(testing::Message() << format << " " << rows << " x " << inputs << " -> " << outs);
      expect_near_float64({format, rows, inputs, outs, DType::kBF16, DType::kF32, false, false, 0.0f, 320},
                          kTolerance);
    }
}

TEST_F(Fp8Linear, SupportsF16AndBf16) {
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    // Sums of this many large terms exceed f16, so f16 inputs have float32 results.
    SCOPED_TRACE(testing::Message() << dtype);
    expect_near_float64({kPerOutput, 40, 512, 256, dtype, dtype == DType::kF16 ? DType::kF32 : dtype},
                        kToleranceOf16Bits);
  }
}

TEST_F(Fp8Linear, NormalizesXFirst) {
  for (const int64_t inputs : {64, 4096, 20480})
    expect_near_float64({kPerOutput, 21, inputs, 128, DType::kBF16, DType::kF32, false, true}, kTolerance);
}

TEST_F(Fp8Linear, AddsBiasAndExistingOutput) {
  expect_near_float64({kPerTensor, 25, 256, 80, DType::kBF16, DType::kF32, true, false}, kTolerance);
  expect_near_float64({kPerTensor, 25, 256, 80, DType::kBF16, DType::kF32, false, false, 200.0f}, kTolerance);
  expect_near_float64({kPerTensor, 25, 256, 80, DType::kBF16, DType::kF32, true, true, 200.0f}, kTolerance);
}

TEST_F(Fp8Linear, ProcessesRowsInPartsThatFitTheWorkspace) {
  expect_near_float64({kPerOutput, 133, 1024, 96, DType::kBF16, DType::kF32, false, true, 0.0f, 50},
                      kTolerance);
}

// Scales per block: tiles of 128 and 256 rows, one and several per CTA, inputs and outputs that end within a
// block or a tile, blocks of more outputs than a tile, and of all outputs.
TEST_F(Fp8Linear, MatchesFloat64OfRoundedBlocks) {
  for (const int64_t group_outs : {128, 256, 0})
    for (const auto& [rows, inputs, outs] : std::vector<std::array<int64_t, 3>>{{257, 4096, 136},
                                                                                {300, 14336, 64},
                                                                                {130, 2064, 13320},
                                                                                {700, 1024, 4096},
                                                                                {2300, 528, 2056},
                                                                                {1030, 384, 9000}}) {
      const Format format{WeightFormat::kFp8, group_outs, kBlock, DType::kF32};
      SCOPED_TRACE(testing::Message() << format << " " << rows << " x " << inputs << " -> " << outs);
      expect_near_float64({format, rows, inputs, outs, DType::kBF16, DType::kBF16, false, false, 0.0f, 2400},
                          kToleranceOf16Bits);
    }
}

TEST_F(Fp8Linear, NormalizesAndAddsToBlocksInPartsThatFitTheWorkspace) {
  const Format format{WeightFormat::kFp8, 128, kBlock, DType::kF32};
  for (const DType dtype : {DType::kBF16, DType::kF16})
    for (const bool norm : {false, true})
      for (const bool bias : {false, true})
        for (const float before : {0.0f, 200.0f})
          expect_near_float64({format, 333, 640, 200, dtype, dtype, bias, norm, before, 100},
                              kToleranceOf16Bits);
}

TEST_F(Fp8Linear, RowsWithNanOrInfinityAreNanWithBlockScales) {
  attend::cuda::OwnedStream stream(kGpu);
  const auto weight = testing_support::random_weight({WeightFormat::kFp8, 128, kBlock, DType::kF32}, 32, 256);
  TestTensor x = TestTensor::random({16, 256}, DType::kBF16, 1), out({16, 32}, DType::kBF16);
  x.set(3 * 256 + 5, std::numeric_limits<float>::quiet_NaN());
  x.set(9 * 256 + 200, std::numeric_limits<float>::infinity());
  const DeviceCopy quantized(weight->view.data, stream.get()), scales(weight->view.scales, stream.get()),
      device_x(x, stream.get()), device_out(out, stream.get());
  Weight on_device = weight->view;
  on_device.data = quantized.view();
  on_device.scales = scales.view();
  const Tensor workspace = attend::cuda::empty({8192}, DType::kU8, kGpu);
  fp8_block_linear({.x = device_x.view(),
                    .weight = on_device,
                    .bias = {},
                    .out = device_out.view(),
                    .workspace = {static_cast<std::byte*>(workspace.view().data), 8192}},
                   stream.get());
  device_out.download(stream.get());
  attend::cuda::synchronize(stream.get());
  for (int64_t i = 0; i < out.size(); ++i)
    EXPECT_EQ(std::isnan(out.at(i)), i / 32 == 3 || i / 32 == 9) << "row " << i / 32 << ": " << out.at(i);
}

TEST_F(Fp8Linear, RowsWithNanOrInfinityAreNan) {
  attend::cuda::OwnedStream stream(kGpu);
  const auto weight = testing_support::random_weight(kPerOutput, 32, 64);
  TestTensor x = TestTensor::random({16, 64}, DType::kBF16, 1), out({16, 32}, DType::kF32);
  x.set(3 * 64 + 5, std::numeric_limits<float>::quiet_NaN());
  x.set(9 * 64, std::numeric_limits<float>::infinity());
  const DeviceCopy quantized(weight->view.data, stream.get()), scales(weight->view.scales, stream.get()),
      device_x(x, stream.get()), device_out(out, stream.get());
  Weight on_device = weight->view;
  on_device.data = quantized.view();
  on_device.scales = scales.view();
  const Tensor workspace = attend::cuda::empty({8192}, DType::kU8, kGpu);
  fp8_linear({.x = device_x.view(),
              .weight = on_device,
              .bias = {},
              .out = device_out.view(),
              .workspace = {static_cast<std::byte*>(workspace.view().data), 8192}},
             stream.get());
  device_out.download(stream.get());
  attend::cuda::synchronize(stream.get());
  for (int64_t i = 0; i < out.size(); ++i)
    EXPECT_EQ(std::isnan(out.at(i)), i / 32 == 3 || i / 32 == 9) << "row " << i / 32 << ": " << out.at(i);
}

}  // namespace
}  // namespace attend::kernels::cuda
