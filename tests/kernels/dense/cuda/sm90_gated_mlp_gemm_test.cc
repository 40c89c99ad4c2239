// Gated-MLP GEMM of sm_90, called directly with every height and number of rows, including those for which
// gated_linear() chooses other kernels.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "attend/base/error.h"
#include "attend/kernels/common/cuda/gpu_facts.h"
#include "attend/kernels/gemm/cuda/linear.h"
#include "attend/kernels/gemm/cuda/sm90/gated_mlp/gated_mlp_gemm.h"
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

class Sm90GatedMlpGemm : public testing_cuda::Sm90Test {};

struct Shape {
  int64_t weight_rows, in_features;
};

std::ostream& operator<<(std::ostream& out, const Shape& shape) {
  return out << shape.weight_rows << " rows of " << shape.in_features;
}

// One pair and a partial chunk; a partial tile; partial tiles and chunks; more tiles than CTAs.
constexpr Shape kShapes[] = {{16, 8}, {96, 64}, {208, 200}, {1040, 1032}, {33024, 144}, {4128, 2056}};
// Below and above the numbers of rows that a CTA and a cluster compute.
constexpr int64_t kRows[] = {1, 65, 100, 128, 129, 200, 256};

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
    return {.x = device_x.view(), .weight = device_weight.view(), .bias = device_bias.view(), .out = out};
  }
  int64_t num_outs() const { return weight.view().shape[0] / 2; }

  // A sum in float64, and the sum of the magnitudes of its terms.
  struct Sum {
    double value = 0.0, magnitude = 0.0;
  };
  Sum sum(int64_t row, int64_t weight_row) const {
    const int64_t in_features = x.view().shape[1];
    Sum sum{bias.at(weight_row), std::abs(bias.at(weight_row))};
    for (int64_t i = 0; i < in_features; ++i) {
      const double term = x.at(row * in_features + i) * weight.at(weight_row * in_features + i);
      sum.value += term;
      sum.magnitude += std::abs(term);
    }
    return sum;
  }

  // Compares some elements of every tile and every warp's rows; rows have `width` elements.
  void expect_matches(const TestTensor& out, int64_t width) const {
    // Truncation by tensor cores when they align addends, relative to the sum of magnitudes.
    constexpr double kTolerance = 2e-6;
    const double rounding = out.view().dtype == DType::kBF16 ? 0x1p-8 : 0x1p-11;
    const int64_t num_rows = x.view().shape[0];
    const auto check = [&](int64_t row, int64_t o) {
      const Sum gate = sum(row, o), up = sum(row, num_outs() + o);
      const double expected = gate.value / (1.0 + std::exp(-gate.value)) * up.value;
      ASSERT_NEAR(
          out.at(row * width + o), expected,
          rounding * std::abs(expected) + 1e-7 +
              2.0 * kTolerance *
                  (gate.magnitude * (1.0 + std::abs(up.value)) + up.magnitude * (1.0 + std::abs(gate.value))))
          << "row " << row << ", output " << o;
    };
    const int64_t row_step = 1 + num_rows / 14, out_step = 1 + num_outs() / 70;
    for (int64_t row = 0; row < num_rows; row += row_step)
      for (int64_t o = row % out_step; o < num_outs(); o += out_step) {
        check(row, o);
        if (testing::Test::HasFatalFailure()) return;
      }
    check(num_rows - 1, num_outs() - 1);
  }
};

TEST_F(Sm90GatedMlpGemm, MatchesFloat64) {
  for (const DType dtype : {DType::kBF16, DType::kF16})
    for (const Shape& shape : kShapes)
      for (const int64_t num_rows : kRows) {
        SCOPED_TRACE(testing::Message() << dtype << " " << num_rows << " times " << shape);
        Case test_case(shape, num_rows, dtype);
        TestTensor out({num_rows, test_case.num_outs()}, dtype);
        out.fill(NAN);
        const DeviceCopy device_out(out, test_case.stream.get());
        const LinearArgs args = test_case.args(device_out.view());
        ASSERT_TRUE(
            gemm_row(GemmKernel::kGatedMlp).supports(gemm_problem(args, /*gated=*/true), gpu_facts(kGpu)));
        sm90::gated_mlp_gemm(args, test_case.stream.get());
        device_out.download(test_case.stream.get());
        attend::cuda::synchronize(test_case.stream.get());
        test_case.expect_matches(out, test_case.num_outs());
        if (HasFatalFailure()) return;
      }
}

// Clusters with one tile, with several, and with a partial last round.
TEST_F(Sm90GatedMlpGemm, MatchesFloat64ForAnyWorkSplit) {
  constexpr Shape kShape{1040, 520};
  for (const int64_t num_rows : {70, 128, 129, 256}) {
    Case test_case(kShape, num_rows, DType::kBF16);
    for (const int tile_pairs : sm90::kGatedMlpTilePairs)
      for (const int num_clusters : {1, 2, 3, 7}) {
        SCOPED_TRACE(testing::Message() << num_rows << " rows, tiles of " << tile_pairs << " pairs, "
                                        << num_clusters << " clusters");
        TestTensor out({num_rows, test_case.num_outs()}, DType::kBF16);
        out.fill(NAN);
        const DeviceCopy device_out(out, test_case.stream.get());
        sm90::gated_mlp_gemm(test_case.args(device_out.view()), {tile_pairs, num_clusters},
                             test_case.stream.get());
        device_out.download(test_case.stream.get());
        attend::cuda::synchronize(test_case.stream.get());
        test_case.expect_matches(out, test_case.num_outs());
        if (HasFatalFailure()) return;
      }
  }
}

TEST_F(Sm90GatedMlpGemm, WritesOnlyItsColumnsOfAWiderTensor) {
  for (const int64_t num_rows : {90, 250}) {
    Case test_case({208, 1032}, num_rows, DType::kBF16);
    const int64_t width = test_case.num_outs() + 4;
    TestTensor out = TestTensor::random({num_rows, width}, DType::kBF16, 5);
    const std::vector<double> before = out.values();
    const DeviceCopy device_out(out, test_case.stream.get());
    sm90::gated_mlp_gemm(test_case.args(device_out.view().slice(1, 0, test_case.num_outs())),
                         test_case.stream.get());
    device_out.download(test_case.stream.get());
    attend::cuda::synchronize(test_case.stream.get());
    test_case.expect_matches(out, width);
    for (int64_t row = 0; row < num_rows; ++row)
      for (int64_t o = test_case.num_outs(); o < width; ++o)
        ASSERT_EQ(out.at(row * width + o), before[static_cast<size_t>(row * width + o)]) << "row " << row;
  }
}

// Computes the first rows of `test_case` with a GEMM of that many rows.
TestTensor product_of_first(Case& test_case, int64_t num_rows) {
  TestTensor out({num_rows, test_case.num_outs()}, DType::kBF16);
  out.fill(NAN);
  const DeviceCopy device_out(out, test_case.stream.get());
  LinearArgs args = test_case.args(device_out.view());
  args.x = args.x.slice(0, 0, num_rows);
  sm90::gated_mlp_gemm(args, test_case.stream.get());
  device_out.download(test_case.stream.get());
  attend::cuda::synchronize(test_case.stream.get());
  return out;
}

TEST_F(Sm90GatedMlpGemm, BitsOfARowDoNotDependOnTheNumberOfRows) {
  for (const Shape& shape : {Shape{320, 1032}, Shape{4128, 2056}}) {
    SCOPED_TRACE(testing::Message() << shape);
    Case test_case(shape, sm90::kMaxGatedMlpRows, DType::kBF16);
    const TestTensor all = product_of_first(test_case, sm90::kMaxGatedMlpRows);
    for (const int64_t num_rows : {1, 2, 16, 63, 64, 65, 127, 128, 129, 200, 255}) {
      const TestTensor some = product_of_first(test_case, num_rows);
      ASSERT_EQ(std::memcmp(some.view().data, all.view().data, some.view().num_bytes()), 0)
          << num_rows << " rows";
    }
  }
}

TEST_F(Sm90GatedMlpGemm, ProducesTheSameBitsAHundredTimes) {
  for (const int64_t num_rows : {128, 256}) {
    Case test_case({4096, 4096}, num_rows, DType::kBF16);
    const TestTensor first = product_of_first(test_case, num_rows);
    for (int repeat = 0; repeat < 100; ++repeat) {
      const TestTensor again = product_of_first(test_case, num_rows);
      ASSERT_EQ(std::memcmp(again.view().data, first.view().data, first.view().num_bytes()), 0) << repeat;
    }
  }
}

// Consecutive GEMMs start before the previous ones have finished.
TEST_F(Sm90GatedMlpGemm, GraphMatchesEagerBits) {
  constexpr int64_t kWidth = 1024;
  for (const int64_t num_rows : {96, 192}) {
    Case test_case({2 * kWidth, kWidth}, num_rows, DType::kBF16);
    Stream& stream = test_case.stream.get();
    const auto zeros = [&] { return attend::cuda::zeros({num_rows, kWidth}, DType::kBF16, kGpu); };
    const Tensor alone[] = {zeros(), zeros()}, recorded[] = {zeros(), zeros()};
    const auto queue = [&](const Tensor(&between)[2], bool wait) {
      for (int i = 0; i < 20; ++i) {
        LinearArgs args = test_case.args(between[i % 2]);
        if (i > 0) args.x = between[(i + 1) % 2];
        sm90::gated_mlp_gemm(args, stream);
        if (wait) attend::cuda::synchronize(stream);
      }
    };
    queue(alone, /*wait=*/true);
    attend::cuda::Graph graph(stream, [&] { queue(recorded, /*wait=*/false); });
    for (int launch = 0; launch < 10; ++launch) graph.launch(stream);
    TestTensor expected({num_rows, kWidth}, DType::kBF16), got({num_rows, kWidth}, DType::kBF16);
    attend::cuda::copy(alone[1], expected, stream);
    attend::cuda::copy(recorded[1], got, stream);
    attend::cuda::synchronize(stream);
    EXPECT_NE(expected.at(0), 0.0);
    EXPECT_EQ(std::memcmp(expected.view().data, got.view().data, expected.view().num_bytes()), 0);
  }
}

// gated_linear() chooses this kernel, after a separate norm, if its tiles fill the SMs.
TEST_F(Sm90GatedMlpGemm, GatedLinearReturnsItsBitsWhenChosen) {
  constexpr Shape kShape{28672, 264};
  Case test_case(kShape, 256, DType::kBF16);
  Stream& stream = test_case.stream.get();
  const TestTensor norm = TestTensor::random({kShape.in_features}, DType::kBF16, 4);
  const DeviceCopy device_norm(norm, stream);
  const auto zeros = [](int64_t num_rows, int64_t num_outs) {
    return attend::cuda::zeros({num_rows, num_outs}, DType::kBF16, kGpu);
  };
  int num_chosen = 0;
  for (const int64_t num_rows : {65, 128, 256}) {
    SCOPED_TRACE(testing::Message() << num_rows << " rows");
    const Tensor direct = zeros(num_rows, test_case.num_outs()),
                 asked = zeros(num_rows, test_case.num_outs()),
                 normalized = zeros(num_rows, kShape.in_features),
                 gate_up = zeros(num_rows, kShape.weight_rows);
    LinearArgs args = test_case.args(direct);
    args.x = args.x.slice(0, 0, num_rows);
    if (choose(gemm_problem(args, /*gated=*/true), gpu_facts(kGpu)).kernel != GemmKernel::kGatedMlp) continue;
    ++num_chosen;
    gated_linear({.x = args.x,
                  .weight = args.weight,
                  .bias = args.bias,
                  .gate_up = gate_up,
                  .out = asked,
                  .norm = {.weight = device_norm.view(), .eps = 1e-5f, .normalized = normalized}},
                 stream);
    args.x = normalized;
    sm90::gated_mlp_gemm(args, stream);
    TestTensor expected({num_rows, test_case.num_outs()}, DType::kBF16),
        got({num_rows, test_case.num_outs()}, DType::kBF16);
    attend::cuda::copy(direct, expected, stream);
    attend::cuda::copy(asked, got, stream);
    attend::cuda::synchronize(stream);
    EXPECT_NE(expected.at(expected.size() - 1), 0.0);
    EXPECT_EQ(std::memcmp(expected.view().data, got.view().data, expected.view().num_bytes()), 0);
  }
  EXPECT_GT(num_chosen, 0);
}

TEST_F(Sm90GatedMlpGemm, RejectsAnUnsupportedHeight) {
  Case test_case({96, 64}, 70, DType::kBF16);
  const Tensor out = attend::cuda::zeros({70, 48}, DType::kBF16, kGpu);
  EXPECT_THROW(
      sm90::gated_mlp_gemm(test_case.args(out), {.tile_pairs = 7, .num_clusters = 1}, test_case.stream.get()),
      Error);
}

}  // namespace
}  // namespace attend::kernels::cuda
