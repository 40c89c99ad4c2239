// The gated delta rule and its norm, compared with float64.
#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "attend/base/error.h"
#include "attend/kernels/recurrent/recurrent.h"
#include "tests/kernels/recurrent/recurrent_steps.h"
#include "tests/kernels/recurrent/recurrent_target.h"
#include "tests/support/error_message.h"

namespace attend::kernels {
namespace {

using test::Batch;
using test::run;
using test::run_steps;
using testing_support::error_message;

struct Shape {
  int64_t k_heads, v_heads, dim_k, dim_v;
};
constexpr Shape kShapes[] = {{2, 2, 16, 16},  {1, 2, 24, 40}, {2, 6, 12, 5},
                             {1, 4, 128, 33}, {1, 2, 96, 20}, {1, 1, 200, 16}};
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

using GatedDelta = test::NeedsTarget;
INSTANTIATE_TEST_SUITE_P(, GatedDelta, testing::ValuesIn(test::f32_targets()), test::target_name);

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
  run(layer.args(batch, 0, 12), GetParam());
  for (const auto& [row, first, count] : {std::tuple{1, 0, 9}, {5, 10, 1}}) {
    Batch one;
    one.add(row, 0, count);
    run(alone.args(one, first, count), GetParam());
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
  run(layer.args(first, 0, 20), GetParam());
  test::fill(layer.out, test::kNan);
  for (const auto& [slot, start] : {std::pair{6, 7}, {7, 12}}) {
    Batch second;
    second.add(2, start, 20 - start, slot);
    run(layer.args(second, start, 20 - start), GetParam());
    EXPECT_TRUE(std::ranges::equal(layer.out.view().slice(0, start, 20).span<float>(),
                                   whole.out.view().slice(0, start, 20).span<float>()));
  }
}

// Largest error of the norm of x, relative to 1, for each kind of gate.
double norm_error(int64_t heads, int64_t heads_per_group, int64_t dim, const test::Target& target) {
  constexpr int64_t kTokens = 3;
  const int64_t width = heads_per_group * dim, groups = heads / heads_per_group;
  double error = 0.0;
  for (const bool sigmoid : {false, true}) {
    const Tensor x = Tensor::empty({kTokens, heads, dim}, DType::kF32);
    const Tensor weight = Tensor::empty({dim}, DType::kF32);
    const Tensor gates = Tensor::empty({kTokens, groups, 2 * width}, DType::kF32);
    test::fill_random(x, 1);
    test::fill_random(weight, 2, 0.5f, 1.5f);
    test::fill_random(gates, 3, -3.0f, 3.0f);
    for (const Tensor* const inputs : {&x, &gates}) test::round_elements(*inputs, target);
    const TensorView gate = gates.view().slice(2, width, 2 * width);
    std::vector<double> expected;
    for (int64_t t = 0; t < kTokens; ++t)
      for (int64_t h = 0; h < heads; ++h) {
        const View<float> row = x.view()[t][h].span<float>();
        double squares = 0.0;
        for (const float value : row) squares += double{value} * double{value};
        for (int64_t i = 0; i < dim; ++i) {
          const double z = double{gate[t][h / heads_per_group].as<float>()[h % heads_per_group * dim + i]};
          expected.push_back(double{row[static_cast<size_t>(i)]} /
                             std::sqrt(squares / static_cast<double>(dim) + 1e-5) *
                             double{weight.as<float>()[i]} * (sigmoid ? 1.0 : z) / (1.0 + std::exp(-z)));
        }
      }
    run({.x = x, .weight = weight, .eps = 1e-5f, .gate = gate, .sigmoid = sigmoid}, target);
    for (size_t i = 0; i < expected.size(); ++i)
      error = std::max(error, std::abs(double{x.span<float>()[i]} - expected[i]));
  }
  return error;
}

TEST_P(GatedDelta, NormalizesEachHeadAndMultipliesByItsGate) {
  EXPECT_LE(norm_error(4, 2, 10, GetParam()), 5e-6);
  EXPECT_LE(norm_error(3, 3, 128, GetParam()), 5e-6);
}

using GatedDeltaHalf = test::NeedsTarget;
INSTANTIATE_TEST_SUITE_P(, GatedDeltaHalf, testing::ValuesIn(test::half_targets()), test::target_name);

// Largest error of one rounding to the target's activations.
double rounding(const test::Target& target) { return target.dtype == DType::kBF16 ? 0x1p-8 : 0x1p-11; }

Layer rounded_layer(const Shape& shape, int64_t num_tokens, const test::Target& target,
                    const Decay& decay = {}) {
  Layer layer(shape, num_tokens, decay);
  for (const Tensor* const inputs : {&layer.qkv, &layer.gates, &layer.channel_gates})
    test::round_elements(*inputs, target);
  return layer;
}

TEST_P(GatedDeltaHalf, NormalizesEachHeadAndMultipliesByItsGate) {
  // Results are below 8.
  for (const int64_t dim : {10, 64, 128, 192, 256})
    EXPECT_LE(norm_error(4, 2, dim, GetParam()), 8.0 * rounding(GetParam())) << dim;
}

TEST_P(GatedDeltaHalf, RoundsOutputsOnlyIfBatchInvariant) {
  constexpr int32_t kTokens = 150;
  for (const Shape& shape : {Shape{1, 2, 128, 64}, Shape{1, 3, 96, 16}, Shape{2, 2, 20, 33}})
    for (const Decay& decay : kDecays) {
      const Layer layer = rounded_layer(shape, kTokens, GetParam(), decay);
      const Layer expected = rounded_layer(shape, kTokens, GetParam(), decay);
      Batch batch;
      batch.add(3, 0, kTokens);
      GatedDeltaArgs args = layer.args(batch, 0, kTokens);
      args.batch.batch_invariant = true;
      run(args, GetParam());
      run_reference(expected, kTokens);
      EXPECT_LE(test::relative_error(layer.out, expected.out), rounding(GetParam())) << shape.dim_k;
      EXPECT_LE(test::relative_error(layer.state.view()[3], expected.state.view()[3]), kTolerance);
    }
}

TEST_P(GatedDeltaHalf, ReturnsTheSameBitsForEveryCutIfBatchInvariant) {
  constexpr int32_t kTokens = 140;
  const Shape shape{1, 2, 128, 32};
  const auto outputs = [&](std::span<const int32_t> ends) {
    const Layer layer = rounded_layer(shape, kTokens, GetParam());
    int32_t first = 0;
    for (const int32_t end : ends) {
      Batch batch;
      batch.add(3, first, end - first);
      GatedDeltaArgs args = layer.args(batch, first, end - first);
      args.batch.batch_invariant = true;
      run(args, GetParam());
      first = end;
    }
    return layer;
  };
  const int32_t all[] = {kTokens}, parts[] = {1, 2, 40, 104, kTokens};
  const Layer whole = outputs(all), divided = outputs(parts);
  EXPECT_TRUE(std::ranges::equal(divided.out.span<float>(), whole.out.span<float>()));
  EXPECT_TRUE(std::ranges::equal(divided.state.view()[3].span<float>(), whole.state.view()[3].span<float>()));
}

// Operands of a chunk's products are rounded: the state, X, V, T and A.
double chunk_tolerance(const test::Target& target) { return 4.0 * rounding(target); }

TEST_P(GatedDeltaHalf, ComputesChunksOfEveryLength) {
  const Shape shapes[] = {{1, 2, 128, 128}, {1, 1, 64, 32}, {1, 3, 96, 48}, {1, 4, 128, 16}};
  for (const Decay& decay : kDecays)
    for (const Shape& shape : shapes)
      for (const int32_t num_tokens : {1, 63, 64, 65, 96, 129, 1000}) {
        if (num_tokens == 1000 && (shape.dim_v == 128 || decay.lower_bound < 0.0f)) continue;
        Layer layer = rounded_layer(shape, num_tokens, GetParam(), decay);
        Layer expected = rounded_layer(shape, num_tokens, GetParam(), decay);
        layer.beta_scale = expected.beta_scale = shape.v_heads == 1 ? 2.0f : 1.0f;
        Batch batch;
        batch.add(3, 0, num_tokens);
        run(layer.args(batch, 0, num_tokens), GetParam());
        run_reference(expected, num_tokens);
        const std::string where = std::to_string(shape.dim_k) + " " + std::to_string(num_tokens) +
                                  (decay.per_channel ? " per channel" : "");
        EXPECT_LE(test::relative_error(layer.out, expected.out), chunk_tolerance(GetParam())) << where;
        EXPECT_LE(test::relative_error(layer.state.view()[3], expected.state.view()[3]),
                  chunk_tolerance(GetParam()))
            << where;
      }
}

TEST_P(GatedDeltaHalf, ComputesChunksAndStepsOfAMixedBatch) {
  const Shape shape{2, 4, 64, 32};
  constexpr int32_t kTokens = 340;
  for (const Decay& decay : kDecays) {
    const Layer layer = rounded_layer(shape, kTokens, GetParam(), decay);
    const Layer expected = rounded_layer(shape, kTokens, GetParam(), decay);
    for (const Layer* const either : {&layer, &expected})
      for (const int64_t slot : {4, 5, 7}) test::fill_random(either->state.view()[slot], 8, -0.5f, 0.5f);
    // A prompt, padding, a token, a chunk of a prompt that starts inside a chunk and from another slot,
    // drafts, and two tokens without a request.
    Batch batch;
    batch.add(1, 0, 130);
    batch.add(0, 0, 3);
    batch.add(5, 40, 1);
    batch.add(2, 37, 198, 7);
    batch.add(4, 5, 6);
    batch.save_slots.resize(kTokens);
    batch.save_slots[70] = 3;
    batch.save_slots[134 + 26] = 6;  // the last token of a chunk
    run(layer.args(batch, 0, kTokens), GetParam());
    reference::gated_delta_rule(expected.args(batch, 0, kTokens));
    EXPECT_LE(test::relative_error(layer.out, expected.out), chunk_tolerance(GetParam()));
    for (const int64_t slot : {1, 2, 3, 4, 5, 6, 7})
      EXPECT_LE(test::relative_error(layer.state.view()[slot], expected.state.view()[slot]),
                chunk_tolerance(GetParam()))
          << slot << (decay.per_channel ? " per channel" : "");
    for (const int64_t token : {130, 131, 132, 338, 339})
      for (const float x : layer.out.view()[token].span<float>()) EXPECT_EQ(x, 0.0f) << token;
    for (const float x : layer.state.view()[0].span<float>()) EXPECT_TRUE(std::isnan(x));
  }
}

TEST_P(GatedDeltaHalf, ReturnsTheSameBitsForCutsBetweenChunks) {
  constexpr int32_t kTokens = 320;
  const Shape shape{1, 2, 128, 32};
  for (const Decay& decay : kDecays) {
    Layer whole = rounded_layer(shape, kTokens, GetParam(), decay);
    const int32_t all[] = {kTokens}, cuts[] = {64, 192, kTokens};
    run_steps(whole, all, GetParam());
    Layer layer = rounded_layer(shape, kTokens, GetParam(), decay);
    run_steps(layer, cuts, GetParam());
    EXPECT_TRUE(std::ranges::equal(layer.out.span<float>(), whole.out.span<float>()));
    EXPECT_TRUE(std::ranges::equal(layer.state.view()[3].span<float>(), whole.state.view()[3].span<float>()));
  }
}

// Saved states continue with the bits of the run that saved them if chunks end there.
TEST_P(GatedDeltaHalf, SavesTheStateAtTheEndOfAChunk) {
  constexpr int32_t kTokens = 128;
  const Shape shape{1, 2, 128, 32};
  for (const Decay& decay : kDecays) {
    const Layer layer = rounded_layer(shape, kTokens, GetParam(), decay);
    const Layer half = rounded_layer(shape, kTokens, GetParam(), decay);
    Batch batch;
    batch.add(3, 0, kTokens);
    batch.save_slots.resize(kTokens);
    batch.save_slots[63] = 5;
    batch.save_slots[127] = 6;
    run(layer.args(batch, 0, kTokens), GetParam());
    Batch first;
    first.add(3, 0, 64);
    run(half.args(first, 0, 64), GetParam());
    EXPECT_TRUE(std::ranges::equal(layer.state.view()[5].span<float>(), half.state.view()[3].span<float>()));
    EXPECT_TRUE(std::ranges::equal(layer.state.view()[6].span<float>(), layer.state.view()[3].span<float>()));
  }
}

TEST_P(GatedDeltaHalf, ForgetsTheStateWithoutOverflow) {
  const Shape shape{1, 2, 64, 32};
  constexpr int32_t kTokens = 200;
  for (const Decay& decay : {kDecays[0], kDecays[1]}) {
    const Layer layer = rounded_layer(shape, kTokens, GetParam(), decay);
    const Layer expected = rounded_layer(shape, kTokens, GetParam(), decay);
    for (const Layer* const either : {&layer, &expected}) {
      test::fill(either->a_log, 5.0f);  // decays down to e^-300
      either->a_log.as<float>()[1] = 2.0f;
    }
    Batch batch;
    batch.add(3, 0, kTokens);
    run(layer.args(batch, 0, kTokens), GetParam());
    run_reference(expected, kTokens);
    EXPECT_LE(test::relative_error(layer.out, expected.out), chunk_tolerance(GetParam()));
  }
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
