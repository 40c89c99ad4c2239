// Norm, router and selection of experts in one launch. The norm is compared with float64, the selection with
// the reference over the normalized rows of the launch.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "attend/kernels/common/cuda/gpu_facts.h"
#include "attend/kernels/moe/experts.h"
#include "attend/tensor/cuda.h"
#include "tests/kernels/cuda/support/device_copy.h"
#include "tests/kernels/cuda/support/needs_gpu.h"
#include "tests/kernels/dense/test_tensor.h"

namespace attend::kernels {
namespace {

using testing_cuda::DeviceCopy;
using testing_cuda::kGpu;
using testing_support::TestTensor;

constexpr float kEps = 1e-5f;

struct Case {
  int64_t num_tokens, num_experts, top_k, hidden_size;
  RouterRule rule = {};
  bool bias = false, corrected = false;
  bool norm_is_f32 = false, shares = false;  // `shares`: with the gate of a shared expert
};

class GpuNormRoute : public testing_cuda::NeedsGpu {
 protected:
  void SetUp() override {
    testing_cuda::NeedsGpu::SetUp();
    if (!IsSkipped() && !cuda::gpu_facts(kGpu).runs_sm90a()) GTEST_SKIP() << "clusters of sm_90a";
  }

  static void expect_as_reference(const Case& test_case, DType dtype) {
    const TestTensor x = TestTensor::random({test_case.num_tokens, test_case.hidden_size}, dtype, 1, 3.0f),
                     norm = TestTensor::random({test_case.hidden_size},
                                               test_case.norm_is_f32 ? DType::kF32 : dtype, 2),
                     gate = TestTensor::random({1, test_case.hidden_size}, dtype, 6, 0.1f),
                     router =
                         TestTensor::random({test_case.num_experts, test_case.hidden_size}, dtype, 3, 0.1f),
                     bias = TestTensor::random({test_case.num_experts}, dtype, 4),
                     correction = TestTensor::random({test_case.num_experts}, DType::kF32, 5, 0.3f);
    const TestTensor y({test_case.num_tokens, test_case.hidden_size}, dtype),
        logits({test_case.num_tokens, test_case.num_experts}, DType::kF32),
        experts({test_case.num_tokens, test_case.top_k}, DType::kI32),
        weights({test_case.num_tokens, test_case.top_k}, DType::kF32),
        gate_out({test_case.num_tokens, 1}, DType::kF32),
        expected_experts({test_case.num_tokens, test_case.top_k}, DType::kI32),
        expected_weights({test_case.num_tokens, test_case.top_k}, DType::kF32);
    {
      attend::cuda::OwnedStream owned(kGpu);
      Stream stream = owned.get();
      const DeviceCopy x_copy(x, stream), norm_copy(norm, stream), router_copy(router, stream),
          bias_copy(bias, stream), correction_copy(correction, stream), y_copy(y, stream),
          experts_copy(experts, stream), weights_copy(weights, stream), gate_copy(gate, stream),
          gate_out_copy(gate_out, stream);
      ASSERT_TRUE(norm_route(
          {.x = x_copy.view(),
           .norm = norm_copy.view(),
           .norm_eps = kEps,
           .router = {.weight = router_copy.view(), .bias = test_case.bias ? bias_copy.view() : TensorView()},
           .rule = test_case.rule,
           .correction = test_case.corrected ? correction_copy.view() : TensorView(),
           .shared_gate = test_case.shares ? Linear{.weight = gate_copy.view()} : Linear{},
           .shared_gate_out = gate_out_copy.view(),
           .normalized = y_copy.view(),
           .experts = experts_copy.view(),
           .weights = weights_copy.view()},
          stream));
      y_copy.download(stream);
      experts_copy.download(stream);
      weights_copy.download(stream);
      gate_out_copy.download(stream);
      attend::cuda::synchronize(stream);
    }
    const double rounding = dtype == DType::kBF16 ? 0x1p-8 : 0x1p-11;
    for (int64_t token = 0; token < test_case.num_tokens; ++token) {
      const int64_t first = token * test_case.hidden_size;
      double squares = 0.0;
      for (int64_t i = 0; i < test_case.hidden_size; ++i) squares += std::pow(x.at(first + i), 2);
      const double scale =
          1.0 / std::sqrt(squares / static_cast<double>(test_case.hidden_size) + double{kEps});
      for (int64_t i = 0; i < test_case.hidden_size; ++i) {
        const double expected = x.at(first + i) * scale * norm.at(i);
        ASSERT_NEAR(y.at(first + i), expected, rounding * std::abs(expected) + 1e-6) << token << ", " << i;
      }
      if (test_case.shares) {
        double sum = 0.0, spread = 0.0;
        for (int64_t i = 0; i < test_case.hidden_size; ++i) {
          const double term = y.at(first + i) * gate.at(i);
          sum += term;
          spread += std::abs(term);
        }
        ASSERT_NEAR(gate_out.at(token), sum, 1e-6 * spread) << "gate of " << token;
      }
      for (int64_t expert = 0; expert < test_case.num_experts; ++expert) {
        double sum = test_case.bias ? bias.at(expert) : 0.0;
        for (int64_t i = 0; i < test_case.hidden_size; ++i)
          sum += y.at(first + i) * router.at(expert * test_case.hidden_size + i);
        logits.view().as<float>()[token * test_case.num_experts + expert] = static_cast<float>(sum);
      }
    }
    reference::route({.logits = logits,
                      .rule = test_case.rule,
                      .correction = test_case.corrected ? correction.view() : TensorView(),
                      .experts = expected_experts,
                      .weights = expected_weights});
    EXPECT_TRUE(std::ranges::equal(experts.span<int32_t>(), expected_experts.span<int32_t>()));
    for (int64_t i = 0; i < weights.size(); ++i)
      ASSERT_NEAR(weights.at(i), expected_weights.at(i), 1e-4) << "choice " << i;
  }
};

TEST_F(GpuNormRoute, MatchesFloat64) {
  const RouterRule sigmoid{.scores = RouterScores::kSigmoid, .groups = {4, 2}, .scale = 2.5f};
  for (const DType dtype : {DType::kBF16, DType::kF16})
    for (const Case& test_case : {Case{1, 128, 8, 2048},
                                  {5, 128, 8, 2048, {.weights = RouterWeights::kAllExperts}},
                                  {8, 64, 6, 2048},
                                  {9, 16, 2, 96},
                                  {16, 48, 5, 160, sigmoid, false, true},
                                  {31, 32, 4, 2880, {}, true},
                                  {32, 128, 8, 2048, {.spread = 7}},
                                  {33, 64, 6, 2048, {}, true},
                                  {128, 128, 8, 512, sigmoid, false, true},
                                  {3, 112, 32, 4096, sigmoid},
                                  {1, 256, 8, 2048, {}, false, false, true, true},
                                  {1, 512, 10, 2048, {}, false, false, true, true},
                                  {7, 512, 10, 2048, {}, true, false, false, true},
                                  {3, 160, 6, 2080, {}, false, false, true},
                                  {32, 256, 8, 2048, {.spread = 7}, false, false, true, true},
                                  {2, 384, 8, 4096, sigmoid, true, true},
                                  {1, 128, 6, 2688, sigmoid, false, true, false, true},
                                  {128, 512, 10, 96, {}, false, false, true, true}}) {
      SCOPED_TRACE(testing::Message()
                   << test_case.num_tokens << " tokens, " << test_case.num_experts << " experts, "
                   << test_case.hidden_size << " features, " << to_string(dtype));
      expect_as_reference(test_case, dtype);
    }
}

TEST_F(GpuNormRoute, DeclinesUnsupportedProblems) {
  attend::cuda::OwnedStream owned(kGpu);
  Stream stream = owned.get();
  const auto supports = [&](int64_t num_tokens, int64_t num_experts, int64_t hidden_size, DType dtype,
                            bool batch_invariant) {
    const Tensor x = attend::cuda::zeros({num_tokens, hidden_size}, dtype, kGpu),
                 norm = attend::cuda::zeros({hidden_size}, dtype, kGpu),
                 router = attend::cuda::zeros({num_experts, hidden_size}, dtype, kGpu),
                 experts = attend::cuda::empty({num_tokens, 2}, DType::kI32, kGpu),
                 weights = attend::cuda::empty({num_tokens, 2}, DType::kF32, kGpu);
    const bool done = norm_route({.x = x,
                                  .norm = norm,
                                  .router = {.weight = router.view()},
                                  .normalized = x,
                                  .experts = experts,
                                  .weights = weights,
                                  .batch_invariant = batch_invariant},
                                 stream);
    attend::cuda::synchronize(stream);
    return done;
  };
  EXPECT_TRUE(supports(4, 32, 64, DType::kBF16, false));
  EXPECT_FALSE(supports(4, 32, 64, DType::kBF16, true));
  EXPECT_FALSE(supports(4, 32, 64, DType::kF32, false));
  EXPECT_FALSE(supports(4, 33, 64, DType::kBF16, false));
  EXPECT_TRUE(supports(4, 256, 64, DType::kBF16, false));
  EXPECT_FALSE(supports(4, 272, 64, DType::kBF16, false));
  EXPECT_TRUE(supports(128, 32, 4096, DType::kBF16, false));
  EXPECT_FALSE(supports(129, 32, 64, DType::kBF16, false));
  EXPECT_FALSE(supports(4, 32, 72, DType::kBF16, false));
}

}  // namespace
}  // namespace attend::kernels
