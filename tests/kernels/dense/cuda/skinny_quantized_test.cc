// Skinny GEMM of quantized weights, called directly, since linear() may choose other kernels.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <vector>

#include "attend/kernels/gemm/cuda/sm80/skinny_gemm.h"
#include "tests/kernels/dense/cuda/quantized_case.h"
#include "tests/kernels/dense/cuda/sm90_test.h"

namespace attend::kernels::cuda {
namespace {

using testing_cuda::DeviceCopy;
using testing_support::Format;
using testing_support::TestTensor;

// Requires the shared memory of Hopper.
using SkinnyQuantized = testing_cuda::Sm90Test;

constexpr Format kQuantizedFormats[] = {
    {WeightFormat::kFp8, 0, 0, DType::kF32},         {WeightFormat::kFp8, 1, 0, DType::kF32},
    {WeightFormat::kFp8, 128, 128, DType::kF32},     {WeightFormat::kFp8, 8, 256, DType::kF32},
    {WeightFormat::kInt8, 1, 0, DType::kF32},        {WeightFormat::kInt8, 1, 128, DType::kF32},
    {WeightFormat::kInt4, 1, 128, DType::kBF16},     {WeightFormat::kInt4, 1, 128, DType::kF16},
    {WeightFormat::kInt4, 1, 128, DType::kF16, true}};

struct Case : testing_cuda::QuantizedCase {
  using QuantizedCase::QuantizedCase;
  std::vector<double> run(int64_t first, int64_t last, bool gated, float before = 0.0f,
                          const InputNorm& norm = {}) {
    return QuantizedCase::run(
        GemmKernel::kSkinnyQuantized,
        [](const LinearArgs& args, bool gate, Stream& on) {
          sm80::launch_skinny_quantized(sm80::skinny_quantized_params(args, gate), args.x.dtype, on.handle);
        },
        first, last, gated, before, norm);
  }
};

// Truncation by tensor cores when they align addends, relative to the sum of magnitudes.
constexpr double kTolerance = 8e-6;

// Warps with zero, one and several K-blocks; fewer n-tiles than CTAs; odd numbers of groups; several passes;
// more rows of W than one pass of all CTAs processes; every position of a row of x.
TEST_F(SkinnyQuantized, MatchFloat64) {
  for (const DType x_dtype : {DType::kBF16, DType::kF16})
    for (const Format& format : kQuantizedFormats)
      for (const auto& [num_rows, num_outs, in_features] :
           std::vector<std::array<int64_t, 3>>{{1, 8, 512},
                                               {1, 4096, 512},
                                               {1, 3176, 1024},
                                               {1, 17040, 512},
                                               {1, 72, 14336},
                                               {1, 48, 20480},
                                               {2, 40, 512},
                                               {5, 2064, 2048},
                                               {7, 10568, 512},
                                               {8, 1040, 2560}}) {
        SCOPED_TRACE(testing::Message() << format << " " << x_dtype << " " << num_rows << " x " << in_features
                                        << " -> " << num_outs);
        Case test_case(format, x_dtype, num_rows, num_outs, in_features);
        test_case.expect_near_float64(test_case.run(0, num_rows, /*gated=*/false), num_rows, kTolerance);
        if (HasFatalFailure()) return;
      }
}

TEST_F(SkinnyQuantized, AddToExistingOutput) {
  for (const Format& format : kQuantizedFormats)
    for (const int64_t num_rows : {1, 6}) {
      Case test_case(format, DType::kBF16, num_rows, 528, 1024);
      const std::vector<double> sums = test_case.run(0, num_rows, false),
                                added = test_case.run(0, num_rows, false, 3.0f);
      for (size_t i = 0; i < sums.size(); ++i)
        ASSERT_NEAR(added[i], sums[i] + 3.0, 1e-6 * (3.0 + std::abs(sums[i]))) << format << " element " << i;
    }
}

TEST_F(SkinnyQuantized, ApplyGate) {
  for (const Format& format : kQuantizedFormats)
    for (const auto& [num_rows, num_outs] :
         std::vector<std::array<int64_t, 2>>{{1, 264}, {1, 14336}, {8, 264}, {3, 5000}}) {
      Case test_case(format, DType::kBF16, num_rows, 2 * num_outs, 512);
      const std::vector<double> sums = test_case.run(0, num_rows, false),
                                gated = test_case.run(0, num_rows, true);
      for (int64_t row = 0; row < num_rows; ++row)
        for (int64_t o = 0; o < num_outs; ++o) {
          const double gate = sums[static_cast<size_t>(row * 2 * num_outs + o)],
                       up = sums[static_cast<size_t>(row * 2 * num_outs + num_outs + o)];
          ASSERT_NEAR(gated[static_cast<size_t>(row * num_outs + o)], gate / (1.0 + std::exp(-gate)) * up,
                      1e-4 * (1.0 + std::abs(gate)) * (1.0 + std::abs(up)))
              << format << ", row " << row << ", output " << o;
        }
    }
}

// x times the norm's weights is rounded once; the scale is applied after the product.
TEST_F(SkinnyQuantized, NormalizeInputs) {
  constexpr float kEps = 1e-3f;
  constexpr int64_t kOuts = 1040, kInputs = 2560;
  const TestTensor norm = TestTensor::random({kInputs}, DType::kBF16, 9);
  for (const Format& format : kQuantizedFormats)
    for (const int64_t num_rows : {1, 7}) {
      Case test_case(format, DType::kBF16, num_rows, kOuts, kInputs);
      const DeviceCopy norm_weight(norm, test_case.stream.get());
      const std::vector<double> got =
          test_case.run(0, num_rows, false, 0.0f,
                        {.weight = norm_weight.view(), .eps = kEps, .normalized = test_case.device_x.view()});
      for (int64_t o = 0; o < kOuts; o += 13) {
        const std::vector<double> elements = reference::weight_row(test_case.weight->view, o);
        for (int64_t row = 0; row < num_rows; ++row) {
          double value = 0.0, magnitude = 0.0, squares = 0.0;
          for (int64_t i = 0; i < kInputs; ++i) {
            const double x = test_case.x.at(row * kInputs + i);
            const auto weighted = static_cast<double>(
                static_cast<float>(BF16(static_cast<float>(x) * static_cast<float>(norm.at(i)))));
            value += weighted * elements[static_cast<size_t>(i)];
            magnitude += std::abs(weighted * elements[static_cast<size_t>(i)]);
            squares += x * x;
          }
          const double scale = 1.0 / std::sqrt(squares / kInputs + static_cast<double>(kEps));
          ASSERT_NEAR(got[static_cast<size_t>(row * kOuts + o)], value * scale,
                      2.0 * kTolerance * magnitude * scale)
              << format << ", row " << row << ", output " << o;
        }
      }
    }
}

TEST_F(SkinnyQuantized, AreBatchInvariant) {
  for (const Format& format : kQuantizedFormats) {
    Case test_case(format, DType::kBF16, 8, 2768, 1536);
    const std::vector<double> all = test_case.run(0, 8, false);
    for (const auto& [first, last] : {std::pair<int64_t, int64_t>{0, 1}, {2, 7}, {7, 8}, {3, 5}}) {
      const std::vector<double> some = test_case.run(first, last, false);
      for (size_t i = 0; i < some.size(); ++i)
        ASSERT_EQ(some[i], all[static_cast<size_t>(first * 2768) + i]) << format << " from row " << first;
    }
  }
}

TEST_F(SkinnyQuantized, ProduceTheSameBitsAHundredTimes) {
  for (const Format& format : kQuantizedFormats) {
    Case test_case(format, DType::kBF16, 8, 2048, 1024);
    for (const int64_t num_rows : {1, 8}) {
      const std::vector<double> once = test_case.run(0, num_rows, false);
      for (int i = 0; i < 100; ++i) ASSERT_EQ(test_case.run(0, num_rows, false), once) << format;
    }
  }
}

}  // namespace
}  // namespace attend::kernels::cuda
