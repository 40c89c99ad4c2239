// The swap-AB GEMM of quantised weights, called directly: linear() may give them to others.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "attend/kernels/common/cuda/gpu_facts.h"
#include "attend/kernels/gemm/cuda/linear.h"
#include "attend/kernels/gemm/cuda/sm90/swap_ab_gemm.h"
#include "attend/kernels/gemm/weights.h"
#include "tests/kernels/cuda/device_copy.h"
#include "tests/kernels/dense/quantised_weight.h"
#include "tests/kernels/dense/sm90_test.h"
#include "tests/kernels/dense/test_tensor.h"

namespace attend::kernels::cuda {
namespace {

using attend::cuda::OwnedStream;
using testing_cuda::DeviceCopy;
using testing_cuda::kGpu;
using testing_support::Format;
using testing_support::random_weight;
using testing_support::TestTensor;
using testing_support::TestWeight;

using Sm90SwapAbCodes = testing_cuda::Sm90Test;

constexpr Format kTileFormats[] = {
    {WeightFormat::kFp8, 0, 0, DType::kF32},          {WeightFormat::kFp8, 1, 0, DType::kF32},
    {WeightFormat::kFp8, 128, 128, DType::kF32},      {WeightFormat::kInt4, 1, 128, DType::kBF16},
    {WeightFormat::kInt4, 1, 256, DType::kF16, true}, {WeightFormat::kInt4, 1, 0, DType::kF32},
};

// A case on the GPU: x, a weight and what out holds before.
struct Case {
  OwnedStream stream{kGpu};
  std::unique_ptr<TestWeight> weight;
  TestTensor x;
  DeviceCopy codes, scales, zeros, device_x;

  Case(const Format& format, DType x_dtype, int64_t num_rows, int64_t weight_rows, int64_t in_features)
      : weight(random_weight(format, weight_rows, in_features)),
        x(TestTensor::random({num_rows, in_features}, x_dtype, 1)),
        codes(weight->view.data, stream.get()),
        scales(weight->view.scales, stream.get()),
        zeros(weight->view.zeros, stream.get()),
        device_x(x, stream.get()) {}

  // Rows [first, last) of x.
  std::vector<double> run(int64_t first, int64_t last, bool gated, float before = 0.0f) {
    const int64_t num_outs = weight->view.out_features() / (gated ? 2 : 1);
    TestTensor out({last - first, num_outs}, DType::kF32);
    out.fill(before == 0.0f ? std::numeric_limits<float>::quiet_NaN() : before);
    const DeviceCopy device_out(out, stream.get());
    Weight on_device = weight->view;
    on_device.data = codes.view();
    on_device.scales = scales.view();
    if (!on_device.zeros.empty()) on_device.zeros = zeros.view();
    const LinearArgs args{.x = device_x.view().slice(0, first, last),
                          .weight = on_device,
                          .bias = {},
                          .out = device_out.view(),
                          .accumulate = before != 0.0f};
    EXPECT_TRUE(gemm_row(GemmKernel::kSwapAbCodes).takes(gemm_problem(args, gated), gpu_facts(kGpu)));
    sm90::swap_ab_gemm(args, gated, stream.get());
    device_out.download(stream.get());
    attend::cuda::synchronize(stream.get());
    return out.values();
  }

  struct Sum {
    double value = 0.0, magnitude = 0.0;
  };
  Sum sum(int64_t row, const std::vector<double>& elements) const {
    Sum sum;
    for (size_t i = 0; i < elements.size(); ++i) {
      const double term = x.at(row * std::ssize(elements) + static_cast<int64_t>(i)) * elements[i];
      sum.value += term;
      sum.magnitude += std::abs(term);
    }
    return sum;
  }
};

// What the tensor cores cut off when they align what they add, in parts of the sum of the magnitudes.
constexpr double kTolerance = 8e-6;

// One tile and parts of one, inputs that end within a K-block, clusters that share them, more tiles than
// CTAs, more rows of x than a launch takes.
TEST_F(Sm90SwapAbCodes, MatchFloat64) {
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
        Case given(format, x_dtype, num_rows, num_outs, in_features);
        const std::vector<double> got = given.run(0, num_rows, /*gated=*/false);
        const int64_t row_step = 1 + num_rows / 12, out_step = 1 + num_outs / 150;
        for (int64_t o = 0; o < num_outs; o += out_step) {
          const std::vector<double> elements = reference::weight_row(given.weight->view, o);
          for (int64_t row = o % row_step; row < num_rows; row += row_step) {
            const Case::Sum expected = given.sum(row, elements);
            ASSERT_NEAR(got[static_cast<size_t>(row * num_outs + o)], expected.value,
                        kTolerance * expected.magnitude)
                << "row " << row << ", output " << o;
          }
        }
      }
    }
}

TEST_F(Sm90SwapAbCodes, AddToWhatThereIs) {
  for (const Format& format : kTileFormats) {
    Case given(format, DType::kBF16, 20, 528, 1024);
    const std::vector<double> sums = given.run(0, 20, false), added = given.run(0, 20, false, 3.0f);
    for (size_t i = 0; i < sums.size(); ++i)
      ASSERT_NEAR(added[i], sums[i] + 3.0, 1e-6 * (3.0 + std::abs(sums[i]))) << format << " element " << i;
  }
}

TEST_F(Sm90SwapAbCodes, GateTheirSums) {
  for (const Format& format : kTileFormats)
    for (const int64_t num_rows : {1, 40, 70}) {
      constexpr int64_t kOuts = 264;
      Case given(format, DType::kBF16, num_rows, 2 * kOuts, 512);
      const std::vector<double> sums = given.run(0, num_rows, false), gated = given.run(0, num_rows, true);
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

TEST_F(Sm90SwapAbCodes, GiveARowItsBitsInAnyBatch) {
  for (const Format& format : kTileFormats) {
    Case given(format, DType::kBF16, 100, 272, 1536);
    const std::vector<double> all = given.run(0, 100, false);
    for (const auto& [first, last] : {std::pair<int64_t, int64_t>{0, 1}, {5, 30}, {40, 100}, {99, 100}}) {
      const std::vector<double> some = given.run(first, last, false);
      for (size_t i = 0; i < some.size(); ++i)
        ASSERT_EQ(some[i], all[static_cast<size_t>(first * 272) + i]) << format << " from row " << first;
    }
  }
}

}  // namespace
}  // namespace attend::kernels::cuda
