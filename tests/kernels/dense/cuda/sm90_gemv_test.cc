// GEMV of a single row, called directly, including layers for which linear() chooses other kernels.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "attend/kernels/common/cuda/gpu_facts.h"
#include "attend/kernels/gemm/cuda/linear.h"
#include "attend/kernels/gemm/cuda/sm90/gemv/gemv.h"
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

using Sm90Gemv = testing_cuda::Sm90Test;

struct Case {
  OwnedStream stream{kGpu};
  TestTensor x, weight, bias;
  DeviceCopy device_x, device_weight, device_bias;

  Case(int64_t num_outs, int64_t in_features, DType dtype, DType bias_dtype = DType::kF32)
      : x(TestTensor::random({1, in_features}, dtype, 1)),
        weight(TestTensor::random({num_outs, in_features}, dtype, 2)),
        bias(TestTensor::random({num_outs}, bias_dtype, 3)),
        device_x(x, stream.get()),
        device_weight(weight, stream.get()),
        device_bias(bias, stream.get()) {}

  int64_t num_outs() const { return weight.view().shape[0]; }
  int64_t in_features() const { return weight.view().shape[1]; }
  LinearArgs args(const TensorView& out, bool with_bias) const {
    return {.x = device_x.view(),
            .weight = device_weight.view(),
            .bias = with_bias ? device_bias.view() : TensorView(),
            .out = out};
  }

  // Returns out after the product, which is added to `before` unless that is NaN.
  TestTensor run(bool with_bias, float before) {
    TestTensor out({1, num_outs()}, x.view().dtype);
    out.fill(before);
    const DeviceCopy device_out(out, stream.get());
    LinearArgs product = args(device_out.view(), with_bias);
    product.accumulate = !std::isnan(before);
    EXPECT_TRUE(gemm_row(GemmKernel::kGemv).supports(gemm_problem(product, false), gpu_facts(kGpu)));
    sm90::gemv(product, stream.get());
    device_out.download(stream.get());
    attend::cuda::synchronize(stream.get());
    return out;
  }

  void expect_near_float64(const TestTensor& out, bool with_bias, double before) const {
    // Truncation by tensor cores when they align addends, relative to the sum of magnitudes.
    constexpr double kTolerance = 2e-6;
    const double rounding = out.view().dtype == DType::kBF16 ? 0x1p-8 : 0x1p-11;
    for (int64_t o = 0; o < num_outs(); ++o) {
      double sum = before + (with_bias ? bias.at(o) : 0.0), magnitude = std::abs(sum);
      for (int64_t i = 0; i < in_features(); ++i) {
        const double term = x.at(i) * weight.at(o * in_features() + i);
        sum += term;
        magnitude += std::abs(term);
      }
      ASSERT_NEAR(out.at(o), sum, rounding * std::abs(sum) + kTolerance * magnitude + 1e-7) << "output " << o;
    }
  }
};

// Warps with zero, some, and the largest number of K-blocks that fit in registers; one CTA and several waves.
constexpr std::array<std::array<int64_t, 2>, 7> kShapes{
    {{8, 64}, {72, 448}, {1024, 2048}, {264, 4032}, {40, 4096}, {2048, 4096}, {5120, 576}}};

TEST_F(Sm90Gemv, MatchesFloat64WithBiasAndExistingOutput) {
  for (const DType dtype : {DType::kBF16, DType::kF16})
    for (const auto& [num_outs, in_features] : kShapes) {
      SCOPED_TRACE(testing::Message() << dtype << " " << in_features << " -> " << num_outs);
      Case test_case(num_outs, in_features, dtype, in_features % 512 == 0 ? dtype : DType::kF32);
      test_case.expect_near_float64(test_case.run(false, NAN), false, 0.0);
      test_case.expect_near_float64(test_case.run(true, NAN), true, 0.0);
      test_case.expect_near_float64(test_case.run(false, 3.0f), false, 3.0);
      test_case.expect_near_float64(test_case.run(true, -2.0f), true, -2.0);
      if (HasFatalFailure()) return;
    }
}

// Unaligned outputs and biases, which vectors cannot load or store.
TEST_F(Sm90Gemv, SupportsUnalignedOutputsAndBiases) {
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    Case test_case(264, 4032, dtype, dtype);
    const int64_t num_outs = test_case.num_outs();
    const TestTensor expected = test_case.run(true, 2.0f);
    TestTensor out({1, num_outs + 1}, dtype), bias({num_outs + 1}, dtype);
    out.fill(2.0f);
    std::memcpy(bias.view().slice(0, 1, num_outs + 1).data, test_case.bias.view().data,
                test_case.bias.view().num_bytes());
    const DeviceCopy device_out(out, test_case.stream.get()), device_bias(bias, test_case.stream.get());
    LinearArgs product = test_case.args(device_out.view().slice(1, 1, num_outs + 1), /*with_bias=*/false);
    product.bias = device_bias.view().slice(0, 1, num_outs + 1);
    product.accumulate = true;
    EXPECT_TRUE(gemm_row(GemmKernel::kGemv).supports(gemm_problem(product, false), gpu_facts(kGpu)));
    sm90::gemv(product, test_case.stream.get());
    device_out.download(test_case.stream.get());
    attend::cuda::synchronize(test_case.stream.get());
    EXPECT_EQ(out.at(0), 2.0);
    EXPECT_EQ(std::memcmp(out.view().slice(1, 1, num_outs + 1).data, expected.view().data,
                          expected.view().num_bytes()),
              0)
        << dtype;
  }
}

TEST_F(Sm90Gemv, ProducesTheSameBitsAHundredTimes) {
  Case test_case(2048, 4096, DType::kBF16);
  const TestTensor first = test_case.run(true, 1.0f);
  for (int repeat = 0; repeat < 100; ++repeat) {
    const TestTensor again = test_case.run(true, 1.0f);
    ASSERT_EQ(std::memcmp(again.view().data, first.view().data, first.view().num_bytes()), 0) << repeat;
  }
}

// Consecutive GEMVs prefetch their weights before the previous ones have finished, and add to the results of
// the ones before those.
TEST_F(Sm90Gemv, GraphMatchesEagerBits) {
  constexpr int64_t kWidth = 2048;
  Case test_case(kWidth, kWidth, DType::kBF16);
  Stream& stream = test_case.stream.get();
  const auto zeros = [&] { return attend::cuda::zeros({1, kWidth}, DType::kBF16, kGpu); };
  const Tensor alone[] = {zeros(), zeros(), zeros()}, recorded[] = {zeros(), zeros(), zeros()};
  const auto queue = [&](const Tensor(&rows)[3], bool wait) {
    attend::cuda::copy(test_case.device_x.view(), rows[0], stream);
    for (int i = 0; i < 20; ++i) {
      LinearArgs args = test_case.args(rows[(i + 1) % 3], /*with_bias=*/true);
      args.x = rows[i % 3];
      args.accumulate = i >= 3;
      sm90::gemv(args, stream);
      if (wait) attend::cuda::synchronize(stream);
    }
  };
  queue(alone, /*wait=*/true);
  attend::cuda::Graph graph(stream, [&] { queue(recorded, /*wait=*/false); });
  for (int launch = 0; launch < 10; ++launch) graph.launch(stream);
  for (int i = 0; i < 3; ++i) {
    TestTensor expected({1, kWidth}, DType::kBF16), got({1, kWidth}, DType::kBF16);
    attend::cuda::copy(alone[i], expected, stream);
    attend::cuda::copy(recorded[i], got, stream);
    attend::cuda::synchronize(stream);
    EXPECT_NE(expected.at(0), 0.0);
    EXPECT_EQ(std::memcmp(expected.view().data, got.view().data, expected.view().num_bytes()), 0) << i;
  }
}

// linear() chooses this kernel where it is faster.
TEST_F(Sm90Gemv, LinearReturnsItsBitsWhenChosen) {
  Case test_case(2048, 4096, DType::kBF16);
  const TestTensor direct = test_case.run(true, 1.0f);
  TestTensor asked({1, test_case.num_outs()}, DType::kBF16);
  asked.fill(1.0f);
  const DeviceCopy device_asked(asked, test_case.stream.get());
  LinearArgs args = test_case.args(device_asked.view(), true);
  args.accumulate = true;
  ASSERT_EQ(choose(gemm_problem(args, false), gpu_facts(kGpu)).kernel, GemmKernel::kGemv);
  cuda::linear(args, test_case.stream.get());
  device_asked.download(test_case.stream.get());
  attend::cuda::synchronize(test_case.stream.get());
  EXPECT_EQ(std::memcmp(asked.view().data, direct.view().data, direct.view().num_bytes()), 0);
}

}  // namespace
}  // namespace attend::kernels::cuda
