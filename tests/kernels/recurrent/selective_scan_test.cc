// The selective scan and its norm, compared with float64.
#include "attend/kernels/recurrent/selective_scan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <string>
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
  int64_t heads, groups, head_dim, state_dim;
};
constexpr Shape kShapes[] = {{2, 1, 8, 16}, {4, 2, 5, 12}, {3, 3, 40, 7}};
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

void run_steps(const Layer& layer, std::span<const int32_t> ends, cpu::Isa isa) {
  int32_t first = 0;
  for (const int32_t end : ends) {
    Batch batch;
    batch.add(3, first, end - first);
    const SelectiveScanArgs args = layer.args(batch, first, end - first);
    Stream stream;
    check(args, stream);
    cpu::selective_scan(args, isa);
    first = end;
  }
}

class SelectiveScan : public testing::TestWithParam<cpu::Isa> {};
INSTANTIATE_TEST_SUITE_P(, SelectiveScan,
                         testing::ValuesIn(cpu::available_isas().begin(), cpu::available_isas().end()),
                         [](const auto& isa) {
                           std::string name(to_string(isa.param));
                           std::erase(name, '-');
                           return name;
                         });

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
  cpu::selective_scan(layer.args(first, 0, 20), GetParam());
  test::fill(layer.out, test::kNan);
  Batch second;
  second.add(0, 0, 1);  // padding
  second.add(2, 8, 12, 6);
  second.seqlen_kv[1] = 19;  // tokens 7 to 18
  cpu::selective_scan(layer.args(second, 6, 13), GetParam());
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
    cpu::grouped_gated_norm({.x = x,
                             .gate = gates,
                             .weight = order == GateOrder::kGateOnly ? TensorView() : weight.view(),
                             .num_groups = groups,
                             .eps = 1e-5f,
                             .order = order},
                            GetParam());
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(x.span<float>()[i], expected[i], 5e-6);
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
