// Experts with quantized weights, compared with the reference of unquantized experts.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "attend/kernels/gemm/linear.h"
#include "attend/kernels/gemm/weights.h"
#include "attend/kernels/moe/experts.h"
#include "attend/kernels/norm_rope/elementwise.h"
#include "tests/kernels/dense/quantized_weight.h"
#include "tests/kernels/dense/test_tensor.h"
#include "tests/kernels/moe/moe_device.h"

namespace attend::kernels {
namespace {

using testing_support::Format;
using testing_support::kFormats;
using testing_support::random_weight;
using testing_support::TestTensor;
using testing_support::TestWeight;

constexpr MoeShape kShape = {.num_experts = 6, .top_k = 2, .hidden_size = 128, .intermediate_size = 128};

// Gate, up and down of each expert as separate matrices, as in checkpoints.
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

TEST(QuantizedExperts, MatchFloat64) {
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

// Linear layers that may round x (LinearArgs::rounds_x), one after another, have tests of their own.
class RoundedExperts {
 public:
  explicit RoundedExperts(bool rounds) : rounds_(rounds) {}

  // Output of one token's experts.
  std::vector<double> multiply(const Layer& layer, int64_t token) {
    std::vector<double> sums(static_cast<size_t>(kShape.hidden_size));
    for (int64_t i = 0; i < kShape.top_k; ++i) {
      const int64_t pair = token * kShape.top_k + i;
      const auto expert = static_cast<size_t>(layer.experts.span<int32_t>()[static_cast<size_t>(pair)]);
      TestTensor gate_up({1, 2 * kShape.intermediate_size}, DType::kF32),
          inner({1, kShape.intermediate_size}, DType::kF32), out({1, kShape.hidden_size}, DType::kF32);
      const TensorView x = layer.x.view().slice(0, token, token + 1);
      for (int64_t part = 0; part < 2; ++part)
        multiply(
            x, layer.gate_up[2 * expert + static_cast<size_t>(part)].weight,
            gate_up.view().slice(1, part * kShape.intermediate_size, (part + 1) * kShape.intermediate_size));
      silu_mul(gate_up, inner, stream_);
      multiply(inner, layer.down[expert].weight, out);
      for (int64_t j = 0; j < kShape.hidden_size; ++j)
        sums[static_cast<size_t>(j)] += layer.weights.at(pair) * out.at(j);
    }
    return sums;
  }

 private:
  void multiply(const TensorView& x, const Weight& weight, const TensorView& out) {
    const Tensor workspace = Tensor::empty(
        {static_cast<int64_t>(linear_workspace_bytes(1, x.shape[1], {}, weight.format))}, DType::kU8);
    linear({.x = x,
            .weight = weight,
            .bias = {},
            .out = out,
            .workspace = {static_cast<std::byte*>(workspace.view().data), workspace.view().num_bytes()},
            .batch_invariant = true,
            .rounds_x = rounds_},
           stream_);
  }

  bool rounds_;
  Stream stream_;
};

// Experts round their inputs to int8 like linear layers, except for act-order.
TEST(QuantizedExperts, RoundActivationsLikeLinearLayers) {
  for (const Format& format : kFormats)
    for (const int64_t num_tokens : {1, 9, 140}) {
      SCOPED_TRACE(testing::Message() << format << ", " << num_tokens << " tokens");
      const Layer layer(format, num_tokens);
      TestTensor out({num_tokens, kShape.hidden_size}, DType::kF32),
          exact({num_tokens, kShape.hidden_size}, DType::kF32);
      reference::moe_experts(layer.arguments(exact));
      MoeExpertsArgs args = layer.arguments(out);
      args.rounds_x = true;
      const Tensor scratch = Tensor::empty(
          {static_cast<int64_t>(experts_scratch_bytes(kShape, num_tokens, DType::kF32))}, DType::kU8);
      args.scratch = {static_cast<std::byte*>(scratch.view().data), scratch.view().num_bytes()};
      Stream stream;
      moe_experts(args, stream);
      double largest = 0.0, rounding = 0.0;
      for (int64_t i = 0; i < out.size(); ++i) {
        largest = std::max(largest, std::abs(exact.at(i)));
        rounding = std::max(rounding, std::abs(out.at(i) - exact.at(i)));
      }
      EXPECT_EQ(rounding > 1e-5 * largest, format.format != WeightFormat::kFp8 && !format.reordered);
      RoundedExperts experts(!format.reordered);
      for (int64_t token = 0; token < num_tokens; ++token) {
        const std::vector<double> expected = experts.multiply(layer, token);
        for (int64_t i = 0; i < kShape.hidden_size; ++i)
          ASSERT_NEAR(out.at(token * kShape.hidden_size + i), expected[static_cast<size_t>(i)],
                      1e-5 * largest)
              << "token " << token << ", feature " << i;
      }
    }
}

// All experts in one matrix, as on the GPU.
class OnGpu : public testing_support::OnMoeDevice {
 protected:
  // Order of the inputs of each expert.
  static TestTensor orders(int64_t in_features, unsigned seed) {
    TestTensor orders({kShape.num_experts, in_features}, DType::kI32);
    std::mt19937 random(seed);
    for (int64_t expert = 0; expert < kShape.num_experts; ++expert) {
      const View<int32_t> order = orders.view()[expert].span<int32_t>();
      std::iota(order.begin(), order.end(), 0);
      std::shuffle(order.begin(), order.end(), random);
    }
    return orders;
  }

  // Largest error relative to the largest result.
  static double max_error(const Format& format, DType dtype, int64_t num_tokens, bool clamped,
                          bool batch_invariant = false) {
    // Elements of fp8 and mxfp4 exceed 100, and f16 cannot represent products of such sums.
    const float deviation = format.format == WeightFormat::kInt4 ? 0.1f : 0.0005f;
    Layer layer(format, num_tokens);
    const TestTensor x = TestTensor::random({num_tokens, kShape.hidden_size}, dtype, 1, deviation);
    const auto gate_up =
        random_weight(format, kShape.num_experts * 2 * kShape.intermediate_size, kShape.hidden_size);
    const auto down =
        random_weight(format, kShape.num_experts * kShape.hidden_size, kShape.intermediate_size);
    const TestTensor bias = TestTensor::random({gate_up->view.out_features()}, DType::kBF16, 8);
    const TestTensor gate_up_order = orders(kShape.hidden_size, 5),
                     down_order = orders(kShape.intermediate_size, 6);
    if (format.reordered) {
      gate_up->view.input_order = gate_up_order;
      down->view.input_order = down_order;
    }
    const Linear both{.weight = gate_up->view, .bias = clamped ? bias.view() : TensorView()},
        last{.weight = down->view};
    TestTensor expected({num_tokens, kShape.hidden_size}, DType::kF32),
        out({num_tokens, kShape.hidden_size}, dtype);
    MoeExpertsArgs args = layer.arguments(expected);
    args.x = x;
    args.linears = {.gate_up = {&both, 1}, .down = {&last, 1}};
    if (clamped)
      args.gate = {.activation = ExpertActivation::kClampedSwiglu, .limit = 0.75f, .alpha = 1.702f};
    args.batch_invariant = batch_invariant;
    reference::moe_experts(args);
    args.out = out;
    GetParam().moe_experts(args);
    double largest = 0.0, error = 0.0;
    for (int64_t i = 0; i < out.size(); ++i) {
      largest = std::max(largest, std::abs(expected.at(i)));
      const double difference = std::abs(out.at(i) - expected.at(i));
      error = difference <= error ? error : difference;  // also propagates NaN
    }
    return error / largest;
  }
};

TEST_P(OnGpu, MatchFloat64) {
  for (const Format& format : kFormats)
    for (const DType dtype : testing_support::kWeightTypes)
      for (const int64_t num_tokens : {1, 9, 140})
        for (const bool clamped : {false, true}) {
          const double tolerance = dtype == DType::kF32   ? 1e-5
                                   : dtype == DType::kF16 ? 3 * 0x1p-11
                                                          : 3 * 0x1p-8;
          EXPECT_LE(max_error(format, dtype, num_tokens, clamped), tolerance)
              << format << ", " << dtype << ", " << num_tokens << " tokens, clamped " << clamped;
        }
}

// Dequantized weight in float32, which represents mxfp4 exactly.
TestTensor dequantized(const Weight& weight) {
  TestTensor made({weight.out_features(), weight.in_features()}, DType::kF32);
  for (int64_t out = 0; out < weight.out_features(); ++out)
    std::ranges::transform(reference::weight_row(weight, out), made.view()[out].as<float>(),
                           [](double element) { return static_cast<float>(element); });
  return made;
}

// Reference over dequantized mxfp4 weights. Reading each value many times in mxfp4 would be slow.
void compute_dequantized_reference(MoeExpertsArgs args) {
  const Linear &gate_up = args.linears.gate_up.front(), &down = args.linears.down.front();
  const TestTensor dequantized_gate_up = dequantized(gate_up.weight),
                   dequantized_down = dequantized(down.weight);
  const Linear both{.weight = dequantized_gate_up, .bias = gate_up.bias},
      last{.weight = dequantized_down, .bias = down.bias};
  args.linears = {.gate_up = {&both, 1}, .down = {&last, 1}};
  reference::moe_experts(args);
}

struct MxFp4Case {
  int64_t num_tokens;
  MoeShape shape;
  // Used only with biases and large scales.
  bool weights_scale_input = false;
  int64_t scales_at = 0;  // see MoeDevice::moe_experts()
};

// Shapes with dedicated GPU kernels: few rows, some experts with more than a tile or with more rows than fit
// in shared memory, many rows around the sizes of tiles, a single token with more inputs than threads
// prefetch, and rows of scales at any offset in a word, or all at even bytes.
TEST_P(OnGpu, MxFp4MatchesFloat64ForFewAndManyRows) {
  const Format& mxfp4 = kFormats[std::size(kFormats) - 1];
  ASSERT_EQ(mxfp4.format, WeightFormat::kMxFp4);
  const MoeShape small{.num_experts = 12, .top_k = 3, .hidden_size = 288, .intermediate_size = 160},
      large{.num_experts = 12, .top_k = 3, .hidden_size = 1440, .intermediate_size = 1056},
      even{.num_experts = 12, .top_k = 3, .hidden_size = 320, .intermediate_size = 192},
      narrow{.num_experts = 12, .top_k = 3, .hidden_size = 192, .intermediate_size = 64},
      wide{.num_experts = 12, .top_k = 3, .hidden_size = 1344, .intermediate_size = 64},
      flat{.num_experts = 12, .top_k = 3, .hidden_size = 64, .intermediate_size = 3840},
      deep{.num_experts = 12, .top_k = 3, .hidden_size = 1344, .intermediate_size = 128},
      long_x{.num_experts = 12, .top_k = 3, .hidden_size = 2880, .intermediate_size = 64},
      longer_x{.num_experts = 12, .top_k = 3, .hidden_size = 4160, .intermediate_size = 64};
  const std::vector<MxFp4Case> cases{
      {1, small},    {2, small},           {9, small},   {20, small},       {60, small},      {100, small},
      {1, large},    {1, even, true},      {1, long_x},  {1, longer_x},     {20, even, true}, {3, narrow},
      {9, even},     {20, even, false, 4}, {60, narrow}, {100, even, true}, {256, narrow},    {330, narrow},
      {400, narrow}, {400, deep},          {40, wide},   {20, flat},        {4, large}};
  constexpr int64_t kManyTokens = 200;  // these take the reference long
  for (const bool small_scales : {false, true})
    for (const bool clamped : {false, true})
      for (size_t case_idx = 0; case_idx < cases.size(); ++case_idx) {
        const auto& [num_tokens, shape, weights_scale_input, scales_at] = cases[case_idx];
        if (num_tokens > kManyTokens && small_scales != clamped) continue;
        const DType bias_dtype = testing_support::kWeightTypes[(case_idx + size_t{small_scales}) %
                                                               std::size(testing_support::kWeightTypes)];
        SCOPED_TRACE(testing::Message() << num_tokens << " tokens, " << shape.hidden_size << " -> "
                                        << shape.intermediate_size << ", clamped " << clamped << ", biases "
                                        << bias_dtype << ", small scales " << small_scales);
        const auto gate_up =
            random_weight(mxfp4, shape.num_experts * 2 * shape.intermediate_size, shape.hidden_size);
        const auto down =
            random_weight(mxfp4, shape.num_experts * shape.hidden_size, shape.intermediate_size);
        for (TestWeight* const weight : {gate_up.get(), down.get()})
          for (int64_t i = 0; i < weight->scales.size() && small_scales; ++i) {
            auto& exponent = static_cast<uint8_t*>(weight->scales.view().data)[i];
            exponent = i % 50 == 0 ? 0 : static_cast<uint8_t>(exponent - 3);
          }
        const TestTensor bias = TestTensor::random({gate_up->view.out_features()}, bias_dtype, 8),
                         down_bias = TestTensor::random({down->view.out_features()}, bias_dtype, 9);
        const Linear both{.weight = gate_up->view, .bias = clamped ? bias.view() : TensorView()},
            last{.weight = down->view, .bias = clamped ? down_bias.view() : TensorView()};
        const TestTensor x = TestTensor::random({num_tokens, shape.hidden_size}, DType::kBF16, 1, 0.01f),
                         weights = TestTensor::random({num_tokens, shape.top_k}, DType::kF32, 4);
        TestTensor experts({num_tokens, shape.top_k}, DType::kI32);
        // Every token is routed to expert 2.
        for (int64_t i = 0; i < experts.size(); ++i)
          experts.span<int32_t>()[static_cast<size_t>(i)] =
              i % 3 == 0 ? 2 : static_cast<int32_t>(3 + (i / 3 * 2 + i) % 9);
        const TestTensor expected({num_tokens, shape.hidden_size}, DType::kF32),
            out({num_tokens, shape.hidden_size}, DType::kBF16);
        MoeExpertsArgs args{.shape = shape,
                            .x = x,
                            .experts = experts,
                            .weights = weights,
                            .linears = {.gate_up = {&both, 1}, .down = {&last, 1}},
                            .weights_scale_input = weights_scale_input && clamped && !small_scales,
                            .out = expected};
        if (clamped)
          args.gate = {.activation = ExpertActivation::kClampedSwiglu, .limit = 0.75f, .alpha = 1.702f};
        // With few tokens most experts are not read.
        num_tokens < shape.num_experts ? reference::moe_experts(args) : compute_dequantized_reference(args);
        args.out = out;
        GetParam().moe_experts(args, clamped && !small_scales ? scales_at : 0);
        double largest = 0.0;
        for (const double value : expected.values()) largest = std::max(largest, std::abs(value));
        for (int64_t i = 0; i < out.size(); ++i)
          ASSERT_NEAR(out.at(i), expected.at(i), 3 * 0x1p-8 * largest) << i;
      }
}

INSTANTIATE_TEST_SUITE_P(QuantizedExperts, OnGpu,
                         testing::Values(testing_support::MoeDevice{.type = DeviceType::kCuda}),
                         testing_support::name_of_device);

// One matrix contains all experts, as in gpt-oss.
TEST(QuantizedExperts, HaveTheSameBitsInOneMatrix) {
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
