// moe_add() over a Residual: norm, router and experts, compared with float64.

#include <gtest/gtest.h>

#include <cmath>

#include "attend/kernels/fused/operations.h"
#include "attend/tensor/arena.h"
#include "tests/kernels/dense/test_tensor.h"

namespace attend::kernels {
namespace {

using testing_support::TestTensor;

constexpr MoeShape kShape{.num_experts = 6, .top_k = 2, .hidden_size = 48, .intermediate_size = 20};
constexpr int64_t kTokens = 37;
constexpr float kEps = 1e-5f;

struct Layer {
  TestTensor norm = TestTensor::random({48}, DType::kF32, 1),
             router = TestTensor::random({6, 48}, DType::kBF16, 2),
             gate_up = TestTensor::random({6 * 40, 48}, DType::kBF16, 3, 0.15f),
             down = TestTensor::random({6 * 48, 20}, DType::kBF16, 4, 0.2f);
  Linear gate_up_linear{.weight = gate_up}, down_linear{.weight = down};

  // Shared expert with intermediate size 10; its gate, up and down are TestTensors.
  TestTensor shared_gate = TestTensor::random({10, 48}, DType::kF32, 6, 0.15f),
             shared_up = TestTensor::random({10, 48}, DType::kBF16, 7, 0.15f),
             shared_down = TestTensor::random({48, 10}, DType::kBF16, 8, 0.3f);
  Linear shared_gate_up[2] = {{.weight = shared_gate}, {.weight = shared_up}};
  TestTensor shared_gate_up_out{{kTokens, 20}, DType::kF32}, shared_inner{{kTokens, 10}, DType::kF32};

  MoeAddArgs args(const TensorView& scratch) const {
    return {.norm = {.weight = norm, .eps = kEps},
            .router = {.weight = router},
            .rule = {.weights = RouterWeights::kAllExperts},
            .shape = kShape,
            .experts = {.gate_up = {&gate_up_linear, 1}, .down = {&down_linear, 1}},
            .scratch = scratch};
  }
  MoeAddArgs args_with_shared_expert(const TensorView& scratch) const {
    MoeAddArgs made = args(scratch);
    made.shared = {.gate_up = shared_gate_up,
                   .down = {.weight = shared_down},
                   .gate_up_out = shared_gate_up_out,
                   .inner = shared_inner};
    return made;
  }
};

// Adds the shared expert's output for x to the sum.
void add_shared_expert(const Layer& layer, const TestTensor& x, std::vector<double>& sum) {
  const auto row = [](const TestTensor& weight, int64_t i, const auto& input, int64_t size) {
    double product = 0.0;
    for (int64_t j = 0; j < size; ++j) product += weight.at(i * size + j) * input(j);
    return product;
  };
  for (int64_t token = 0; token < kTokens; ++token) {
    const auto x_of = [&](int64_t i) { return x.at(token * 48 + i); };
    std::vector<double> inner;
    for (int64_t i = 0; i < 10; ++i) {
      const double gate = row(layer.shared_gate, i, x_of, 48);
      inner.push_back(gate / (1.0 + std::exp(-gate)) * row(layer.shared_up, i, x_of, 48));
    }
    for (int64_t i = 0; i < 48; ++i)
      sum[static_cast<size_t>(token * 48 + i)] += row(
          layer.shared_down, i, [&](int64_t j) { return inner[static_cast<size_t>(j)]; }, 10);
  }
}

// residual + experts(norm(residual)) in float64 steps, each rounded to float32.
std::vector<double> expected_sum(const Layer& layer, const TestTensor& residual, bool shares) {
  const TestTensor x({kTokens, 48}, DType::kF32), logits({kTokens, 6}, DType::kF32),
      experts({kTokens, 2}, DType::kI32), weights({kTokens, 2}, DType::kF32), out({kTokens, 48}, DType::kF32);
  const auto set = [](const TestTensor& tensor, int64_t i, double value) {
    tensor.view().as<float>()[i] = static_cast<float>(value);
  };
  for (int64_t token = 0; token < kTokens; ++token) {
    double squares = 0.0;
    for (int64_t i = 0; i < 48; ++i) squares += std::pow(residual.at(token * 48 + i), 2);
    for (int64_t i = 0; i < 48; ++i)
      set(x, token * 48 + i,
          residual.at(token * 48 + i) / std::sqrt(squares / 48 + double{kEps}) * layer.norm.at(i));
    for (int64_t expert = 0; expert < 6; ++expert) {
      double logit = 0.0;
      for (int64_t i = 0; i < 48; ++i) logit += x.at(token * 48 + i) * layer.router.at(expert * 48 + i);
      set(logits, token * 6 + expert, logit);
    }
  }
  reference::route({.logits = logits,
                    .rule = {.weights = RouterWeights::kAllExperts},
                    .experts = experts,
                    .weights = weights});
  reference::moe_experts({.shape = kShape,
                          .x = x,
                          .experts = experts,
                          .weights = weights,
                          .linears = {.gate_up = {&layer.gate_up_linear, 1}, .down = {&layer.down_linear, 1}},
                          .out = out});
  std::vector<double> sum = residual.values();
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += out.at(static_cast<int64_t>(i));
  if (shares) add_shared_expert(layer, x, sum);
  return sum;
}

TEST(MoeAdd, AddsExpertOutputsOfTheNormalizedResidual) {
  const Layer layer;
  const TestTensor sum = TestTensor::random({kTokens, 48}, DType::kF32, 5),
                   scratch({kTokens, 48}, DType::kF32), gathered({kTokens, 48}, DType::kF32),
                   added({kTokens, 48}, DType::kF32);
  std::vector<double> expected = expected_sum(layer, sum, false);
  Arena arena(static_cast<size_t>(kTokens * moe_scratch_width(kShape)) * sizeof(float) + 64);
  const Tensor memory = arena.allocate({kTokens, moe_scratch_width(kShape)}, DType::kF32);
  Stream stream;
  const OpContext context{.stream = stream};
  Residual residual({.sum = sum, .scratch = scratch, .gathered = gathered});
  moe_add(residual, layer.args(memory), context);
  // A second layer with a shared expert on top: its norm reads the output of the first.
  for (int64_t i = 0; i < added.size(); ++i)
    added.view().as<float>()[i] = static_cast<float>(expected[static_cast<size_t>(i)]);
  expected = expected_sum(layer, added, true);
  moe_add(residual, layer.args_with_shared_expert(memory), context);
  const TestTensor unit = TestTensor({48, 48}, DType::kF32), out({kTokens, 48}, DType::kF32);
  for (int64_t i = 0; i < 48; ++i) unit.view().as<float>()[i * 49] = 1.0f;
  const Linear identity{.weight = unit};
  norm_linear(residual, {.norm = {}, .linear = {&identity, 1}, .out = out}, context);
  for (int64_t i = 0; i < out.size(); ++i)
    ASSERT_NEAR(out.at(i), expected[static_cast<size_t>(i)], 1e-4) << "element " << i;
}

}  // namespace
}  // namespace attend::kernels
