// Swap-AB GEMM of quantized weights, called directly, since linear() may choose other kernels.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <vector>

#include "attend/kernels/gemm/cuda/sm90/swap_ab/swap_ab_gemm.h"
#include "tests/kernels/dense/cuda/quantized_case.h"
#include "tests/kernels/dense/cuda/sm90_test.h"

namespace attend::kernels::cuda {
namespace {

using testing_support::Format;

using Sm90SwapAbQuantized = testing_cuda::Sm90Test;

constexpr Format kTileFormats[] = {
    {WeightFormat::kFp8, 0, 0, DType::kF32},          {WeightFormat::kFp8, 1, 0, DType::kF32},
    {WeightFormat::kFp8, 128, 128, DType::kF32},      {WeightFormat::kInt4, 1, 128, DType::kBF16},
    {WeightFormat::kInt8, 1, 0, DType::kF32},         {WeightFormat::kInt8, 1, 128, DType::kF32},
    {WeightFormat::kInt4, 1, 256, DType::kF16, true}, {WeightFormat::kInt4, 1, 0, DType::kF32},
};

struct Case : testing_cuda::QuantizedCase {
  using QuantizedCase::QuantizedCase;
  std::vector<double> run(int64_t first, int64_t last, bool gated, float before = 0.0f) {
    return QuantizedCase::run(
        GemmKernel::kSwapAbQuantized,
        [](const LinearArgs& args, bool gate, Stream& on) { sm90::swap_ab_gemm(args, gate, on); }, first,
        last, gated, before);
  }
};

// Truncation by tensor cores when they align addends, relative to the sum of magnitudes.
constexpr double kTolerance = 8e-6;

// One tile and partial tiles, inputs that end within a K-block, clusters that share inputs, more tiles than
// CTAs, more rows of x than a launch supports.
TEST_F(Sm90SwapAbQuantized, MatchFloat64) {
  for (const DType x_dtype : {DType::kBF16, DType::kF16})
    for (const Format& format : kTileFormats) {
      const int64_t inputs = format.group_ins == 0 ? 96 : 256;
      for (const auto& [num_rows, num_outs, in_features] :
           std::vector<std::array<int64_t, 3>>{{1, 16, inputs},
                                               {3, 48, 512 + inputs},
                                               {17, 128, 1024},
                                               {33, 2064, inputs},
                                               {64, 144, 2048 + inputs},
                                               {65, 80, 1024},
                                               {8, 4096, 1024},
                                               {5, 17040, inputs},
                                               {200, 272, 768}}) {
        SCOPED_TRACE(testing::Message() << format << " " << x_dtype << " " << num_rows << " x " << in_features
                                        << " -> " << num_outs);
        Case test_case(format, x_dtype, num_rows, num_outs, in_features);
        const std::vector<double> got = test_case.run(0, num_rows, /*gated=*/false);
        test_case.expect_near_float64(got, num_rows, kTolerance);
      }
    }
}

TEST_F(Sm90SwapAbQuantized, AddToExistingOutput) {
  for (const Format& format : kTileFormats) {
    Case test_case(format, DType::kBF16, 20, 528, 1024);
    const std::vector<double> sums = test_case.run(0, 20, false), added = test_case.run(0, 20, false, 3.0f);
    for (size_t i = 0; i < sums.size(); ++i)
      ASSERT_NEAR(added[i], sums[i] + 3.0, 1e-6 * (3.0 + std::abs(sums[i]))) << format << " element " << i;
  }
}

TEST_F(Sm90SwapAbQuantized, ApplyGate) {
  for (const Format& format : kTileFormats)
    for (const int64_t num_rows : {1, 40, 70}) {
      constexpr int64_t kOuts = 264;
      Case test_case(format, DType::kBF16, num_rows, 2 * kOuts, 512);
      const std::vector<double> sums = test_case.run(0, num_rows, false),
                                gated = test_case.run(0, num_rows, true);
      for (int64_t row = 0; row < num_rows; ++row)
        for (int64_t o = 0; o < kOuts; ++o) {
          const double gate = sums[static_cast<size_t>(row * 2 * kOuts + o)],
                       up = sums[static_cast<size_t>(row * 2 * kOuts + kOuts + o)];
          ASSERT_NEAR(gated[static_cast<size_t>(row * kOuts + o)], gate / (1.0 + std::exp(-gate)) * up,
                      1e-4 * (1.0 + std::abs(gate)) * (1.0 + std::abs(up)))
              << format << ", row " << row << ", output " << o;
        }
    }
}

TEST_F(Sm90SwapAbQuantized, AreBatchInvariant) {
  for (const Format& format : kTileFormats) {
    Case test_case(format, DType::kBF16, 100, 272, 1536);
    const std::vector<double> all = test_case.run(0, 100, false);
    for (const auto& [first, last] : {std::pair<int64_t, int64_t>{0, 1}, {5, 30}, {40, 100}, {99, 100}}) {
      const std::vector<double> some = test_case.run(first, last, false);
      for (size_t i = 0; i < some.size(); ++i)
        ASSERT_EQ(some[i], all[static_cast<size_t>(first * 272) + i]) << format << " from row " << first;
    }
  }
}

}  // namespace
}  // namespace attend::kernels::cuda
