// Swap-AB GEMM of int4 with scaled factors and of fp8 with scales per row, called directly, since linear()
// may choose other kernels.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <ostream>
#include <span>
#include <utility>
#include <vector>

#include "attend/kernels/gemm/cuda/sm90/swap_ab/swap_ab_gemm.h"
#include "tests/kernels/dense/cuda/quantized_case.h"
#include "tests/kernels/dense/cuda/sm90_test.h"

namespace attend::kernels::cuda {
namespace {

using testing_support::Format;

using Sm90ScaledQuantized = testing_cuda::Sm90Test;

struct ScaledFormat {
  Format weight;
  DType x;  // for int4 also the dtype of the scales
  friend std::ostream& operator<<(std::ostream& out, const ScaledFormat& format) {
    return out << format.weight << " by " << format.x;
  }
};
constexpr ScaledFormat kScaledFormats[] = {
    {{WeightFormat::kInt4, 1, 128, DType::kBF16}, DType::kBF16},
    {{WeightFormat::kInt4, 1, 128, DType::kBF16, true}, DType::kBF16},
    {{WeightFormat::kInt4, 1, 128, DType::kF16}, DType::kF16},
    {{WeightFormat::kInt4, 1, 128, DType::kF16, true}, DType::kF16},
    {{WeightFormat::kFp8, 1, 0, DType::kF32}, DType::kBF16},
    {{WeightFormat::kFp8, 0, 0, DType::kF32}, DType::kBF16},
    {{WeightFormat::kFp8, 5, 0, DType::kF32}, DType::kF16},
};

struct Case : testing_cuda::QuantizedCase {
  Case(const ScaledFormat& format, int64_t num_rows, int64_t weight_rows, int64_t in_features)
      : QuantizedCase(format.weight, format.x, num_rows, weight_rows, in_features) {}

  std::vector<double> run(int64_t num_rows, bool gated, float before = 0.0f,
                          const sm90::SwapAbGemmShape* shape = nullptr) {
    return run_rows(0, num_rows, gated, before, shape);
  }
  std::vector<double> run_rows(int64_t first, int64_t last, bool gated, float before = 0.0f,
                               const sm90::SwapAbGemmShape* shape = nullptr, const TensorView& bias = {}) {
    return QuantizedCase::run(
        GemmKernel::kScaledQuantized,
        [&](const LinearArgs& args, bool gate, Stream& on) {
          shape == nullptr ? sm90::scaled_quantized_gemm(args, gate, on)
                           : static_cast<void>(sm90::swap_ab_gemm(args, gate, *shape, on));
        },
        first, last, gated, before, /*norm=*/{}, bias);
  }

  // Compares with float64 sums of products of elements, which are rounded to 16 bits once for int4.
  void expect_near(const std::vector<double>& got, int64_t num_rows) const {
    constexpr double kTolerance = 8e-6;  // as in sm90_swap_ab_quantized_test.cc
    if (weight->view.format == WeightFormat::kFp8) return expect_near_float64(got, num_rows, kTolerance);
    const int64_t num_outs = weight->view.out_features(), in_features = x.view().shape[1];
    for (int64_t o = 0; o < num_outs; o += 1 + num_outs / 150) {
      testing_support::TestTensor rounded({in_features}, x.view().dtype);
      std::vector<double> elements = kernels::reference::weight_row(weight->view, o);
      for (int64_t i = 0; i < in_features; ++i) {
        rounded.set(i, static_cast<float>(elements[static_cast<size_t>(i)]));
        elements[static_cast<size_t>(i)] = rounded.at(i);
      }
      for (int64_t row = o % 7; row < num_rows; row += 7) {
        const Sum expected = sum(row, elements);
        ASSERT_NEAR(got[static_cast<size_t>(row * num_outs + o)], expected.value,
                    kTolerance * expected.magnitude)
            << "row " << row << ", output " << o;
      }
    }
  }
};

// Partial tiles, more tiles than CTAs, clusters that share inputs, more rows of x than a launch supports.
TEST_F(Sm90ScaledQuantized, MatchFloat64) {
  for (const ScaledFormat& format : kScaledFormats)
    for (const auto& [num_rows, num_outs, in_features] :
         std::vector<std::array<int64_t, 3>>{{1, 16, 256},
                                             {65, 272, 512},
                                             {100, 2064, 1024},
                                             {128, 4096, 1536},
                                             {70, 34064, 256},
                                             {200, 144, 3840}}) {
      SCOPED_TRACE(testing::Message()
                   << format << " " << num_rows << " x " << in_features << " -> " << num_outs);
      Case test_case(format, num_rows, num_outs, in_features);
      test_case.expect_near(test_case.run(num_rows, /*gated=*/false), num_rows);
    }
}

// Inputs that end within a stage of W, or within a part of a stage, which TMA fills with zeros.
TEST_F(Sm90ScaledQuantized, MatchFloat64IfRowsOfFp8EndWithinAStage) {
  for (const ScaledFormat& format : std::span(kScaledFormats).subspan(4))
    for (const int64_t in_features : {16, 112, 160, 944, 1200}) {
      SCOPED_TRACE(testing::Message() << format << ", " << in_features << " inputs");
      Case test_case(format, 70, 400, in_features);
      test_case.expect_near(test_case.run(70, /*gated=*/false), 70);
    }
}

// Every distribution of a layer among CTAs and clusters.
TEST_F(Sm90ScaledQuantized, MatchFloat64InEveryShape) {
  for (const ScaledFormat& format : {kScaledFormats[0], kScaledFormats[3], kScaledFormats[4]})
    for (const int tiles : {1, 2})
      for (const int cluster_size : {1, 2, 3, 4, 6, 8})
        for (const int num_clusters : {1, 2, 5}) {
          SCOPED_TRACE(testing::Message() << format << ", " << tiles << " tiles, " << num_clusters
                                          << " clusters of " << cluster_size);
          const sm90::SwapAbGemmShape shape{.tile_pairs = 8,
                                            .cluster_size = cluster_size,
                                            .num_clusters = num_clusters,
                                            .scaled_tiles = tiles};
          Case test_case(format, 90, 656, 2304);
          test_case.expect_near(test_case.run(90, /*gated=*/false, 0.0f, &shape), 90);
        }
}

TEST_F(Sm90ScaledQuantized, AddToExistingOutput) {
  for (const ScaledFormat& format : kScaledFormats) {
    Case test_case(format, 90, 528, 1024);
    const std::vector<double> sums = test_case.run(90, false), added = test_case.run(90, false, 3.0f);
    for (size_t i = 0; i < sums.size(); ++i)
      ASSERT_NEAR(added[i], sums[i] + 3.0, 1e-6 * (3.0 + std::abs(sums[i]))) << format << " element " << i;
  }
}

TEST_F(Sm90ScaledQuantized, ApplyGate) {
  for (const ScaledFormat& format : kScaledFormats)
    for (const int64_t num_rows : {40, 100}) {
      constexpr int64_t kOuts = 264;
      Case test_case(format, num_rows, 2 * kOuts, 512);
      const std::vector<double> sums = test_case.run(num_rows, false), gated = test_case.run(num_rows, true);
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

// A lane's two rows of W (gate and up in gated layers) have separate factors and biases.
TEST_F(Sm90ScaledQuantized, AddBiasAfterScaling) {
  for (const ScaledFormat& format : kScaledFormats)
    for (const int cluster_size : {1, 2}) {
      constexpr int64_t kNumRows = 70, kNumOuts = 528;
      const sm90::SwapAbGemmShape shape{
          .tile_pairs = 8, .cluster_size = cluster_size, .num_clusters = 3, .scaled_tiles = 3 - cluster_size};
      Case test_case(format, kNumRows, kNumOuts, 512);
      const testing_support::TestTensor bias =
          testing_support::TestTensor::random({kNumOuts}, DType::kF32, 5, 3.0f);
      const testing_cuda::DeviceCopy on_device(bias, test_case.stream.get());
      const std::vector<double> sums = test_case.run(kNumRows, false, 0.0f, &shape),
                                added =
                                    test_case.run_rows(0, kNumRows, false, 0.0f, &shape, on_device.view()),
                                gated = test_case.run_rows(0, kNumRows, true, 0.0f, &shape, on_device.view());
      for (size_t i = 0; i < sums.size(); ++i) {
        const double expected = sums[i] + bias.at(static_cast<int64_t>(i) % kNumOuts);
        ASSERT_NEAR(added[i], expected, 1e-6 * (3.0 + std::abs(sums[i]))) << format << " element " << i;
      }
      for (int64_t row = 0; row < kNumRows; ++row)
        for (int64_t o = 0; o < kNumOuts / 2; ++o) {
          const double gate = added[static_cast<size_t>(row * kNumOuts + o)],
                       up = added[static_cast<size_t>(row * kNumOuts + kNumOuts / 2 + o)];
          ASSERT_NEAR(gated[static_cast<size_t>(row * kNumOuts / 2 + o)], gate / (1.0 + std::exp(-gate)) * up,
                      1e-4 * (1.0 + std::abs(gate)) * (1.0 + std::abs(up)))
              << format << ", row " << row << ", output " << o;
        }
    }
}

TEST_F(Sm90ScaledQuantized, AreBatchInvariant) {
  for (const ScaledFormat& format : kScaledFormats) {
    Case test_case(format, 150, 272, 1536);
    const std::vector<double> all = test_case.run(150, false);
    for (const auto& [first, last] : {std::pair<int64_t, int64_t>{0, 1}, {5, 70}, {40, 150}, {149, 150}}) {
      const std::vector<double> some = test_case.run_rows(first, last, false);
      for (size_t i = 0; i < some.size(); ++i)
        ASSERT_EQ(some[i], all[static_cast<size_t>(first * 272) + i]) << format << " from row " << first;
    }
  }
}

}  // namespace
}  // namespace attend::kernels::cuda
