// Scores, caps, scales and sinks of the reference, compared with manual results.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/kernels/reference/tiny_attention.h"

namespace attend::conformance {
namespace {

using kernels::kEmptyLse;
using ::testing::ElementsAre;
using ::testing::FloatEq;

const float kLn2 = std::log(2.0f), kLn3 = std::log(3.0f);

TEST(ReferenceScores, WeightValuesBySoftmax) {
  // Weights 1/6, 2/6, 3/6.
  const TinyAttention tiny(1, {0.0f, kLn2, kLn3}, {6.0f, 12.0f, 24.0f});
  const auto result = tiny.run();
  EXPECT_FLOAT_EQ(result.out[0], 1.0f + 4.0f + 12.0f);
  EXPECT_FLOAT_EQ(result.lse[0], std::log(6.0f));
}

TEST(ReferenceScores, AreSafeWhenLarge) {
  const TinyAttention tiny(1, {10000.0f, 10000.0f + kLn3, -10000.0f}, {1.0f, 5.0f, 1e30f});
  const auto result = tiny.run();
  EXPECT_NEAR(result.out[0], 4.0f, 2e-3);  // float32 values near 10000 + ln 3 are spaced 1e-3 apart
  EXPECT_NEAR(result.lse[0], 10000.0 + std::log(4.0), 2e-3);
}

TEST(ReferenceScores, AreMultipliedByScaleAndKScale) {
  TinyAttention tiny(1, {0.0f, 4.0f * kLn3}, {0.0f, 8.0f});
  tiny.args.score.scale = 0.125f;
  tiny.args.kv.k_scale = 2.0f;
  const auto result = tiny.run();
  EXPECT_FLOAT_EQ(result.out[0], 6.0f);
  EXPECT_FLOAT_EQ(result.lse[0], std::log(4.0f));
}

TEST(ReferenceScores, AreCappedAfterScaling) {
  // scale * k_scale * q.k = ln 3, and tanh(ln 3) = (9 - 1) / (9 + 1) = 0.8. With a cap of 2 and scores twice
  // as large, the capped score is 1.6.
  TinyAttention tiny(1, {0.0f, 16.0f * kLn3}, {0.0f, 1.0f});
  tiny.args.score.scale = 0.25f;
  tiny.args.kv.k_scale = 0.5f;
  tiny.args.score.logit_cap = 2.0f;
  const auto result = tiny.run();
  EXPECT_FLOAT_EQ(result.out[0], 0.83201839f);  // e^1.6 / (1 + e^1.6)
  EXPECT_FLOAT_EQ(result.lse[0], 1.7839004f);   // ln(1 + e^1.6)
}

TEST(ReferenceScores, DoNotIncludeVScale) {
  TinyAttention tiny(1, {0.0f, kLn3}, {4.0f, 8.0f});
  tiny.args.kv.v_scale = 0.5f;
  const auto result = tiny.run();
  EXPECT_FLOAT_EQ(result.out[0], 3.5f);
  EXPECT_FLOAT_EQ(result.lse[0], std::log(4.0f));
}

TEST(ReferenceSinks, AreInTheDenominatorOnceAndNotInTheLse) {
  // Two keys of weight 1 and a sink of weight 2: a quarter each.
  TinyAttention tiny(1, {0.0f, 0.0f}, {4.0f, 12.0f});
  const std::vector<float> sinks = {kLn2};
  tiny.args.score.sinks = sinks;
  const auto result = tiny.run();
  EXPECT_FLOAT_EQ(result.out[0], 4.0f);
  EXPECT_FLOAT_EQ(result.lse[0], kLn2);
}

TEST(ReferenceSinks, AreNeitherScaledNorCapped) {
  TinyAttention tiny(1, {0.0f, 0.0f}, {4.0f, 12.0f});
  const std::vector<float> sinks = {kLn2};
  tiny.args.score = {.scale = 7.0f, .logit_cap = 0.01f, .sinks = sinks};
  tiny.args.kv.k_scale = 3.0f;
  EXPECT_FLOAT_EQ(tiny.run().out[0], 4.0f);
}

TEST(ReferenceSinks, LargeSinksZeroTheOutput) {
  TinyAttention tiny(1, {-2000.0f, -2000.0f}, {4.0f, 12.0f});
  const std::vector<float> sinks = {1000.0f};
  tiny.args.score.sinks = sinks;
  const auto result = tiny.run();
  EXPECT_EQ(result.out[0], 0.0f);
  EXPECT_FLOAT_EQ(result.lse[0], -2000.0f + kLn2);
}

TEST(ReferenceSinks, LeaveAnEmptyRowEmpty) {
  TinyAttention tiny(1, {}, {});
  const std::vector<float> sinks = {3.0f};
  tiny.args.score.sinks = sinks;
  const auto result = tiny.run();
  EXPECT_THAT(result.out, ElementsAre(0.0f));
  EXPECT_THAT(result.lse, ElementsAre(kEmptyLse));
}

}  // namespace
}  // namespace attend::conformance
