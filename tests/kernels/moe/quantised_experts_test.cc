// Experts whose weights are quantised, on the CPU: the same reference as plain ones.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "attend/kernels/moe/experts.h"
#include "tests/kernels/dense/quantised_weight.h"
#include "tests/kernels/dense/test_tensor.h"

namespace attend::kernels {
namespace {

using testing_support::Format;
using testing_support::kFormats;
using testing_support::random_weight;
using testing_support::TestTensor;
using testing_support::TestWeight;

constexpr MoeShape kShape = {.num_experts = 6, .top_k = 2, .hidden_size = 128, .intermediate_size = 128};

// Each expert's gate, up and down as checkpoints have them: a matrix each.
struct Layer {
  TestTensor x, experts, weights;
  std::vector<std::unique_ptr<TestWeight>> stored;
  std::vector<Linear> gate_up, down;

  Layer(const Format& format, int64_t num_tokens)
      : x(TestTensor::random({num_tokens, kShape.hidden_size}, DType::kF32, 1, 0.1f)),
        experts({num_tokens, kShape.top_k}, DType::kI32),
        weights(TestTensor::random({num_tokens, kShape.top_k}, DType::kF32, 4)) {
    for (int64_t i = 0; i < num_tokens * kShape.top_k; ++i)
      experts.span<int32_t>()[static_cast<size_t>(i)] = static_cast<int32_t>((i * 5 + i / 6) % 6);
    for (int64_t expert = 0; expert < kShape.num_experts; ++expert) {
      for (int part = 0; part < 2; ++part)
        gate_up.push_back({.weight = add(format, kShape.intermediate_size, kShape.hidden_size)});
      down.push_back({.weight = add(format, kShape.hidden_size, kShape.intermediate_size)});
    }
  }

  MoeExpertsArgs arguments(const TensorView& out) const {
    return {.shape = kShape,
            .x = x,
            .experts = experts,
            .weights = weights,
            .linears = {.gate_up = gate_up, .down = down},
            .out = out};
  }

 private:
  Weight add(const Format& format, int64_t num_outs, int64_t in_features) {
    stored.push_back(random_weight(format, num_outs, in_features));
    return stored.back()->view;
  }
};

TEST(QuantisedExperts, ComputeWhatFloat64Does) {
  for (const Format& format : kFormats)
    for (const int64_t num_tokens : {1, 9, 140}) {
      SCOPED_TRACE(testing::Message() << format << ", " << num_tokens << " tokens");
      const Layer layer(format, num_tokens);
      TestTensor expected({num_tokens, kShape.hidden_size}, DType::kF32),
          out({num_tokens, kShape.hidden_size}, DType::kF32);
      reference::moe_experts(layer.arguments(expected));
      out.fill(std::numeric_limits<float>::quiet_NaN());
      MoeExpertsArgs args = layer.arguments(out);
      const Tensor scratch = Tensor::empty(
          {static_cast<int64_t>(experts_scratch_bytes(kShape, num_tokens, DType::kF32))}, DType::kU8);
      args.scratch = {static_cast<std::byte*>(scratch.view().data), scratch.view().num_bytes()};
      Stream stream;
      moe_experts(args, stream);
      double largest = 0.0;
      for (const double value : expected.values()) largest = std::max(largest, std::abs(value));
      for (int64_t i = 0; i < out.size(); ++i) ASSERT_NEAR(out.at(i), expected.at(i), 1e-5 * largest) << i;
    }
}

// One matrix holds those of all experts, as gpt-oss has them.
TEST(QuantisedExperts, HaveTheSameBitsInOneMatrix) {
  const Format mxfp4 = kFormats[std::size(kFormats) - 1];
  ASSERT_EQ(mxfp4.format, WeightFormat::kMxFp4);
  const Layer layer(mxfp4, 7);
  const auto gate_up =
      random_weight(mxfp4, kShape.num_experts * 2 * kShape.intermediate_size, kShape.hidden_size);
  const std::vector<Linear> whole = {{.weight = gate_up->view}};
  std::vector<Linear> parts;
  for (int64_t i = 0; i < 2 * kShape.num_experts; ++i)
    parts.push_back(
        {.weight = gate_up->view.rows(i * kShape.intermediate_size, (i + 1) * kShape.intermediate_size)});
  const Tensor scratch =
      Tensor::empty({static_cast<int64_t>(experts_scratch_bytes(kShape, 7, DType::kF32))}, DType::kU8);
  std::vector<std::vector<double>> results;
  for (const std::vector<Linear>& matrices : {whole, parts}) {
    TestTensor out({7, kShape.hidden_size}, DType::kF32);
    MoeExpertsArgs args = layer.arguments(out);
    args.linears.gate_up = matrices;
    args.scratch = {static_cast<std::byte*>(scratch.view().data), scratch.view().num_bytes()};
    Stream stream;
    moe_experts(args, stream);
    results.push_back(out.values());
  }
  EXPECT_EQ(results[0], results[1]);
}

}  // namespace
}  // namespace attend::kernels
