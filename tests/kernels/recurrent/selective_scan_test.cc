// The selective scan and its norm, compared with float64.
#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <string>
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
using test::run_steps;
using testing_support::error_message;

struct Shape {
  int64_t heads, groups, head_dim, state_dim;
};
constexpr Shape kShapes[] = {{2, 1, 8, 16},  {4, 2, 5, 12},  {3, 3, 40, 7},
                             {2, 1, 20, 64}, {4, 2, 5, 128}, {1, 1, 16, 256}};
constexpr int64_t kSlots = 8;

struct Layer {
  Layer(const Shape& shape, int64_t num_tokens)
      : dims(shape),
        xbc(Tensor::empty({num_tokens, shape.heads * shape.head_dim + 2 * shape.groups * shape.state_dim},
                          DType::kF32)),
        dt(Tensor::empty({num_tokens, shape.heads}, DType::kF32)),
        a_log(Tensor::empty({shape.heads}, DType::kF32)),
        d(Tensor::empty({shape.heads}, DType::kF32)),
        dt_bias(Tensor::empty({shape.heads}, DType::kF32)),
        state(Tensor::empty({kSlots, shape.heads, shape.head_dim, shape.state_dim}, DType::kF32)),
        out(Tensor::empty({num_tokens, shape.heads, shape.head_dim}, DType::kF32)) {
    test::fill_random(xbc, 1);
    test::fill_random(dt, 2, -2.0f, 2.0f);
    test::fill_random(a_log, 3, -3.0f, 0.7f);
    test::fill_random(d, 4);
    test::fill_random(dt_bias, 5, -5.0f, -1.0f);
    test::fill(state, test::kNan);
    test::fill(out, test::kNan);
  }

  SelectiveScanArgs args(const Batch& batch, int64_t first, int64_t num_tokens) const {
    const TensorView rows = xbc.view().slice(0, first, first + num_tokens);
    const int64_t features = dims.heads * dims.head_dim, states = dims.groups * dims.state_dim;
    return {.x = rows.slice(1, 0, features).split(1, dims.head_dim),
            .b = rows.slice(1, features, features + states).split(1, dims.state_dim),
            .c = rows.slice(1, features + states, rows.shape[1]).split(1, dims.state_dim),
            .dt = dt.view().slice(0, first, first + num_tokens),
            .a_log = a_log,
            .d = d,
            .dt_bias = dt_bias,
            .min_step = min_step,
            .max_step = max_step,
            .state = state,
            .out = out.view().slice(0, first, first + num_tokens),
            .batch = batch.view()};
  }

  Shape dims;
  Tensor xbc, dt, a_log, d, dt_bias, state, out;
  float min_step = 0.0f, max_step = std::numeric_limits<float>::infinity();
};

using SelectiveScan = test::NeedsTarget;
INSTANTIATE_TEST_SUITE_P(, SelectiveScan, testing::ValuesIn(test::f32_targets()), test::target_name);

TEST(SelectiveScanReference, FollowsTheRecurrenceOfOneHead) {
  Layer layer({1, 1, 1, 2}, 2);
  layer.a_log.as<float>()[0] = 0.0f;
  layer.d.as<float>()[0] = 3.0f;
  layer.dt_bias.as<float>()[0] = 0.0f;
  const float xbc[] = {2.0f, 1.0f, 0.0f, 1.0f, 1.0f, 4.0f, 0.0f, 1.0f, 1.0f, 2.0f};  // x, b, c of each token
  std::ranges::copy(xbc, layer.xbc.as<float>());
  std::ranges::fill(layer.dt.span<float>(), 0.0f);  // step ln 2, decay 1/2
  Batch batch;
  batch.add(3, 0, 2);
  reference::selective_scan(layer.args(batch, 0, 2));
  const float ln2 = 0.69314718f;
  // h = ln 2 [2, 0], then [ln 2, 4 ln 2].
  EXPECT_NEAR(layer.out.as<float>()[0], 2.0f * ln2 + 6.0f, 1e-5f);
  EXPECT_NEAR(layer.out.as<float>()[1], ln2 + 8.0f * ln2 + 12.0f, 1e-5f);
}

TEST_P(SelectiveScan, AgreesWithTheReferenceForEveryShape) {
  for (const Shape& shape : kShapes)
    for (const bool bounded : {false, true}) {
      Layer layer(shape, 70), expected(shape, 70);
      if (bounded) {
        layer.min_step = expected.min_step = 0.05f;
        layer.max_step = expected.max_step = 0.2f;
      }
      const int32_t all[] = {70};
      run_steps(layer, all, GetParam());
      Batch batch;
      batch.add(3, 0, 70);
      reference::selective_scan(expected.args(batch, 0, 70));
      EXPECT_LE(test::relative_error(layer.out, expected.out), 5e-6) << shape.state_dim;
      EXPECT_LE(test::relative_error(layer.state.view()[3], expected.state.view()[3]), 5e-6);
    }
}

TEST_P(SelectiveScan, GivesTheSameBitsForEveryCut) {
  constexpr int32_t kTokens = 37;
  const Shape shape{4, 2, 40, 16};
  Layer whole(shape, kTokens);
  const int32_t all[] = {kTokens};
  run_steps(whole, all, GetParam());
  for (int32_t cut = 1; cut < kTokens; ++cut) {
    Layer layer(shape, kTokens);
    const int32_t ends[] = {cut, kTokens};
    run_steps(layer, ends, GetParam());
    EXPECT_TRUE(std::ranges::equal(layer.out.span<float>(), whole.out.span<float>())) << "cut at " << cut;
  }
}

TEST_P(SelectiveScan, RestoresSavedStatesAndLeavesOtherSlotsUntouched) {
  const Shape shape{2, 1, 8, 16};
  Layer layer(shape, 20), whole(shape, 20);
  const int32_t all[] = {20};
  run_steps(whole, all, GetParam());
  Batch first;
  first.add(1, 0, 20);
  first.save_slots[6] = 6;  // after 7 tokens
  test::run(layer.args(first, 0, 20), GetParam());
  test::fill(layer.out, test::kNan);
  Batch second;
  second.add(0, 0, 1);  // padding
  second.add(2, 8, 12, 6);
  second.seqlen_kv[1] = 19;  // tokens 7 to 18
  test::run(layer.args(second, 6, 13), GetParam());
  EXPECT_TRUE(std::ranges::equal(layer.out.view().slice(0, 7, 19).span<float>(),
                                 whole.out.view().slice(0, 7, 19).span<float>()));
  for (const float x : layer.out.view()[6].span<float>()) EXPECT_EQ(x, 0.0f);
  for (int64_t slot = 0; slot < kSlots; ++slot)
    for (const float x : layer.state.view()[slot].span<float>())
      EXPECT_EQ(std::isnan(x), slot != 1 && slot != 2 && slot != 6) << slot;
}

TEST_P(SelectiveScan, NormalizesGatedGroupsInEachOrder) {
  const int64_t tokens = 3, features = 30, groups = 3;
  const Tensor gates = Tensor::empty({tokens, features}, DType::kF32);
  const Tensor weight = Tensor::empty({features}, DType::kF32);
  test::fill_random(gates, 2, -3.0f, 3.0f);
  test::fill_random(weight, 3, 0.5f, 1.5f);
  for (const GateOrder order : {GateOrder::kGateFirst, GateOrder::kNormFirst, GateOrder::kGateOnly}) {
    const Tensor x = Tensor::empty({tokens, features}, DType::kF32);
    test::fill_random(x, 1);
    std::vector<double> expected;
    for (int64_t t = 0; t < tokens; ++t)
      for (int64_t group = 0; group < groups; ++group) {
        std::vector<double> gated;
        double squares = 0.0;
        for (int64_t i = group * 10; i < group * 10 + 10; ++i) {
          const double z = double{gates.view()[t].as<float>()[i]}, value = double{x.view()[t].as<float>()[i]};
          gated.push_back(value * z / (1.0 + std::exp(-z)));
          const double normalized = order == GateOrder::kGateFirst ? gated.back() : value;
          squares += normalized * normalized;
        }
        for (size_t i = 0; i < 10; ++i)
          expected.push_back(order == GateOrder::kGateOnly
                                 ? gated[i]
                                 : gated[i] / std::sqrt(squares / 10.0 + 1e-5) *
                                       double{weight.as<float>()[static_cast<size_t>(group) * 10 + i]});
      }
    test::run(GroupedGatedNormArgs{.x = x,
                                   .gate = gates,
                                   .weight = order == GateOrder::kGateOnly ? TensorView() : weight.view(),
                                   .num_groups = groups,
                                   .eps = 1e-5f,
                                   .order = order},
              GetParam());
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(x.span<float>()[i], expected[i], 5e-6);
  }
}

using SelectiveScanHalf = test::NeedsTarget;
INSTANTIATE_TEST_SUITE_P(, SelectiveScanHalf, testing::ValuesIn(test::half_targets()), test::target_name);

// Inputs of a layer, rounded to the target's activations.
Layer half_layer(const Shape& shape, int64_t num_tokens, const test::Target& target) {
  Layer layer(shape, num_tokens);
  for (const TensorView& view : {layer.xbc.view(), layer.dt.view()}) test::round_elements(view, target);
  return layer;
}

// Outputs have an error of 2^-9 from rounding to bf16; the chunk form rounds products and states as well.
constexpr double kHalfTolerance = 1e-2;

TEST_P(SelectiveScanHalf, AgreesWithTheReferenceForLengthsAroundChunks) {
  for (const Shape& shape :
       {Shape{2, 1, 64, 128}, {8, 8, 32, 64}, {4, 2, 80, 128}, {2, 1, 40, 256}, {2, 1, 8, 16}})
    for (const int32_t num_tokens : {1, 2, 3, 16, 17, 63, 64, 65, 129, 300}) {
      const Layer layer = half_layer(shape, num_tokens, GetParam()),
                  expected = half_layer(shape, num_tokens, GetParam());
      const int32_t all[] = {num_tokens};
      run_steps(layer, all, GetParam());
      Batch batch;
      batch.add(test::kStepsRow, 0, num_tokens);
      reference::selective_scan(expected.args(batch, 0, num_tokens));
      EXPECT_LE(test::relative_error(layer.out, expected.out), kHalfTolerance)
          << shape.head_dim << " x " << shape.state_dim << ", " << num_tokens << " tokens";
      EXPECT_LE(
          test::relative_error(layer.state.view()[test::kStepsRow], expected.state.view()[test::kStepsRow]),
          kHalfTolerance)
          << shape.head_dim << " x " << shape.state_dim << ", " << num_tokens << " tokens";
    }
}

TEST_P(SelectiveScanHalf, BatchesPromptsDecodedTokensAndPadding) {
  const Shape shape{4, 2, 48, 128};
  Batch batch;
  batch.add(1, 0, 150);       // from zero; its slot holds NaN
  batch.add(2, 40, 1);        // decode
  batch.add(0, 0, 3);         // padding
  batch.add(3, 100, 200, 5);  // from another slot, in the middle of a chunk
  batch.add(4, 7, 16);
  batch.save_slots.push_back(0);
  // After a whole chunk, within one, and after the last token of a request.
  for (const auto& [token, slot] : {std::pair{63, 6}, {100, 7}, {153, 8}, {199, 9}, {353, 10}})
    batch.save_slots[static_cast<size_t>(token)] = slot;
  const int64_t num_tokens = std::ssize(batch.save_slots);
  const auto make_layer = [&] {
    Layer layer = half_layer(shape, num_tokens, GetParam());
    layer.state = Tensor::empty({12, shape.heads, shape.head_dim, shape.state_dim}, DType::kF32);
    test::fill_random(layer.state, 9);
    for (const int64_t slot : {0, 1, 11}) test::fill(layer.state.view()[slot], test::kNan);
    return layer;
  };
  const Layer layer = make_layer(), expected = make_layer();
  test::run(layer.args(batch, 0, num_tokens), GetParam());
  reference::selective_scan(expected.args(batch, 0, num_tokens));
  EXPECT_LE(test::relative_error(layer.out, expected.out), kHalfTolerance);
  for (const int64_t token : {int64_t{151}, int64_t{153}, num_tokens - 1})
    for (const float x : layer.out.view()[token].span<float>()) ASSERT_EQ(x, 0.0f) << "token " << token;
  for (int64_t slot = 0; slot < 12; ++slot) {
    const TensorView state = layer.state.view()[slot];
    if (slot == 0 || slot == 11) {
      for (const float x : state.span<float>()) ASSERT_TRUE(std::isnan(x)) << "slot " << slot;
    } else {
      EXPECT_LE(test::relative_error(state, expected.state.view()[slot]), kHalfTolerance) << "slot " << slot;
    }
  }
}

void expect_same_bits(const Layer& actual, const Layer& expected) {
  EXPECT_TRUE(std::ranges::equal(actual.out.span<float>(), expected.out.span<float>()));
  EXPECT_TRUE(std::ranges::equal(actual.state.view()[test::kStepsRow].span<float>(),
                                 expected.state.view()[test::kStepsRow].span<float>()));
}

TEST_P(SelectiveScanHalf, DoesNotDependOnCutsBetweenChunks) {
  constexpr int32_t kTokens = 300;
  for (const Shape& shape : {Shape{2, 1, 64, 128}, {2, 2, 24, 64}}) {
    const Layer whole = half_layer(shape, kTokens, GetParam());
    const int32_t all[] = {kTokens};
    run_steps(whole, all, GetParam());
    for (const std::vector<int32_t>& ends :
         {std::vector<int32_t>{64, kTokens}, {192, kTokens}, {64, 128, 256, kTokens}}) {
      const Layer layer = half_layer(shape, kTokens, GetParam());
      run_steps(layer, ends, GetParam());
      expect_same_bits(layer, whole);
    }
  }
}

TEST_P(SelectiveScanHalf, DoesNotDependOnAnyCutIfBatchInvariant) {
  constexpr int32_t kTokens = 90;
  const Shape shape{2, 1, 24, 128};
  const auto run_steps = [&](const std::vector<int32_t>& ends) {
    Layer layer = half_layer(shape, kTokens, GetParam());
    int32_t first = 0;
    for (const int32_t end : ends) {
      Batch batch;
      batch.add(test::kStepsRow, first, end - first);
      SelectiveScanArgs args = layer.args(batch, first, end - first);
      args.batch.batch_invariant = true;
      test::run(args, GetParam());
      first = end;
    }
    return layer;
  };
  const Layer whole = run_steps({kTokens});
  for (const int32_t cut : {1, 5, 16, 31, 33, 64, 89}) expect_same_bits(run_steps({cut, kTokens}), whole);
}

// More slices of heads than a GPU has CTAs at a time, wide ones, with decoded tokens between prompts.
TEST_P(SelectiveScanHalf, ScansManyRequestsAsIfAlone) {
  const Shape shape{8, 1, 64, 64};
  constexpr int32_t kRequests = 90, kPrompt = 20;
  const int64_t num_tokens = kRequests / 2 * (kPrompt + 1);
  Batch batch;
  for (int32_t i = 0; i < kRequests; ++i) batch.add(i + 1, i % 2 == 0 ? 0 : 70, i % 2 == 0 ? kPrompt : 1);
  Layer layer = half_layer(shape, num_tokens, GetParam());
  layer.state = Tensor::empty({kRequests + 1, shape.heads, shape.head_dim, shape.state_dim}, DType::kF32);
  test::fill_random(layer.state, 9);
  Layer expected = layer;
  expected.state = Tensor::empty({kRequests + 1, shape.heads, shape.head_dim, shape.state_dim}, DType::kF32);
  std::ranges::copy(layer.state.span<float>(), expected.state.span<float>().begin());
  expected.out = Tensor::empty({num_tokens, shape.heads, shape.head_dim}, DType::kF32);
  test::run(layer.args(batch, 0, num_tokens), GetParam());
  reference::selective_scan(expected.args(batch, 0, num_tokens));
  EXPECT_LE(test::relative_error(layer.out, expected.out), kHalfTolerance);
  for (const int32_t slot : {1, 2, 45, 46, 89, 90}) {
    Batch one;
    const int64_t first = (slot - 1) / 2 * (kPrompt + 1) + (slot % 2 == 0 ? kPrompt : 0);
    one.add(slot, slot % 2 == 0 ? 70 : 0, slot % 2 == 0 ? 1 : kPrompt);
    Layer alone = half_layer(shape, num_tokens, GetParam());
    alone.state = Tensor::empty({kRequests + 1, shape.heads, shape.head_dim, shape.state_dim}, DType::kF32);
    test::fill_random(alone.state, 9);
    test::run(alone.args(one, first, one.cu_seqlen_q.back()), GetParam());
    EXPECT_TRUE(
        std::ranges::equal(alone.state.view()[slot].span<float>(), layer.state.view()[slot].span<float>()))
        << "slot " << slot;
  }
}

TEST_P(SelectiveScanHalf, NormalizesGatedGroups) {
  for (const int64_t size : {8, 10, 512, 1040, 4096}) {
    const int64_t tokens = 3, groups = 2;
    Tensor x = Tensor::empty({tokens, groups * size}, DType::kF32),
           expected = Tensor::empty({tokens, groups * size}, DType::kF32);
    const Tensor gate = Tensor::empty({tokens, groups * size}, DType::kF32),
                 weight = Tensor::empty({groups * size}, DType::kF32);
    test::fill_random(gate, 2, -3.0f, 3.0f);
    test::fill_random(weight, 3, 0.5f, 1.5f);
    for (const GateOrder order : {GateOrder::kGateFirst, GateOrder::kNormFirst, GateOrder::kGateOnly}) {
      test::fill_random(x, 1);
      for (const TensorView& view : {x.view(), gate.view()}) test::round_elements(view, GetParam());
      std::ranges::copy(x.span<float>(), expected.span<float>().begin());
      const auto args = [&](const Tensor& rows) {
        return GroupedGatedNormArgs{.x = rows,
                                    .gate = gate,
                                    .weight = order == GateOrder::kGateOnly ? TensorView() : weight.view(),
                                    .num_groups = groups,
                                    .order = order};
      };
      test::run(args(x), GetParam());
      test::run(args(expected), test::f32_targets().front());
      EXPECT_LE(test::relative_error(x, expected), 4e-3)
          << size << " features, order " << static_cast<int>(order);
    }
  }
}

TEST(SelectiveScanCheck, NamesTheArgumentAndItsValue) {
  Layer layer({4, 2, 8, 16}, 4);
  Batch batch;
  batch.add(1, 0, 4);
  Stream stream;
  SelectiveScanArgs args = layer.args(batch, 0, 4);
  args.x = args.x.slice(1, 0, 3);
  const std::string heads = error_message(ErrorCode::kInvalidArgument, [&] { selective_scan(args, stream); });
  EXPECT_NE(heads.find("a multiple of 2"), std::string::npos) << heads;
  args = layer.args(batch, 0, 4);
  args.max_step = -1.0f;
  const std::string steps = error_message(ErrorCode::kInvalidArgument, [&] { selective_scan(args, stream); });
  EXPECT_NE(steps.find("max_step -1"), std::string::npos) << steps;
}

}  // namespace
}  // namespace attend::kernels
