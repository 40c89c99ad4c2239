// Swap-AB GEMM of sm_90, called directly with every number of rows, including those for which linear()
// chooses other kernels.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "attend/kernels/common/cuda/gpu_facts.h"
#include "attend/kernels/gemm/cuda/linear.h"
#include "attend/kernels/gemm/cuda/sm90/swap_ab/swap_ab_gemm.h"
#include "attend/tensor/cuda.h"
#include "tests/kernels/cuda/support/device_copy.h"
#include "tests/kernels/dense/cuda/sm90_test.h"
#include "tests/kernels/dense/test_tensor.h"

namespace attend::kernels::cuda {
namespace {

using attend::cuda::OwnedStream;
using testing_cuda::DeviceCopy;
using testing_cuda::kGpu;
using testing_support::TestTensor;

class Sm90SwapAbGemm : public testing_cuda::Sm90Test {};

struct Shape {
  int64_t weight_rows, in_features;
};

std::ostream& operator<<(std::ostream& out, const Shape& shape) {
  return out << shape.weight_rows << " rows of " << shape.in_features;
}

// One tile and one chunk; partial tiles and chunks; tiles split among many CTAs; more tiles than CTAs; 128
// rows per tile.
constexpr Shape kShapes[] = {{64, 64},     {16, 8},      {48, 200},    {320, 1032},
                             {1024, 4096}, {16512, 144}, {512, 17000}, {4128, 2056}};
constexpr int64_t kRows[] = {1, 8, 17, 32, 33, 64, 100, 128, 200, 256};

// Inputs of a case on the host and on the GPU. Weights repeat with a prime period, which is fast to generate.
struct Case {
  OwnedStream stream{kGpu};
  TestTensor x, weight, bias;
  DeviceCopy device_x, device_weight, device_bias;

  Case(const Shape& shape, int64_t num_rows, DType dtype)
      : x(TestTensor::random({num_rows, shape.in_features}, dtype, 1)),
        weight({shape.weight_rows, shape.in_features}, dtype),
        bias(TestTensor::random({shape.weight_rows}, dtype, 3)),
        device_x(x, stream.get()),
        device_weight(filled(weight), stream.get()),
        device_bias(bias, stream.get()) {}

  static const TestTensor& filled(TestTensor& weight) {
    for (int64_t i = 0; i < weight.size(); ++i)
      weight.set(i, 0.05f * static_cast<float>(i * 2654435761 % 10007 - 5003) / 5003.0f);
    return weight;
  }

  LinearArgs args(const TensorView& out) const {
    return {.x = device_x.view(), .weight = device_weight.view(), .bias = {}, .out = out};
  }

  void run(const LinearArgs& args, bool gated) {
    ASSERT_TRUE(gemm_row(GemmKernel::kSwapAbSplitK).supports(gemm_problem(args, gated), gpu_facts(kGpu)));
    sm90::swap_ab_gemm(args, gated, stream.get());
  }

  // A sum in float64, and the sum of the magnitudes of its terms.
  struct Sum {
    double value = 0.0, magnitude = 0.0;
  };
  Sum sum(int64_t row, int64_t out) const {
    const int64_t in_features = x.view().shape[1];
    Sum sum;
    for (int64_t i = 0; i < in_features; ++i) {
      const double term = x.at(row * in_features + i) * weight.at(out * in_features + i);
      sum.value += term;
      sum.magnitude += std::abs(term);
    }
    return sum;
  }
};

// Truncation by tensor cores when they align addends, relative to the sum of magnitudes.
constexpr double kTolerance = 2e-6;

double rounding_error(DType dtype) { return dtype == DType::kBF16 ? 0x1p-8 : 0x1p-11; }

// Calls check(row, out) for some elements of every tile and every group of rows.
template <class Check>
void for_some(int64_t num_rows, int64_t num_outs, const Check& check) {
  const int64_t row_step = 1 + num_rows / 12, out_step = 1 + num_outs / 60;
  for (int64_t row = 0; row < num_rows; row += row_step)
    for (int64_t out = row % out_step; out < num_outs; out += out_step) {
      check(row, out);
      if (testing::Test::HasFatalFailure()) return;
    }
  check(num_rows - 1, num_outs - 1);
}

class Sm90SwapAbGemmOfShape : public Sm90SwapAbGemm, public testing::WithParamInterface<Shape> {};

TEST_P(Sm90SwapAbGemmOfShape, MatchesFloat64) {
  const Shape& shape = GetParam();
  for (const DType dtype : {DType::kBF16, DType::kF16})
    for (const int64_t num_rows : kRows) {
      SCOPED_TRACE(testing::Message() << dtype << " " << num_rows << " times " << shape);
      Case test_case(shape, num_rows, dtype);
      TestTensor out({num_rows, shape.weight_rows}, DType::kF32);
      out.fill(NAN);
      const DeviceCopy device_out(out, test_case.stream.get());
      LinearArgs args = test_case.args(device_out.view());
      args.bias = test_case.device_bias.view();
      test_case.run(args, /*gated=*/false);
      device_out.download(test_case.stream.get());
      attend::cuda::synchronize(test_case.stream.get());
      for_some(num_rows, shape.weight_rows, [&](int64_t row, int64_t o) {
        const Case::Sum expected = test_case.sum(row, o);
        ASSERT_NEAR(out.at(row * shape.weight_rows + o), expected.value + test_case.bias.at(o),
                    kTolerance * (expected.magnitude + std::abs(test_case.bias.at(o))))
            << "row " << row << ", output " << o;
      });
      if (HasFatalFailure()) return;
    }
}

TEST_P(Sm90SwapAbGemmOfShape, GatedIsSiluOfTheFirstHalfTimesTheSecond) {
  const Shape& shape = GetParam();
  for (const DType dtype : {DType::kBF16, DType::kF16})
    for (const int64_t num_rows : {17, 40, 128, 256}) {
      SCOPED_TRACE(testing::Message() << dtype << " " << num_rows << " times " << shape);
      Case test_case(shape, num_rows, dtype);
      const int64_t num_outs = shape.weight_rows / 2;
      TestTensor out({num_rows, num_outs}, dtype);
      out.fill(NAN);
      const DeviceCopy device_out(out, test_case.stream.get());
      LinearArgs args = test_case.args(device_out.view());
      args.bias = test_case.device_bias.view();
      test_case.run(args, /*gated=*/true);
      device_out.download(test_case.stream.get());
      attend::cuda::synchronize(test_case.stream.get());
      for_some(num_rows, num_outs, [&](int64_t row, int64_t o) {
        const Case::Sum gates = test_case.sum(row, o), ups = test_case.sum(row, num_outs + o);
        const double gate = gates.value + test_case.bias.at(o),
                     up = ups.value + test_case.bias.at(num_outs + o);
        const double expected = gate / (1.0 + std::exp(-gate)) * up;
        ASSERT_NEAR(out.at(row * num_outs + o), expected,
                    rounding_error(dtype) * std::abs(expected) + 1e-7 +
                        2.0 * kTolerance *
                            (gates.magnitude * (1.0 + std::abs(up)) + ups.magnitude * (1.0 + std::abs(gate))))
            << "row " << row << ", output " << o;
      });
      if (HasFatalFailure()) return;
    }
}
INSTANTIATE_TEST_SUITE_P(Each, Sm90SwapAbGemmOfShape, testing::ValuesIn(kShapes));

// The parameter is the number of weight rows per tile, in units of 16.
class Sm90SwapAbGemmOfHeight : public Sm90SwapAbGemm, public testing::WithParamInterface<int> {};

// Every cluster size, and clusters with several tiles, including a partial last round.
TEST_P(Sm90SwapAbGemmOfHeight, MatchesFloat64ForAnyWorkSplit) {
  constexpr Shape kShape{1040, 1032};
  const int tile_pairs = GetParam();
  for (const int64_t num_rows : {5, 40, 128}) {
    Case test_case(kShape, num_rows, DType::kBF16);
    for (const int cluster_size : {1, 2, 4, 8})
      for (const int num_clusters : {1, 3}) {
        if (cluster_size > sm90::kMinColumns * tile_pairs) continue;
        SCOPED_TRACE(testing::Message()
                     << num_rows << " rows, " << num_clusters << " clusters of " << cluster_size);
        TestTensor out({num_rows, kShape.weight_rows}, DType::kF32);
        out.fill(NAN);
        const DeviceCopy device_out(out, test_case.stream.get());
        sm90::swap_ab_gemm(
            test_case.args(device_out.view()), /*gated=*/false,
            {.tile_pairs = tile_pairs, .cluster_size = cluster_size, .num_clusters = num_clusters},
            test_case.stream.get());
        device_out.download(test_case.stream.get());
        attend::cuda::synchronize(test_case.stream.get());
        for_some(num_rows, kShape.weight_rows, [&](int64_t row, int64_t o) {
          const Case::Sum expected = test_case.sum(row, o);
          ASSERT_NEAR(out.at(row * kShape.weight_rows + o), expected.value, kTolerance * expected.magnitude)
              << "row " << row << ", output " << o;
        });
        if (HasFatalFailure()) return;
      }
  }
}
INSTANTIATE_TEST_SUITE_P(Each, Sm90SwapAbGemmOfHeight, testing::Range(1, 9));

TEST_F(Sm90SwapAbGemm, AddsToRowsOfAWiderTensor) {
  for (const DType dtype : {DType::kBF16, DType::kF16})
    for (const Shape& shape : {Shape{320, 1032}, Shape{4128, 2056}})
      for (const int64_t gap : {3, 8})  // output rows without and with 16-byte alignment
        for (const int64_t num_rows : {20, 128, 250}) {
          SCOPED_TRACE(testing::Message()
                       << dtype << " " << num_rows << " times " << shape << ", gap " << gap);
          Case test_case(shape, num_rows, dtype);
          const int64_t width = shape.weight_rows + gap;
          TestTensor out = TestTensor::random({num_rows, width}, dtype, 5);
          const std::vector<double> before = out.values();
          const DeviceCopy device_out(out, test_case.stream.get());
          LinearArgs args = test_case.args(device_out.view().slice(1, 0, shape.weight_rows));
          args.accumulate = true;
          test_case.run(args, /*gated=*/false);
          device_out.download(test_case.stream.get());
          attend::cuda::synchronize(test_case.stream.get());
          for_some(num_rows, width, [&](int64_t row, int64_t o) {
            const double was = before[static_cast<size_t>(row * width + o)];
            if (o >= shape.weight_rows) {
              ASSERT_EQ(out.at(row * width + o), was) << "row " << row << ", gap " << o;
              return;
            }
            const Case::Sum added = test_case.sum(row, o);
            ASSERT_NEAR(out.at(row * width + o), added.value + was,
                        rounding_error(dtype) * std::abs(added.value + was) + kTolerance * added.magnitude)
                << "row " << row << ", output " << o;
          });
          if (HasFatalFailure()) return;
        }
}

// Bits of the first rows of `test_case`, computed by a GEMM of that many rows.
std::vector<float> product_of_first(Case& test_case, int64_t num_rows, bool gated) {
  const int64_t num_outs = test_case.weight.view().shape[0] / (gated ? 2 : 1);
  TestTensor out({num_rows, num_outs}, DType::kF32);
  out.fill(NAN);
  const DeviceCopy device_out(out, test_case.stream.get());
  LinearArgs args = test_case.args(device_out.view());
  args.x = args.x.slice(0, 0, num_rows);
  test_case.run(args, gated);
  device_out.download(test_case.stream.get());
  attend::cuda::synchronize(test_case.stream.get());
  const auto* const first = out.view().as<float>();
  return {first, first + out.size()};
}

TEST_F(Sm90SwapAbGemm, BitsOfARowDoNotDependOnTheNumberOfRows) {
  constexpr int64_t kMaxRows = 600;
  for (const bool gated : {false, true})
    for (const Shape& shape : {Shape{320, 1032}, Shape{1024, 4096}, Shape{4128, 2056}}) {
      SCOPED_TRACE(testing::Message() << shape << (gated ? ", gated" : ""));
      Case test_case(shape, kMaxRows, DType::kBF16);
      const std::vector<float> all = product_of_first(test_case, kMaxRows, gated);
      for (const int64_t num_rows : {1, 2, 16, 31, 32, 33, 64, 65, 128, 129, 256, 257, 511}) {
        const std::vector<float> some = product_of_first(test_case, num_rows, gated);
        ASSERT_EQ(std::memcmp(some.data(), all.data(), some.size() * sizeof(float)), 0)
            << num_rows << " rows";
      }
    }
}

TEST_F(Sm90SwapAbGemm, ProducesTheSameBitsAHundredTimes) {
  for (const int64_t num_rows : {32, 128, 256}) {
    Case test_case({1024, 4096}, num_rows, DType::kBF16);
    const std::vector<float> first = product_of_first(test_case, num_rows, /*gated=*/false);
    for (int repeat = 0; repeat < 100; ++repeat) {
      const std::vector<float> again = product_of_first(test_case, num_rows, /*gated=*/false);
      ASSERT_EQ(std::memcmp(again.data(), first.data(), first.size() * sizeof(float)), 0) << repeat;
    }
  }
}

// Consecutive GEMMs start before the previous ones have finished.
TEST_F(Sm90SwapAbGemm, GraphMatchesEagerBits) {
  constexpr int64_t kWidth = 1024, kNumRows = 96;
  Case test_case({kWidth, kWidth}, kNumRows, DType::kBF16);
  Stream& stream = test_case.stream.get();
  const auto zeros = [] { return attend::cuda::zeros({kNumRows, kWidth}, DType::kBF16, kGpu); };
  const Tensor alone[] = {zeros(), zeros()}, recorded[] = {zeros(), zeros()};
  const auto queue = [&](const Tensor(&between)[2], bool wait) {
    for (int i = 0; i < 20; ++i) {
      LinearArgs args = test_case.args(between[i % 2]);
      if (i > 0) args.x = between[(i + 1) % 2];
      sm90::swap_ab_gemm(args, /*gated=*/false, stream);
      if (wait) attend::cuda::synchronize(stream);
    }
  };
  queue(alone, /*wait=*/true);
  attend::cuda::Graph graph(stream, [&] { queue(recorded, /*wait=*/false); });
  for (int launch = 0; launch < 10; ++launch) graph.launch(stream);
  TestTensor expected({kNumRows, kWidth}, DType::kBF16), got({kNumRows, kWidth}, DType::kBF16);
  attend::cuda::copy(alone[1], expected, stream);
  attend::cuda::copy(recorded[1], got, stream);
  attend::cuda::synchronize(stream);
  EXPECT_NE(expected.at(0), 0.0);
  EXPECT_EQ(std::memcmp(expected.view().data, got.view().data, expected.view().num_bytes()), 0);
}

}  // namespace
}  // namespace attend::kernels::cuda
