// MoE experts, compared with float64.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "attend/base/parallel.h"
#include "tests/kernels/dense/test_tensor.h"
#include "tests/kernels/moe/moe_device.h"
#include "tests/support/count_allocations.h"
#include "tests/support/error_message.h"

namespace attend::kernels {
namespace {

using testing_support::error_message;
using testing_support::kWeightTypes;
using testing_support::MoeDevice;
using testing_support::TestTensor;

using ExpertsTest = testing_support::OnMoeDevice;

// Number of matrices that the weights are stored in.
enum class Parts { kOne, kPerExpert, kPerGateAndUp };
// Experts that tokens are routed to.
enum class Choice { kEven, kFirst };

// Layer of experts, tokens, and their routing.
struct Layer {
  MoeShape shape;
  TestTensor x, gate_up, down, experts, weights;
  std::vector<TestTensor> biases = {};  // biases of gate_up and down, or empty
  ExpertGate gate = {};
  bool weights_scale_input = false;

  Layer(const MoeShape& layer_shape, int64_t num_tokens, DType weight_dtype, DType x_dtype, Choice choice)
      : shape(layer_shape),
        x(TestTensor::random({num_tokens, layer_shape.hidden_size}, x_dtype, 1)),
        gate_up(TestTensor::random(
            {layer_shape.num_experts * 2 * layer_shape.intermediate_size, layer_shape.hidden_size},
            weight_dtype, 2, 1.0f / std::sqrt(static_cast<float>(layer_shape.hidden_size)))),
        down(TestTensor::random(
            {layer_shape.num_experts * layer_shape.hidden_size, layer_shape.intermediate_size}, weight_dtype,
            3, 1.0f / std::sqrt(static_cast<float>(layer_shape.intermediate_size)))),
        experts({num_tokens, layer_shape.top_k}, DType::kI32),
        weights(TestTensor::random({num_tokens, layer_shape.top_k}, DType::kF32, 4)) {
    std::mt19937 generator(5);
    std::vector<int32_t> all(static_cast<size_t>(layer_shape.num_experts));
    for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int32_t>(i);
    for (int64_t token = 0; token < num_tokens; ++token) {
      if (choice == Choice::kEven) std::ranges::shuffle(all, generator);
      std::copy_n(all.begin(), layer_shape.top_k, experts.view()[token].as<int32_t>());
    }
  }

  // Biases and activation of gpt-oss, with gates and ups beyond the clamp.
  void add_biases(DType dtype) {
    biases.push_back(TestTensor::random({gate_up.view().shape[0]}, dtype, 6));
    biases.push_back(TestTensor::random({down.view().shape[0]}, dtype, 7));
    gate = {.activation = ExpertActivation::kClampedSwiglu, .limit = 0.75f, .alpha = 1.702f};
  }

  std::vector<Linear> parts(const TestTensor& whole, int64_t count) const {
    std::vector<Linear> linears;
    const int64_t rows = whole.view().shape[0] / count;
    for (int64_t i = 0; i < count; ++i) {
      linears.push_back({.weight = whole.view().slice(0, i * rows, (i + 1) * rows)});
      if (biases.empty()) continue;
      const TestTensor& bias = biases[&whole == &gate_up ? 0 : 1];
      linears.back().bias = bias.view().slice(0, i * rows, (i + 1) * rows);
    }
    return linears;
  }

  // Results of tokens begin to end - 1.
  std::vector<double> compute(const MoeDevice& device, int64_t begin, int64_t end, Parts weight_parts,
                              bool batch_invariant = false) const {
    TestTensor out({end - begin, shape.hidden_size}, x.view().dtype);
    out.fill(std::numeric_limits<float>::quiet_NaN());
    const int64_t count = weight_parts == Parts::kOne ? 1 : shape.num_experts;
    const auto gate_ups = parts(gate_up, weight_parts == Parts::kPerGateAndUp ? 2 * count : count),
               downs = parts(down, count);
    MoeExpertsArgs args = arguments(gate_ups, downs, out);
    args.x = args.x.slice(0, begin, end);
    args.experts = args.experts.slice(0, begin, end);
    args.weights = args.weights.slice(0, begin, end);
    args.batch_invariant = batch_invariant;
    device.moe_experts(args);
    return out.values();
  }

  MoeExpertsArgs arguments(std::span<const Linear> gate_ups, std::span<const Linear> downs,
                           const TensorView& out) const {
    return {.shape = shape,
            .x = x,
            .experts = experts,
            .weights = weights,
            .linears = {.gate_up = gate_ups, .down = downs},
            .gate = gate,
            .weights_scale_input = weights_scale_input,
            .out = out};
  }

  std::vector<double> expected() const {
    const TestTensor out({x.view().shape[0], shape.hidden_size}, DType::kF32);
    const auto gate_ups = parts(gate_up, 1), downs = parts(down, 1);
    reference::moe_experts(arguments(gate_ups, downs, out));
    return out.values();
  }
};

double max_abs(const std::vector<double>& values) {
  double largest = 0.0;
  for (const double value : values) largest = std::max(largest, std::abs(value));
  return largest;
}

// Relative to the largest result: intermediate values and the sum are rounded to the dtype.
double tolerance_for(DType dtype) {
  return dtype == DType::kF32 ? 3e-6 : dtype == DType::kF16 ? 3 * 0x1p-11 : 3 * 0x1p-8;
}

void expect_near(const std::vector<double>& got, const std::vector<double>& expected, double tolerance) {
  ASSERT_EQ(got.size(), expected.size());
  const double allowed = tolerance * max_abs(expected);
  for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], expected[i], allowed) << "element " << i;
}

// Sizes that fill tiles and vectors, and sizes with remainders; few experts and many.
constexpr MoeShape kShapes[] = {
    {.num_experts = 8, .top_k = 2, .hidden_size = 64, .intermediate_size = 32},
    {.num_experts = 24, .top_k = 6, .hidden_size = 104, .intermediate_size = 72},
    {.num_experts = 5, .top_k = 5, .hidden_size = 45, .intermediate_size = 27},
    {.num_experts = 1, .top_k = 1, .hidden_size = 72, .intermediate_size = 136},
};

TEST_P(ExpertsTest, WithoutAGateMatchFloat64) {
  for (const DType dtype : kWeightTypes)
    for (const MoeShape& shape : kShapes)
      for (const int64_t num_tokens : {1, 17, 150})
        for (const Parts weight_parts : {Parts::kOne, Parts::kPerExpert}) {
          if (GetParam().on_gpu() ? weight_parts != Parts::kOne : dtype != DType::kF32) continue;
          Layer layer(shape, num_tokens, dtype, dtype, Choice::kEven);
          layer.gate.activation = ExpertActivation::kRelu2;
          layer.gate_up =
              TestTensor::random({shape.num_experts * shape.intermediate_size, shape.hidden_size}, dtype, 2,
                                 1.0f / std::sqrt(static_cast<float>(shape.hidden_size)));
          SCOPED_TRACE(testing::Message()
                       << num_tokens << " tokens, " << shape.num_experts << " experts, " << to_string(dtype));
          // Squares double the relative rounding error of the first product.
          expect_near(layer.compute(GetParam(), 0, num_tokens, weight_parts), layer.expected(),
                      2 * tolerance_for(dtype));
        }
}

TEST_P(ExpertsTest, MatchFloat64) {
  for (const DType dtype : kWeightTypes)
    for (const MoeShape& shape : kShapes)
      for (const int64_t num_tokens : {1, 17, 150}) {
        const DType x_dtype = GetParam().activation_for(dtype);
        const Layer layer(shape, num_tokens, dtype, x_dtype, Choice::kEven);
        SCOPED_TRACE(testing::Message()
                     << num_tokens << " tokens, " << shape.num_experts << " experts, " << to_string(dtype));
        expect_near(layer.compute(GetParam(), 0, num_tokens, Parts::kOne), layer.expected(),
                    tolerance_for(x_dtype));
      }
}

TEST_P(ExpertsTest, WithGeluMatchFloat64) {
  for (const DType dtype : kWeightTypes)
    for (const MoeShape& shape : kShapes)
      for (const int64_t num_tokens : {1, 17, 150}) {
        const DType x_dtype = GetParam().activation_for(dtype);
        Layer layer(shape, num_tokens, dtype, x_dtype, Choice::kEven);
        layer.gate.activation = ExpertActivation::kGeluTanh;
        SCOPED_TRACE(testing::Message()
                     << num_tokens << " tokens, " << shape.num_experts << " experts, " << to_string(dtype));
        expect_near(layer.compute(GetParam(), 0, num_tokens, Parts::kOne), layer.expected(),
                    tolerance_for(x_dtype));
      }
}

TEST_P(ExpertsTest, WithBiasesAndClampedSwigluMatchFloat64) {
  for (const DType dtype : kWeightTypes)
    for (const MoeShape& shape : kShapes)
      for (const int64_t num_tokens : {1, 40, 400}) {
        // Tiles of many rows exist only on the GPU.
        if (num_tokens == 400 && (!GetParam().on_gpu() || &shape != kShapes)) continue;
        const DType x_dtype = GetParam().activation_for(dtype);
        Layer layer(shape, num_tokens, dtype, x_dtype, Choice::kEven);
        layer.add_biases(dtype);
        SCOPED_TRACE(testing::Message() << num_tokens << " tokens, " << shape.num_experts << " experts");
        const std::vector<double> expected = layer.expected();
        for (const Parts parts : {Parts::kOne, Parts::kPerExpert, Parts::kPerGateAndUp}) {
          if (GetParam().on_gpu() && parts != Parts::kOne) continue;  // the GPU requires one matrix
          expect_near(layer.compute(GetParam(), 0, num_tokens, parts), expected, tolerance_for(x_dtype));
        }
      }
}

// (8, -9) and (1, 0.5) at limit 7, computed by hand.
TEST_P(ExpertsTest, ClampGateFromAboveAndUpOnBothSides) {
  Layer layer({.num_experts = 1, .top_k = 1, .hidden_size = 2, .intermediate_size = 2}, 1, DType::kF32,
              DType::kF32, Choice::kFirst);
  for (TestTensor* zero : {&layer.x, &layer.gate_up, &layer.down}) zero->fill(0.0f);
  layer.weights.fill(1.0f);
  layer.down.set(0, 1.0f);
  layer.down.set(3, 1.0f);
  layer.add_biases(DType::kF32);
  layer.biases[1].fill(0.0f);
  layer.gate.limit = 7.0f;
  const float pairs[] = {8.0f, -9.0f, 1.0f, 0.5f};
  for (int64_t i = 0; i < 4; ++i) layer.biases[0].set(i, pairs[i]);
  const auto out = layer.compute(GetParam(), 0, 1, Parts::kOne);
  EXPECT_NEAR(out[0], -42.000, 1e-3);
  EXPECT_NEAR(out[1], 1.26869, 1e-5);
}

TEST_P(ExpertsTest, WithWeightedInputsMatchFloat64) {
  for (const DType dtype : kWeightTypes)
    for (const int64_t num_tokens : {1, 150}) {
      if (!GetParam().on_gpu() && dtype != DType::kBF16) continue;
      const DType x_dtype = GetParam().activation_for(dtype);
      Layer layer(kShapes[1], num_tokens, dtype, x_dtype, Choice::kEven);
      layer.weights_scale_input = true;
      expect_near(layer.compute(GetParam(), 0, num_tokens, Parts::kOne), layer.expected(),
                  tolerance_for(x_dtype));
    }
}

TEST_P(ExpertsTest, HandleAllTokensChoosingOneExpert) {
  const Layer layer(kShapes[1], 150, DType::kBF16, GetParam().activation_for(DType::kBF16), Choice::kFirst);
  expect_near(layer.compute(GetParam(), 0, 150, Parts::kOne), layer.expected(),
              tolerance_for(layer.x.view().dtype));
}

TEST_P(ExpertsTest, HaveTheSameBitsInOneMatrixAndInSeparateOnes) {
  if (GetParam().on_gpu()) GTEST_SKIP() << "a GPU joins the weights of experts";
  for (const int64_t num_tokens : {2, 90}) {
    const Layer layer(kShapes[1], num_tokens, DType::kBF16, DType::kF32, Choice::kEven);
    const auto whole = layer.compute(GetParam(), 0, num_tokens, Parts::kOne);
    EXPECT_EQ(layer.compute(GetParam(), 0, num_tokens, Parts::kPerExpert), whole);
    EXPECT_EQ(layer.compute(GetParam(), 0, num_tokens, Parts::kPerGateAndUp), whole);
  }
}

TEST_P(ExpertsTest, DoNotReadUnusedExperts) {
  Layer layer(kShapes[1], 20, DType::kBF16, GetParam().activation_for(DType::kBF16), Choice::kFirst);
  const std::vector<double> before = layer.compute(GetParam(), 0, 20, Parts::kOne);
  for (TestTensor* weights : {&layer.gate_up, &layer.down})
    for (int64_t i = weights->size() / layer.shape.num_experts * layer.shape.top_k; i < weights->size(); ++i)
      weights->set(i, std::numeric_limits<float>::quiet_NaN());
  EXPECT_EQ(layer.compute(GetParam(), 0, 20, Parts::kOne), before);
}

TEST_P(ExpertsTest, AreBatchInvariant) {
  for (const DType dtype : kWeightTypes)
    for (const Choice choice : {Choice::kEven, Choice::kFirst}) {
      const Layer layer(kShapes[0], 160, dtype, GetParam().activation_for(dtype), choice);
      const auto all = layer.compute(GetParam(), 0, 160, Parts::kOne, /*batch_invariant=*/true);
      for (const auto& [begin, end] : {std::pair{0, 1}, {159, 160}, {3, 9}, {20, 60}, {7, 140}}) {
        const auto some = layer.compute(GetParam(), begin, end, Parts::kOne, /*batch_invariant=*/true);
        EXPECT_TRUE(std::ranges::equal(
            some, std::span(all).subspan(static_cast<size_t>(begin * layer.shape.hidden_size), some.size())))
            << "tokens " << begin << " to " << end - 1 << ", " << to_string(dtype);
      }
    }
}

// Shapes with dedicated GPU kernels: experts with few rows, some with more than a tile.
constexpr MoeShape kWholeTiles{.num_experts = 16, .top_k = 4, .hidden_size = 208, .intermediate_size = 176};

TEST_P(ExpertsTest, FewRowsMatchFloat64) {
  for (const DType dtype : kWeightTypes)
    for (const Choice choice : {Choice::kEven, Choice::kFirst})
      for (const int64_t num_tokens : {1, 5, 12, 20, 47}) {
        if (!GetParam().on_gpu() && dtype != DType::kBF16) continue;
        const DType x_dtype = GetParam().activation_for(dtype);
        Layer layer(kWholeTiles, num_tokens, dtype, x_dtype, choice);
        SCOPED_TRACE(testing::Message() << num_tokens << " tokens, " << to_string(dtype));
        expect_near(layer.compute(GetParam(), 0, num_tokens, Parts::kOne), layer.expected(),
                    tolerance_for(x_dtype));
        layer.add_biases(dtype);
        expect_near(layer.compute(GetParam(), 0, num_tokens, Parts::kOne), layer.expected(),
                    tolerance_for(x_dtype));
        layer.weights_scale_input = true;
        expect_near(layer.compute(GetParam(), 0, num_tokens, Parts::kOne), layer.expected(),
                    tolerance_for(x_dtype));
      }
}

// Many K-blocks per warp, an even and an odd number of experts, and enough experts that warps do not split K.
TEST_P(ExpertsTest, SingleTokenMatchesFloat64) {
  if (!GetParam().on_gpu()) GTEST_SKIP() << "a CPU has one kernel for all";
  for (const MoeShape& shape :
       {MoeShape{.num_experts = 17, .top_k = 16, .hidden_size = 1032, .intermediate_size = 392},
        MoeShape{.num_experts = 9, .top_k = 8, .hidden_size = 2048, .intermediate_size = 768},
        MoeShape{.num_experts = 6, .top_k = 5, .hidden_size = 520, .intermediate_size = 1400},
        MoeShape{.num_experts = 3, .top_k = 1, .hidden_size = 4096, .intermediate_size = 1048}})
    for (const DType dtype : {DType::kBF16, DType::kF16}) {
      if (dtype == DType::kF16 && shape.top_k == 8) continue;
      SCOPED_TRACE(testing::Message() << shape.num_experts << " experts, " << to_string(dtype));
      Layer layer(shape, 1, dtype, dtype, Choice::kEven);
      expect_near(layer.compute(GetParam(), 0, 1, Parts::kOne), layer.expected(), tolerance_for(dtype));
      layer.add_biases(dtype);
      layer.weights_scale_input = true;
      expect_near(layer.compute(GetParam(), 0, 1, Parts::kOne), layer.expected(), tolerance_for(dtype));
    }
}

// A shared expert, computed as one or two further experts of the token.
TEST_P(ExpertsTest, SingleTokenWithASharedExpertMatchesFloat64) {
  if (!GetParam().on_gpu()) GTEST_SKIP() << "a CPU computes the shared expert separately";
  struct Case {
    MoeShape shape;
    int64_t num_parts;
    bool gated, scaled;
  };
  for (const Case& test_case :
       {Case{{9, 8, 1024, 512}, 1, true, true}, Case{{11, 10, 512, 256}, 1, true, true},
        Case{{7, 6, 672, 464}, 2, false, false}, Case{{8, 3, 520, 72}, 2, true, true},
        Case{{20, 14, 264, 48}, 1, false, true}})
    for (const DType dtype : {DType::kBF16, DType::kF16}) {
      const auto& [shape, num_parts, gated, scaled] = test_case;
      SCOPED_TRACE(testing::Message()
                   << shape.top_k << " experts, " << num_parts << " parts, " << to_string(dtype));
      const int64_t hidden = shape.hidden_size, size = num_parts * shape.intermediate_size;
      const int64_t products = gated ? 2 : 1;
      const auto deviation = [](int64_t inputs) { return 1.0f / std::sqrt(static_cast<float>(inputs)); };
      Layer layer(shape, 1, dtype, dtype, Choice::kEven);
      if (!gated) {
        layer.gate.activation = ExpertActivation::kRelu2;
        layer.gate_up = TestTensor::random({shape.num_experts * shape.intermediate_size, hidden}, dtype, 2,
                                           deviation(hidden));
      }
      TestTensor gate_out({1, 1}, DType::kF32);
      gate_out.fill(0.3f);
      // The shared expert in float64: an expert for the same x, with the weight of its gate.
      const MoeShape shared_shape{1, 1, hidden, size};
      Layer shared(shared_shape, 1, dtype, dtype, Choice::kFirst);
      shared.gate = layer.gate;
      shared.gate_up = TestTensor::random({products * size, hidden}, dtype, 8, deviation(hidden));
      shared.down = TestTensor::random({hidden, size}, dtype, 9, deviation(size));
      shared.weights.fill(scaled ? 1.0f / (1.0f + std::exp(-0.3f)) : 1.0f);
      std::vector<double> expected = layer.expected();
      const std::vector<double> added = shared.expected();
      for (size_t i = 0; i < expected.size(); ++i) expected[i] += added[i];

      TestTensor out({1, hidden}, dtype);
      out.fill(std::numeric_limits<float>::quiet_NaN());
      const auto gate_ups = layer.parts(layer.gate_up, 1), downs = layer.parts(layer.down, 1);
      MoeExpertsArgs args = layer.arguments(gate_ups, downs, out);
      args.shared = {.gate_up = {.weight = shared.gate_up},
                     .down = {.weight = shared.down},
                     .gate_out = scaled ? gate_out.view() : TensorView()};
      GetParam().moe_experts(args);
      expect_near(out.values(), expected, (gated ? 1 : 2) * tolerance_for(dtype));
    }
}

TEST_P(ExpertsTest, ManyRowsMatchFloat64) {
  if (!GetParam().on_gpu()) GTEST_SKIP() << "a CPU has one kernel for all";
  for (const DType dtype : {DType::kBF16, DType::kF16})
    for (const Choice choice : {Choice::kEven, Choice::kFirst})
      for (const MoeShape& shape :
           {kWholeTiles,
            MoeShape{.num_experts = 3, .top_k = 2, .hidden_size = 328, .intermediate_size = 200}}) {
        Layer layer(shape, 150, dtype, dtype, choice);
        SCOPED_TRACE(testing::Message() << shape.num_experts << " experts, " << to_string(dtype));
        expect_near(layer.compute(GetParam(), 0, 150, Parts::kOne), layer.expected(), tolerance_for(dtype));
        layer.weights_scale_input = true;
        expect_near(layer.compute(GetParam(), 0, 150, Parts::kOne), layer.expected(), tolerance_for(dtype));
      }
  // Enough pairs that several CTAs sort them, the last one with a few.
  const MoeShape many{.num_experts = 96, .top_k = 8, .hidden_size = 64, .intermediate_size = 32};
  for (const int64_t num_tokens : {1024, 1101}) {
    const Layer layer(many, num_tokens, DType::kBF16, DType::kBF16, Choice::kEven);
    SCOPED_TRACE(testing::Message() << num_tokens << " tokens");
    expect_near(layer.compute(GetParam(), 0, num_tokens, Parts::kOne), layer.expected(),
                tolerance_for(DType::kBF16));
  }
}

TEST_P(ExpertsTest, FewRowsAreBatchInvariant) {
  if (!GetParam().on_gpu()) GTEST_SKIP() << "a CPU's products of few and of more rows differ";
  for (const DType dtype : {DType::kBF16, DType::kF16})
    for (const Choice choice : {Choice::kEven, Choice::kFirst}) {
      const Layer layer(kWholeTiles, 12, dtype, dtype, choice);
      const auto all = layer.compute(GetParam(), 0, 12, Parts::kOne);
      // A single token uses a separate kernel.
      for (const auto& [begin, end] : {std::pair{0, 2}, {10, 12}, {3, 9}, {2, 11}}) {
        const auto some = layer.compute(GetParam(), begin, end, Parts::kOne);
        EXPECT_TRUE(std::ranges::equal(
            some, std::span(all).subspan(static_cast<size_t>(begin * layer.shape.hidden_size), some.size())))
            << "tokens " << begin << " to " << end - 1 << ", " << to_string(dtype);
      }
    }
}

TEST_P(ExpertsTest, AddToExistingOutputOnRequest) {
  if (!GetParam().on_gpu()) GTEST_SKIP() << "a CPU leaves that to the next norm";
  for (const auto& [dtype, num_tokens] :
       {std::pair{DType::kF32, 30}, {DType::kBF16, 1}, {DType::kBF16, 30}, {DType::kBF16, 300}}) {
    const Layer layer(kShapes[0], num_tokens, dtype, dtype, Choice::kEven);
    const auto gate_ups = layer.parts(layer.gate_up, 1), downs = layer.parts(layer.down, 1);
    const auto run = [&](const TestTensor& out, const auto& compute) {
      MoeExpertsArgs args = layer.arguments(gate_ups, downs, out);
      args.accumulate = true;
      compute(args);
      return out.values();
    };
    const TestTensor got = TestTensor::random({num_tokens, layer.shape.hidden_size}, dtype, 9),
                     expected = TestTensor::random({num_tokens, layer.shape.hidden_size}, dtype, 9);
    expect_near(run(got, [](const MoeExpertsArgs& args) { GetParam().moe_experts(args); }),
                run(expected, [](const MoeExpertsArgs& args) { reference::moe_experts(args); }),
                tolerance_for(dtype));
  }
}

TEST(Experts, DoNotAllocate) {
  const Layer layer(kShapes[1], 150, DType::kBF16, DType::kF32, Choice::kFirst);
  const auto gate_ups = layer.parts(layer.gate_up, 1), downs = layer.parts(layer.down, 1);
  const TestTensor out({150, layer.shape.hidden_size}, DType::kF32);
  MoeExpertsArgs args = layer.arguments(gate_ups, downs, out);
  const size_t num_bytes = experts_scratch_bytes(layer.shape, 150, DType::kF32);
  const Tensor scratch = Tensor::empty({static_cast<int64_t>(num_bytes)}, DType::kU8);
  args.scratch = {static_cast<std::byte*>(scratch.view().data), num_bytes};
  Stream stream;
  moe_experts(args, stream);
  const auto before = testing_support::num_allocations();
  moe_experts(args, stream);
  EXPECT_EQ(testing_support::num_allocations(), before);
}

TEST(Experts, RejectUnsupportedInput) {
  const Layer layer(kShapes[0], 4, DType::kF16, DType::kF32, Choice::kEven);
  const TestTensor out({4, 64}, DType::kF32);
  const auto error_text = [&](ErrorCode code, const auto& change) {
    auto gate_ups = layer.parts(layer.gate_up, 1), downs = layer.parts(layer.down, 1);
    const size_t num_bytes = experts_scratch_bytes(layer.shape, 4, DType::kF32);
    const Tensor scratch = Tensor::empty({static_cast<int64_t>(num_bytes)}, DType::kU8);
    MoeExpertsArgs args = layer.arguments(gate_ups, downs, out);
    args.scratch = {static_cast<std::byte*>(scratch.view().data), num_bytes};
    change(args, gate_ups, downs);
    args.linears = {.gate_up = gate_ups, .down = downs};
    Stream stream;
    return error_message(code, [&] { moe_experts(args, stream); });
  };
  using Linears = std::vector<Linear>;
  EXPECT_EQ(
      error_text(ErrorCode::kInvalidArgument,
                 [](MoeExpertsArgs& args, Linears&, Linears&) { args.shape.top_k = 9; }),
      "experts: 9 of 8, 64 features and 32 in each expert: expected at least 1 of each, and top_k up to the "
      "number of experts");
  EXPECT_EQ(error_text(ErrorCode::kInvalidArgument,
                       [](MoeExpertsArgs&, Linears& gate_ups, Linears&) { gate_ups.resize(3); }),
            "gate_up: 3 matrices of 8 experts: expected one, or on a CPU one per expert");
  EXPECT_EQ(error_text(ErrorCode::kInvalidArgument,
                       [](MoeExpertsArgs&, Linears&, Linears& downs) {
                         downs[0].weight = downs[0].weight.data.slice(0, 0, 7 * 64);
                       }),
            "down float16[448, 32] on cpu: expected 512 in dimension 0");
  EXPECT_EQ(error_text(ErrorCode::kInvalidArgument,
                       [](MoeExpertsArgs& args, Linears&, Linears&) { args.scratch = {}; })
                .substr(0, 20),
            "scratch of 0 bytes: ");
  EXPECT_EQ(error_text(ErrorCode::kInvalidArgument,
                       [&](MoeExpertsArgs&, Linears&, Linears&) { layer.experts.span<int32_t>()[3] = 8; }),
            "experts: 8: expected 0 to 7");
  EXPECT_EQ(error_text(ErrorCode::kUnsupported,
                       [](MoeExpertsArgs& args, Linears&, Linears&) { args.accumulate = true; }),
            "accumulate: moe_experts() on cpu does not support it; cuda does");
  EXPECT_EQ(error_text(ErrorCode::kInvalidArgument,
                       [](MoeExpertsArgs& args, Linears&, Linears&) {
                         args.gate.activation = ExpertActivation::kClampedSwiglu;
                       }),
            "clamped swiglu with limit 0 and alpha 0: expected both above 0");
  EXPECT_EQ(error_text(ErrorCode::kInvalidArgument,
                       [&](MoeExpertsArgs&, Linears& gate_ups, Linears&) {
                         gate_ups = layer.parts(layer.gate_up, 8);
                         gate_ups[3].bias = layer.weights.view().reshape({8});
                       }),
            "gate_up: some matrices have a bias: expected all or none");
}

INSTANTIATE_TEST_SUITE_P(Moe, ExpertsTest, testing::ValuesIn(testing_support::moe_devices()),
                         testing_support::name_of_device);

}  // namespace
}  // namespace attend::kernels
