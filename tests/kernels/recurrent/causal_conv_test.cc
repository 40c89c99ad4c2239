// The causal convolution, compared with float64.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "attend/base/error.h"
#include "attend/kernels/recurrent/recurrent.h"
#include "tests/kernels/recurrent/recurrent_steps.h"
#include "tests/kernels/recurrent/recurrent_target.h"
#include "tests/support/error_message.h"

namespace attend::kernels {
namespace {

using test::Batch;
using testing_support::error_message;

constexpr int64_t kSlots = 6, kMaxTokens = 24;

// Channels in two inputs: 2 groups of 5 of 7 features, and one of `wide`.
struct Layer {
  Layer(int64_t taps, int64_t wide, bool has_bias)
      : channels(10 + wide),
        grouped(Tensor::empty({kMaxTokens, 2, 7}, DType::kF32)),
        flat(Tensor::empty({kMaxTokens, 1, wide}, DType::kF32)),
        weight(Tensor::empty({channels, taps}, DType::kF32)),
        state(Tensor::empty({kSlots, taps - 1, channels}, DType::kF32)),
        out(Tensor::empty({kMaxTokens, channels}, DType::kF32)) {
    test::fill_random(grouped, 1);
    test::fill_random(flat, 2);
    test::fill_random(weight, 3);
    test::fill(state, test::kNan);
    test::fill(out, test::kNan);
    if (!has_bias) return;
    bias = Tensor::empty({channels}, DType::kF32);
    test::fill_random(bias, 4);
  }

  // Arguments for tokens [first, first + num_tokens); valid until the next call.
  CausalConvArgs args(const Batch& batch, int64_t first, int64_t num_tokens) {
    inputs = {grouped.view().slice(0, first, first + num_tokens).slice(2, 1, 6),
              flat.view().slice(0, first, first + num_tokens)};
    return {.inputs = inputs,
            .weight = weight,
            .bias = bias,
            .silu = silu,
            .state = state,
            .out = out.view().slice(0, first, first + num_tokens),
            .batch = batch.view()};
  }

  int64_t channels;
  Tensor grouped, flat, weight, bias, state, out;
  std::array<TensorView, 2> inputs;
  bool silu = true;
};

using CausalConv = test::NeedsTarget;
INSTANTIATE_TEST_SUITE_P(, CausalConv, testing::ValuesIn(test::f32_targets()), test::target_name);

void run(Layer& layer, int32_t row, int32_t first, int32_t end, const test::Target& target) {
  Batch batch;
  batch.add(row, first, end - first);
  test::run(layer.args(batch, first, end - first), target);
}

TEST_P(CausalConv, AgreesWithTheReference) {
  for (const int64_t taps : {2, 3, 4, 8})
    for (const int64_t wide : {3, 300})
      for (const bool plain : {false, true}) {
        Layer layer(taps, wide, !plain), expected(taps, wide, !plain);
        layer.silu = expected.silu = !plain;
        run(layer, 2, 0, kMaxTokens, GetParam());
        Batch batch;
        batch.add(2, 0, kMaxTokens);
        reference::causal_conv(expected.args(batch, 0, kMaxTokens));
        EXPECT_LE(test::relative_error(layer.out, expected.out), 1e-6) << taps << " taps";
        EXPECT_TRUE(
            std::ranges::equal(layer.state.view()[2].span<float>(), expected.state.view()[2].span<float>()));
      }
}

// Chunks shorter than the window keep some of its inputs.
TEST_P(CausalConv, ReturnsTheSameBitsForEveryPairOfCuts) {
  Layer whole(4, 5, true);
  run(whole, 2, 0, kMaxTokens, GetParam());
  for (int32_t first = 1; first < kMaxTokens; ++first)
    for (int32_t second = first; second <= std::min<int32_t>(first + 4, kMaxTokens); ++second) {
      Layer layer(4, 5, true);
      run(layer, 2, 0, first, GetParam());
      if (second > first) run(layer, 2, first, second, GetParam());
      if (second < kMaxTokens) run(layer, 2, second, kMaxTokens, GetParam());
      ASSERT_TRUE(std::ranges::equal(layer.out.span<float>(), whole.out.span<float>()))
          << "cuts at " << first << " and " << second;
      ASSERT_TRUE(
          std::ranges::equal(layer.state.view()[2].span<float>(), whole.state.view()[2].span<float>()));
    }
}

TEST_P(CausalConv, LeavesOtherSlotsUntouchedAndClearsPadding) {
  Layer layer(4, 5, true);
  Batch batch;
  batch.add(0, 0, 1);
  batch.add(3, 0, 2);
  batch.save_slots.push_back(0);
  test::run(layer.args(batch, 0, 4), GetParam());
  for (int64_t slot = 0; slot < kSlots; ++slot)
    for (const float x : layer.state.view()[slot].span<float>()) EXPECT_EQ(std::isnan(x), slot != 3);
  for (const int64_t token : {0, 3})
    for (const float x : layer.out.view()[token].span<float>()) EXPECT_EQ(x, 0.0f);
}

TEST_P(CausalConv, ContinuesFromASavedWindowInAnotherRow) {
  Layer layer(4, 5, true), whole(4, 5, true);
  run(whole, 2, 0, kMaxTokens, GetParam());
  Batch first;
  first.add(1, 0, kMaxTokens);
  first.save_slots[1] = 4;  // shorter than the window
  first.save_slots[8] = 5;
  test::run(layer.args(first, 0, kMaxTokens), GetParam());
  test::fill(layer.out, test::kNan);
  for (const auto& [slot, start] : {std::pair{4, 2}, {5, 9}}) {
    Batch second;
    second.add(2, start, static_cast<int32_t>(kMaxTokens) - start, slot);
    test::run(layer.args(second, start, kMaxTokens - start), GetParam());
    EXPECT_TRUE(std::ranges::equal(layer.out.view().slice(0, start, kMaxTokens).span<float>(),
                                   whole.out.view().slice(0, start, kMaxTokens).span<float>()));
  }
}

// Rows of `wide` that are a multiple of 16 bytes, so that GPUs load 16 bytes at a time, and other rows;
// prompts, and a batch with a decoded token, padding, and chunks shorter than the window.
using CausalConvHalf = test::NeedsTarget;
INSTANTIATE_TEST_SUITE_P(, CausalConvHalf, testing::ValuesIn(test::half_targets()), test::target_name);

// One input of 32 or 27 channels in two groups.
struct GroupedLayer {
  GroupedLayer(int64_t taps, int64_t width, int64_t num_tokens, const test::Target& target)
      : x(Tensor::empty({num_tokens, 2 * width}, DType::kF32)),
        weight(Tensor::empty({2 * width, taps}, DType::kF32)),
        bias(Tensor::empty({2 * width}, DType::kF32)),
        state(Tensor::empty({kSlots, taps - 1, 2 * width}, DType::kF32)),
        out(Tensor::empty({num_tokens, 2 * width}, DType::kF32)) {
    test::fill_random(x, 1);
    test::fill_random(weight, 2);
    test::fill_random(bias, 3);
    test::fill_random(state, 4);
    for (const TensorView& view : {x.view(), state.view()}) test::round_elements(view, target);
    for (const int64_t slot : {0, 2}) test::fill(state.view()[slot], test::kNan);
    test::fill(out, test::kNan);
    inputs = {x.view().split(1, width)};
  }
  CausalConvArgs args(const Batch& batch) {
    return {
        .inputs = inputs, .weight = weight, .bias = bias, .state = state, .out = out, .batch = batch.view()};
  }

  Tensor x, weight, bias, state, out;
  std::array<TensorView, 1> inputs;
};

TEST_P(CausalConvHalf, AgreesWithTheReferenceForBatches) {
  for (const int64_t taps : {2, 3, 4, 8})
    for (const int64_t width : {16, 27})
      for (const int32_t prompt : {1, 2, 3, 31, 33, 700}) {
        Batch batch;
        batch.add(1, 9, 1);
        batch.add(0, 4, 2);
        batch.add(2, 0, prompt);  // reads nothing
        batch.add(3, 5, 2, prompt % 2 == 0 ? 0 : 5);
        batch.add(4, 20, prompt);
        batch.save_slots[static_cast<size_t>(3 + prompt / 2)] = prompt % 2 == 0 ? 5 : 0;
        const int64_t num_tokens = batch.cu_seqlen_q.back() + 1;
        batch.save_slots.push_back(0);
        GroupedLayer layer(taps, width, num_tokens, GetParam()),
            expected(taps, width, num_tokens, GetParam());
        test::run(layer.args(batch), GetParam());
        reference::causal_conv(expected.args(batch));
        EXPECT_LE(test::relative_error(layer.out, expected.out), 4e-3) << taps << " taps, prompt " << prompt;
        for (int64_t slot = 1; slot < kSlots; ++slot)
          EXPECT_TRUE(std::ranges::equal(layer.state.view()[slot].span<float>(),
                                         expected.state.view()[slot].span<float>()))
              << "slot " << slot << ", " << taps << " taps, prompt " << prompt;
      }
}

TEST(CausalConvCheck, NamesTheArgumentAndItsValue) {
  Layer layer(4, 5, true);
  Batch batch;
  batch.add(1, 0, 4);
  Stream stream;
  CausalConvArgs args = layer.args(batch, 0, 4);
  args.weight = layer.weight.view().slice(1, 0, 1);
  const std::string taps = error_message(ErrorCode::kInvalidArgument, [&] { causal_conv(args, stream); });
  EXPECT_NE(taps.find("expected 2 to 8 taps"), std::string::npos) << taps;
  args = layer.args(batch, 0, 4);
  args.state = layer.state.view().slice(1, 0, 2);
  const std::string state = error_message(ErrorCode::kInvalidArgument, [&] { causal_conv(args, stream); });
  EXPECT_NE(state.find("state"), std::string::npos) << state;
}

}  // namespace
}  // namespace attend::kernels
