// The gated delta rule and its norm, compared with float64.
#include "attend/kernels/recurrent/gated_delta.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "attend/base/error.h"
#include "attend/kernels/recurrent/cpu/recurrent.h"
#include "tests/kernels/recurrent/recurrent_steps.h"
#include "tests/support/error_message.h"

namespace attend::kernels {
namespace {

using test::Batch;
using testing_support::error_message;

struct Shape {
  int64_t k_heads, v_heads, dim_k, dim_v;
};
constexpr Shape kShapes[] = {{2, 2, 16, 16}, {1, 2, 24, 40}, {2, 6, 12, 5}, {1, 4, 128, 33}};
constexpr int64_t kSlots = 8;

struct Decay {
  bool per_channel = false;
  float lower_bound = 0.0f;
};
constexpr Decay kDecays[] = {{false, 0.0f}, {true, 0.0f}, {false, -5.0f}, {true, -5.0f}};

// Layer with its inputs for up to `num_tokens` tokens.
struct Layer {
  Layer(const Shape& shape, int64_t num_tokens, const Decay& kind = {})
      : ratio(shape.v_heads / shape.k_heads),
        qkv(Tensor::empty({num_tokens, 2 * shape.k_heads * shape.dim_k + shape.v_heads * shape.dim_v},
                          DType::kF32)),
        gates(Tensor::empty({num_tokens, 2 * shape.v_heads}, DType::kF32)),
        a_log(Tensor::empty({shape.v_heads}, DType::kF32)),
        dt_bias(kind.per_channel ? Tensor::empty({shape.v_heads, shape.dim_k}, DType::kF32)
                                 : Tensor::empty({shape.v_heads}, DType::kF32)),
        channel_gates(Tensor::empty({num_tokens, shape.v_heads * shape.dim_k}, DType::kF32)),
        state(Tensor::empty({kSlots, shape.v_heads, shape.dim_v, shape.dim_k}, DType::kF32)),
        out(Tensor::empty({num_tokens, shape.v_heads, shape.dim_v}, DType::kF32)),
        dims(shape),
        decay(kind) {
    test::fill_random(qkv, 1);
    test::fill_random(gates, 2, -2.0f, 2.0f);
    test::fill_random(channel_gates, 5, -2.0f, 2.0f);
    // The state must outlive many tokens, so decays are close to 1.
    test::fill_random(a_log, 3, -4.0f, 0.5f);
    test::fill_random(dt_bias, 4, -4.0f, -1.0f);
    test::fill(state, test::kNan);
    test::fill(out, test::kNan);
  }

  // Arguments for tokens [first, first + num_tokens).
  GatedDeltaArgs args(const Batch& batch, int64_t first, int64_t num_tokens) const {
    const TensorView rows = qkv.view().slice(0, first, first + num_tokens);
    const int64_t keys = dims.k_heads * dims.dim_k;
    // Grouped by key head, beta first, as Qwen3-Next stores them.
    const TensorView grouped = gates.view().slice(0, first, first + num_tokens).split(1, 2 * ratio);
    return {.q = rows.slice(1, 0, keys).split(1, dims.dim_k),
            .k = rows.slice(1, keys, 2 * keys).split(1, dims.dim_k),
            .v = rows.slice(1, 2 * keys, rows.shape[1]).split(1, dims.dim_v),
            .alpha = decay.per_channel
                         ? channel_gates.view().slice(0, first, first + num_tokens).split(1, dims.dim_k)
                         : grouped.slice(2, ratio, 2 * ratio),
            .beta = grouped.slice(2, 0, ratio),
            .a_log = a_log,
            .dt_bias = dt_bias,
            .beta_scale = beta_scale,
            .lower_bound = decay.lower_bound,
            .state = state,
            .out = out.view().slice(0, first, first + num_tokens),
            .batch = batch.view()};
  }

  int64_t ratio;
  Tensor qkv, gates, a_log, dt_bias, channel_gates, state, out;
  Shape dims;
  Decay decay;
  float beta_scale = 1.0f;
};

// One request from its first token on, in steps that end at `ends`.
void run_steps(const Layer& layer, std::span<const int32_t> ends, cpu::Isa isa) {
  int32_t first = 0;
  for (const int32_t end : ends) {
    Batch batch;
    batch.add(3, first, end - first);
    const GatedDeltaArgs args = layer.args(batch, first, end - first);
    Stream stream;
    check(args, stream);
    cpu::gated_delta_rule(args, isa);
    first = end;
  }
}

void run_reference(const Layer& layer, int32_t num_tokens) {
  Batch batch;
  batch.add(3, 0, num_tokens);
  reference::gated_delta_rule(layer.args(batch, 0, num_tokens));
}

TEST(GatedDeltaReference, FollowsTheRecurrenceOfOneHead) {
  Layer layer({1, 1, 2, 1}, 2);
  layer.a_log.as<float>()[0] = 0.0f;  // rate 1
  layer.dt_bias.as<float>()[0] = 0.0f;
  const float qkv[] = {3.0f, 4.0f, 1.0f, 0.0f, 2.0f, 0.0f, 5.0f, 0.0f, 2.0f, 1.0f};  // q, k, v of each token
  std::ranges::copy(qkv, layer.qkv.as<float>());
  const float gates[] = {0.0f, 0.0f, 0.0f, 0.0f};  // beta 1/2, decay e^-ln 2 = 1/2
  std::ranges::copy(gates, layer.gates.as<float>());
  run_reference(layer, 2);
  // S = [1, 0] after token 0; token 1: S = [1/2, 0], delta = 1/2 (1 - 0), S = [1/2, 1/2].
  const float scale = 1.0f / std::sqrt(2.0f);
  EXPECT_NEAR(layer.out.as<float>()[0], 0.6f * scale, 1e-5f);
  EXPECT_NEAR(layer.out.as<float>()[1], 0.5f * scale, 1e-5f);
  const float* const state = layer.state.view()[3].span<float>().data();
  EXPECT_NEAR(state[0], 0.5f, 1e-5f);
  EXPECT_NEAR(state[1], 0.5f, 1e-5f);
}

TEST(GatedDeltaReference, DecaysEachChannelOfTheKey) {
  Layer layer({1, 1, 2, 1}, 2, {.per_channel = true});
  layer.a_log.as<float>()[0] = std::log(2.0f);  // rate 2
  const float biases[] = {0.0f, -1.0f};
  std::ranges::copy(biases, layer.dt_bias.as<float>());
  const float qkv[] = {0.0f, 1.0f, 3.0f, 4.0f, 2.0f, 1.0f, 0.0f, 1.0f, 0.0f, 3.0f};  // q, k, v of each token
  std::ranges::copy(qkv, layer.qkv.as<float>());
  const float gates[] = {0.0f, 0.0f, 0.0f, 0.0f};  // beta 1/2
  std::ranges::copy(gates, layer.gates.as<float>());
  // The second token's decays are e^(-2 ln 2) = 1/4 and, with alpha + dt_bias = ln 3, e^(-2 ln 4) = 1/16.
  const float alpha[] = {0.0f, 0.0f, 0.0f, 1.0f + std::log(3.0f)};
  std::ranges::copy(alpha, layer.channel_gates.as<float>());
  run_reference(layer, 2);
  // S = [0.6, 0.8] after token 0; token 1: S = [0.15, 0.05], delta = 1/2 (3 - 0.15), S = [1.575, 0.05].
  EXPECT_NEAR(layer.out.as<float>()[0], 0.8f / std::sqrt(2.0f), 1e-5f);
  EXPECT_NEAR(layer.out.as<float>()[1], 1.575f / std::sqrt(2.0f), 1e-5f);
  EXPECT_NEAR(layer.state.view()[3].span<float>()[1], 0.05f, 1e-5f);
}

class GatedDelta : public testing::TestWithParam<cpu::Isa> {};
INSTANTIATE_TEST_SUITE_P(, GatedDelta,
                         testing::ValuesIn(cpu::available_isas().begin(), cpu::available_isas().end()),
                         [](const auto& isa) {
                           std::string name(to_string(isa.param));
                           std::erase(name, '-');
                           return name;
                         });

// Roundings to bfloat16 give errors of about 4e-3; those of float32 are 2^16 times smaller.
constexpr double kTolerance = 5e-6;

TEST_P(GatedDelta, AgreesWithTheReferenceForEveryShape) {
  for (const Shape& shape : kShapes)
    for (const Decay& decay : kDecays) {
      Layer layer(shape, 70, decay), expected(shape, 70, decay);
      layer.beta_scale = expected.beta_scale = shape.dim_k > 16 ? 2.0f : 1.0f;
      const int32_t all[] = {70};
      run_steps(layer, all, GetParam());
      run_reference(expected, 70);
      EXPECT_LE(test::relative_error(layer.out, expected.out), kTolerance)
          << shape.dim_k << ' ' << decay.per_channel << ' ' << decay.lower_bound;
      EXPECT_LE(test::relative_error(Tensor(layer.state.view()[3], nullptr),
                                     Tensor(expected.state.view()[3], nullptr)),
                kTolerance);
    }
}

TEST_P(GatedDelta, DecaysExtremeInputsWithoutOverflow) {
  for (const Decay& decay : kDecays) {
    const Shape shape{1, 1, 24, 4};
    Layer layer(shape, 8, decay), expected(shape, 8, decay);
    for (const Layer* const either : {&layer, &expected}) {
      for (const Tensor* const gates : {&either->gates, &either->channel_gates})
        test::fill_random(*gates, 6, -300.0f, 300.0f);
      test::fill(either->a_log, 2.8f);
    }
    const int32_t all[] = {8};
    run_steps(layer, all, GetParam());
    run_reference(expected, 8);
    EXPECT_LE(test::relative_error(layer.out, expected.out), kTolerance)
        << decay.per_channel << ' ' << decay.lower_bound;
  }
}

TEST_P(GatedDelta, ReturnsTheSameBitsForEveryCut) {
  constexpr int32_t kTokens = 37;
  for (const Decay& decay : {kDecays[0], kDecays[1]}) {
    Layer whole({2, 4, 16, 40}, kTokens, decay);
    const int32_t all[] = {kTokens};
    run_steps(whole, all, GetParam());
    for (int32_t cut = 1; cut < kTokens; ++cut) {
      Layer layer({2, 4, 16, 40}, kTokens, decay);
      const int32_t ends[] = {cut, kTokens};
      run_steps(layer, ends, GetParam());
      EXPECT_TRUE(std::ranges::equal(layer.out.span<float>(), whole.out.span<float>())) << "cut at " << cut;
    }
    Layer decoded({2, 4, 16, 40}, kTokens, decay);
    std::vector<int32_t> ends;
    for (int32_t end = 1; end <= kTokens; ++end) ends.push_back(end);
    run_steps(decoded, ends, GetParam());
    EXPECT_TRUE(std::ranges::equal(decoded.out.span<float>(), whole.out.span<float>()));
    EXPECT_TRUE(
        std::ranges::equal(decoded.state.view()[3].span<float>(), whole.state.view()[3].span<float>()));
  }
}

TEST_P(GatedDelta, BatchesRequestsAndLeavesOtherSlotsUntouched) {
  const Shape shape{2, 4, 16, 8};
  // Tokens 0 to 8 of request 1 from zero, a pad request, tokens 0 to 1 of request 5, and a pad token.
  Layer layer(shape, 12), alone(shape, 12);
  Batch batch;
  batch.add(1, 0, 9);
  batch.add(0, 0, 1);
  batch.add(5, 0, 1);
  batch.save_slots.push_back(0);
  cpu::gated_delta_rule(layer.args(batch, 0, 12), GetParam());
  for (const auto& [row, first, count] : {std::tuple{1, 0, 9}, {5, 10, 1}}) {
    Batch one;
    one.add(row, 0, count);
    cpu::gated_delta_rule(alone.args(one, first, count), GetParam());
  }
  for (int64_t token = 0; token < 12; ++token) {
    const bool is_padding = token == 9 || token == 11;
    for (size_t i = 0; i < 32; ++i)
      EXPECT_EQ(layer.out.view()[token].span<float>()[i],
                is_padding ? 0.0f : alone.out.view()[token].span<float>()[i]);
  }
  for (int64_t slot = 0; slot < kSlots; ++slot)
    for (const float x : layer.state.view()[slot].span<float>())
      EXPECT_EQ(std::isnan(x), slot != 1 && slot != 5) << slot;
}

TEST_P(GatedDelta, ContinuesFromASavedStateInAnotherRow) {
  const Shape shape{1, 2, 16, 8};
  Layer layer(shape, 20), whole(shape, 20);
  const int32_t all[] = {20};
  run_steps(whole, all, GetParam());
  Batch first;
  first.add(1, 0, 20);
  first.save_slots[6] = 6;  // after 7 tokens
  first.save_slots[11] = 7;
  cpu::gated_delta_rule(layer.args(first, 0, 20), GetParam());
  test::fill(layer.out, test::kNan);
  for (const auto& [slot, start] : {std::pair{6, 7}, {7, 12}}) {
    Batch second;
    second.add(2, start, 20 - start, slot);
    cpu::gated_delta_rule(layer.args(second, start, 20 - start), GetParam());
    EXPECT_TRUE(std::ranges::equal(layer.out.view().slice(0, start, 20).span<float>(),
                                   whole.out.view().slice(0, start, 20).span<float>()));
  }
}

class GatedDeltaNorm : public testing::TestWithParam<std::tuple<cpu::Isa, bool>> {};
INSTANTIATE_TEST_SUITE_P(, GatedDeltaNorm,
                         testing::Combine(testing::ValuesIn(cpu::available_isas().begin(),
                                                            cpu::available_isas().end()),
                                          testing::Bool()),
                         [](const auto& param) {
                           std::string name(to_string(std::get<0>(param.param)));
                           std::erase(name, '-');
                           return name + (std::get<1>(param.param) ? "Sigmoid" : "Silu");
                         });

TEST_P(GatedDeltaNorm, NormalizesEachHeadAndMultipliesByItsGate) {
  const auto [isa, sigmoid] = GetParam();
  const int64_t tokens = 3, heads = 4, dim = 10;
  const Tensor x = Tensor::empty({tokens, heads, dim}, DType::kF32);
  const Tensor weight = Tensor::empty({dim}, DType::kF32);
  const Tensor gates = Tensor::empty({tokens, 2, 50}, DType::kF32);
  test::fill_random(x, 1);
  test::fill_random(weight, 2, 0.5f, 1.5f);
  test::fill_random(gates, 3, -3.0f, 3.0f);
  const TensorView gate = gates.view().slice(2, 30, 50);  // two heads in each group of 50 features
  std::vector<double> expected;
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t h = 0; h < heads; ++h) {
      const View<float> row = x.view()[t][h].span<float>();
      double squares = 0.0;
      for (const float value : row) squares += double{value} * double{value};
      for (int64_t i = 0; i < dim; ++i) {
        const double z = double{gate[t][h / 2].as<float>()[h % 2 * dim + i]};
        expected.push_back(double{row[static_cast<size_t>(i)]} /
                           std::sqrt(squares / static_cast<double>(dim) + 1e-5) *
                           double{weight.as<float>()[i]} * (sigmoid ? 1.0 : z) / (1.0 + std::exp(-z)));
      }
    }
  cpu::gated_norm({.x = x, .weight = weight, .eps = 1e-5f, .gate = gate, .sigmoid = sigmoid}, isa);
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(x.span<float>()[i], expected[i], 5e-6);
}

TEST(GatedDeltaCheck, NamesTheArgumentAndItsValue) {
  Layer layer({2, 4, 16, 8}, 4);
  Batch batch;
  batch.add(1, 0, 4);
  Stream stream;
  const auto message = [&](const auto& change) {
    GatedDeltaArgs args = layer.args(batch, 0, 4);
    change(args);
    return error_message(ErrorCode::kInvalidArgument, [&] { gated_delta_rule(args, stream); });
  };
  const auto contains = [](const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  };
  EXPECT_PRED2(contains, message([](GatedDeltaArgs& args) { args.v = args.v.slice(1, 0, 3); }),
               "a multiple of 2");
  EXPECT_PRED2(contains, message([](GatedDeltaArgs& args) { args.beta_scale = 0.0f; }), "beta_scale 0");
  EXPECT_PRED2(contains, message([](GatedDeltaArgs& args) { args.lower_bound = 5.0f; }), "lower_bound 5");
  const Tensor channel_bias = Tensor::zeros({4, 16}, DType::kF32);
  EXPECT_PRED2(contains, message([&](GatedDeltaArgs& args) { args.dt_bias = channel_bias; }),
               "expected 4 in dimension 1");
  batch.rows[0] = kSlots;
  EXPECT_PRED2(contains, message([](GatedDeltaArgs&) {}), "rows[0] 8: expected 0 to 7");
  batch.rows[0] = 1;
  batch.seqlen_kv[0] = 3;
  EXPECT_PRED2(contains, message([](GatedDeltaArgs&) {}), "request 0 with 4 new tokens");
}

}  // namespace
}  // namespace attend::kernels
