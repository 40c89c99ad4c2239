// MoE router, compared with float64.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "tests/kernels/dense/test_tensor.h"
#include "tests/kernels/moe/moe_device.h"
#include "tests/support/error_message.h"

namespace attend::kernels {
namespace {

using testing_support::error_message;
using testing_support::TestTensor;

using RouteTest = testing_support::OnMoeDevice;

struct Routed {
  TestTensor experts, weights;

  Routed(int64_t num_tokens, int64_t top_k)
      : experts({num_tokens, top_k}, DType::kI32), weights({num_tokens, top_k}, DType::kF32) {}
  RouteArgs args(const TensorView& logits, const RouterRule& rule, const TensorView& correction = {}) const {
    return {.logits = logits, .rule = rule, .correction = correction, .experts = experts, .weights = weights};
  }
};

void expect_as_reference(const testing_support::MoeDevice& device, const TestTensor& logits, int64_t top_k,
                         RouterRule rule = {}, const TensorView& correction = {}) {
  std::vector<RouterWeights> all{RouterWeights::kAllExperts, RouterWeights::kChosenExperts};
  if (rule.weights == RouterWeights::kNearExperts) all = {rule.weights};
  for (const RouterWeights weights : all) {
    const Routed got(logits.view().shape[0], top_k), expected(logits.view().shape[0], top_k);
    rule.weights = weights;
    device.route(got.args(logits, rule, correction));
    reference::route(expected.args(logits, rule, correction));
    EXPECT_TRUE(std::ranges::equal(got.experts.span<int32_t>(), expected.experts.span<int32_t>()))
        << top_k << " of " << logits.view().shape[1];
    for (int64_t i = 0; i < got.weights.size(); ++i)
      ASSERT_NEAR(got.weights.at(i), expected.weights.at(i), 2e-6 * expected.weights.at(i))
          << top_k << " of " << logits.view().shape[1] << ", choice " << i;
  }
}

TEST_P(RouteTest, MatchesFloat64) {
  const std::pair<int64_t, int64_t> shapes[] = {{1, 1},  {2, 2},   {8, 2},    {31, 3},   {33, 33 - 1},
                                                {64, 6}, {128, 8}, {200, 10}, {512, 32}, {4, 4}};
  for (const auto& [num_experts, top_k] : shapes)
    for (const int64_t num_tokens : {1, 5, 67})
      expect_as_reference(GetParam(), TestTensor::random({num_tokens, num_experts}, DType::kF32, 3, 4.0f),
                          top_k);
}

TEST_P(RouteTest, MultipliesWeightsByFactorsOfTheExperts) {
  const TestTensor logits = TestTensor::random({9, 40}, DType::kF32, 3, 4.0f),
                   scales = TestTensor::random({40}, DType::kF32, 4);
  const Routed plain(9, 5), scaled(9, 5), expected(9, 5);
  GetParam().route(plain.args(logits, {}));
  RouteArgs args = scaled.args(logits, {});
  args.expert_scales = scales;
  GetParam().route(args);
  RouteArgs reference_args = expected.args(logits, {});
  reference_args.expert_scales = scales;
  reference::route(reference_args);
  EXPECT_TRUE(std::ranges::equal(plain.experts.span<int32_t>(), scaled.experts.span<int32_t>()));
  for (int64_t i = 0; i < scaled.weights.size(); ++i) {
    const int32_t expert = scaled.experts.span<int32_t>()[static_cast<size_t>(i)];
    EXPECT_FLOAT_EQ(scaled.weights.at(i), plain.weights.at(i) * scales.at(expert));
    EXPECT_NEAR(scaled.weights.at(i), expected.weights.at(i), 2e-6 * std::abs(expected.weights.at(i)));
  }
  args.expert_scales = scales.view().slice(0, 0, 39);
  Stream host;
  EXPECT_NE(error_message(ErrorCode::kInvalidArgument, [&] { check(args, host); }).find("expert_scales"),
            std::string::npos);
}

TEST_P(RouteTest, BreaksTiesByLowestExpert) {
  TestTensor logits = TestTensor::random({50, 70}, DType::kF32, 4);
  for (int64_t i = 0; i < logits.size(); ++i) logits.set(i, static_cast<float>(std::round(logits.at(i))));
  expect_as_reference(GetParam(), logits, 8);
  logits.fill(0.0f);
  expect_as_reference(GetParam(), logits, 8);
}

// DeepSeek-V2's rule, then DeepSeek-V3's.
TEST_P(RouteTest, SelectsExpertsOfTheBestGroups) {
  struct Shape {
    int64_t num_experts, top_k;
    RouterGroups groups;
  };
  for (const Shape& shape : {Shape{160, 6, {8, 3}},
                             {256, 8, {8, 4}},
                             {16, 4, {4, 2}},
                             {12, 4, {6, 2}},
                             {33, 7, {3, 3}},
                             {64, 32, {32, 16}},
                             {512, 16, {32, 5}}})
    for (const RouterScores scores : {RouterScores::kSoftmax, RouterScores::kSigmoid}) {
      const RouterRule rule{.scores = scores, .groups = shape.groups, .scale = 2.5f};
      const TestTensor correction = TestTensor::random({shape.num_experts}, DType::kF32, 8, 0.3f);
      for (const bool corrected : {false, true})
        if (!corrected || scores == RouterScores::kSigmoid)
          expect_as_reference(GetParam(), TestTensor::random({40, shape.num_experts}, DType::kF32, 7, 2.0f),
                              shape.top_k, rule, corrected ? correction.view() : TensorView());
    }
}

// ERNIE 4.5: the correction of a softmax changes the choice of experts, and not their weights.
TEST_P(RouteTest, RanksByCorrectedSoftmax) {
  for (const auto& [num_experts, top_k] :
       {std::pair<int64_t, int64_t>{8, 2}, {64, 6}, {200, 10}, {512, 32}}) {
    const TestTensor logits = TestTensor::random({40, num_experts}, DType::kF32, 7, 3.0f),
                     correction = TestTensor::random({num_experts}, DType::kF32, 8, 0.1f);
    expect_as_reference(GetParam(), logits, top_k, {.scale = 1.5f}, correction);
    const Routed plain(40, top_k), corrected(40, top_k);
    GetParam().route(plain.args(logits, {}));
    GetParam().route(corrected.args(logits, {}, correction));
    EXPECT_FALSE(std::ranges::equal(plain.experts.span<int32_t>(), corrected.experts.span<int32_t>()));
  }
}

// Logits 4, 3 and -1: 3 is near 4 within 0.3, and -1 is near nothing.
TEST_P(RouteTest, WeighsTwoExpertsByASoftmaxOverNearOnes) {
  for (const int64_t num_experts : {2, 16, 70, 300})
    for (const float near : {0.02f, 0.4f, 3.0f})
      expect_as_reference(GetParam(), TestTensor::random({40, num_experts}, DType::kF32, 7, 3.0f), 2,
                          {.weights = RouterWeights::kNearExperts, .near = near});
  TestTensor logits({1, 3}, DType::kF32);
  for (const auto& [i, logit] : {std::pair{0, 3.0f}, {1, -1.0f}, {2, 4.0f}}) logits.set(i, logit);
  const Routed got(1, 2);
  GetParam().route(got.args(logits, {.weights = RouterWeights::kNearExperts, .near = 0.3f}));
  EXPECT_EQ(got.experts.span<int32_t>()[0], 2);
  EXPECT_NEAR(got.weights.at(0), 1.0 / (1.0 + std::exp(-1.0)), 1e-6);
  EXPECT_FLOAT_EQ(static_cast<float>(got.weights.at(1)), 1.0f) << "without the first one, 3 is by itself";
}

TEST_P(RouteTest, SpreadsTokensEvenlyOnRequest) {
  const TestTensor logits = TestTensor::random({300, 64}, DType::kF32, 9);
  expect_as_reference(GetParam(), logits, 6, {.spread = 3});
  expect_as_reference(GetParam(), logits, 6, {.groups = {8, 3}, .spread = 3});
  const Routed got(300, 6), other(300, 6);
  GetParam().route(got.args(logits, {.spread = 1}));
  GetParam().route(other.args(logits, {.spread = 2}));
  std::vector<int> num_expert_tokens(64, 0);
  for (const int32_t expert : got.experts.span<int32_t>()) ++num_expert_tokens[static_cast<size_t>(expert)];
  // 28 on average, within five standard deviations of a binomial distribution.
  for (const int tokens : num_expert_tokens) EXPECT_NEAR(tokens, 28.1, 25.2);
  EXPECT_FALSE(std::ranges::equal(got.experts.span<int32_t>(), other.experts.span<int32_t>()));
}

// A group with one very good expert ranks below a group with two good ones. -1 + 0.9 ranks above excluded
// experts, which must not count as 0.
TEST_P(RouteTest, RanksGroupsBySumsOfTwoCorrectedScoresEvenIfNegative) {
  TestTensor logits({1, 6}, DType::kF32), correction({6}, DType::kF32);
  const float scores[] = {0.9f, 0.1f, 0.6f, 0.6f, 0.2f, 0.2f};
  for (int64_t i = 0; i < 6; ++i) logits.set(i, std::log(scores[i] / (1.0f - scores[i])));
  const RouterRule rule{.scores = RouterScores::kSigmoid,
                        .weights = RouterWeights::kAllExperts,
                        .groups = {3, 1},
                        .scale = 3.0f};
  const Routed got(1, 2);
  GetParam().route(got.args(logits, rule));
  EXPECT_EQ(got.experts.span<int32_t>()[0], 2);
  EXPECT_EQ(got.experts.span<int32_t>()[1], 3);
  EXPECT_NEAR(got.weights.at(0), 1.8, 1e-5);
  for (int64_t i = 0; i < 6; ++i) correction.set(i, i < 4 ? -2.0f : -1.0f);
  GetParam().route(got.args(logits, rule, correction));
  EXPECT_EQ(got.experts.span<int32_t>()[0], 4);
  EXPECT_EQ(got.experts.span<int32_t>()[1], 5);
  EXPECT_NEAR(got.weights.at(1), 0.6, 1e-5);
}

TEST(Route, RejectsGroupsThatDoNotDivideTheExpertsOrAreTooSmall) {
  const TestTensor logits({2, 12}, DType::kF32), correction({12}, DType::kF32), short_one({4}, DType::kF32);
  const auto error_text = [&](const RouterRule& rule, const TensorView& corrected = {}) {
    Stream stream;
    const Routed to(2, 5);
    return error_message(ErrorCode::kInvalidArgument,
                         [&] { route(to.args(logits, rule, corrected), stream); });
  };
  EXPECT_EQ(error_text({.groups = {5, 2}}),
            "groups: 5 of 12 experts: expected a divisor of the number of experts, 1 to 32");
  EXPECT_EQ(error_text({.groups = {4, 5}}), "groups: 5 selected of 4: expected 1 to 4");
  EXPECT_EQ(error_text({.groups = {4, 1}}), "groups: 1 selected, with 3 experts each: a token selects 5");
  EXPECT_EQ(error_text({.scores = RouterScores::kSigmoid, .groups = {12, 6}}),
            "groups of one expert: sigmoid scores rank a group by its two best experts");
  EXPECT_EQ(error_text({.groups = {3, 2}}, correction),
            "correction float32[12] on cpu: expected only with sigmoid scores or without groups");
  EXPECT_EQ(error_text({.weights = RouterWeights::kNearExperts}),
            "weights over near experts: expected softmax scores and 2 experts per token, not 5");
  EXPECT_EQ(error_text({.scores = RouterScores::kSigmoid}, short_one),
            "correction float32[4] on cpu: expected 12 in dimension 0");
}

TEST_P(RouteTest, ReturnsFiniteWeightsForLargeLogits) {
  TestTensor logits = TestTensor::random({20, 40}, DType::kF32, 5, 3e4f);
  const Routed got(20, 4);
  GetParam().route(got.args(logits, {.weights = RouterWeights::kAllExperts}));
  for (int64_t i = 0; i < got.weights.size(); ++i) EXPECT_TRUE(std::isfinite(got.weights.at(i)));
}

TEST_P(RouteTest, SelectsDistinctExpertsForNanLogits) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  TestTensor logits = TestTensor::random({6, 37}, DType::kF32, 6);
  for (int64_t i = 0; i < logits.size(); i += i < 37 ? 1 : 3) logits.set(i, kNan);
  const Routed got(6, 5);
  GetParam().route(got.args(logits, {}));
  for (int64_t token = 0; token < 6; ++token) {
    const auto chosen = got.experts.view()[token].span<int32_t>();
    EXPECT_EQ(std::set(chosen.begin(), chosen.end()).size(), 5u);
    for (const int32_t expert : chosen) EXPECT_TRUE(expert >= 0 && expert < 37) << expert;
  }
}

// Few or no finite logits; some lanes of a warp have no experts, and those have no rank either.
TEST_P(RouteTest, SelectsFiniteLogitsFirstThenTheLowestIndices) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  for (const auto& [num_experts, top_k] :
       {std::pair<int64_t, int64_t>{4, 4}, {33, 32}, {64, 8}, {160, 32}, {512, 32}})
    for (const int64_t every : {3, 29, 1000}) {
      TestTensor logits = TestTensor::random({9, num_experts}, DType::kF32, 6);
      for (int64_t i = 0; i < logits.size(); ++i)
        if (i % every != every - 1) logits.set(i, kNan);
      const Routed got(9, top_k);
      GetParam().route(got.args(logits, {}));
      for (int64_t token = 0; token < 9; ++token) {
        const auto of_token = logits.view()[token].span<float>();
        const auto chosen = got.experts.view()[token].span<int32_t>();
        std::vector<int32_t> expected(static_cast<size_t>(num_experts));
        std::iota(expected.begin(), expected.end(), 0);
        std::ranges::stable_sort(expected, [&](int32_t a, int32_t b) {
          const float of_a = of_token[static_cast<size_t>(a)], of_b = of_token[static_cast<size_t>(b)];
          return std::isnan(of_b) ? !std::isnan(of_a) : of_a > of_b;
        });
        EXPECT_TRUE(std::ranges::equal(chosen, std::span(expected).first(static_cast<size_t>(top_k))))
            << top_k << " of " << num_experts << ", a number of " << every << ", token " << token;
      }
    }
}

TEST(Route, RejectsUnsupportedInput) {
  const TestTensor logits({2, 8}, DType::kF32), many({2, 513}, DType::kF32), half({2, 8}, DType::kF16);
  const auto error_text = [](const TensorView& from, const Routed& to) {
    Stream stream;
    return error_message(ErrorCode::kInvalidArgument, [&] { route(to.args(from, {}), stream); });
  };
  EXPECT_EQ(error_text(logits, Routed(2, 9)), "experts int32[2, 9] on cpu: expected 1 to 8 per token, not 9");
  EXPECT_EQ(error_text(many, Routed(2, 9)),
            "logits float32[2, 513] on cpu: expected 1 to 512 experts, not 513");
  EXPECT_EQ(error_text(half, Routed(2, 2)), "logits float16[2, 8] on cpu: expected float32");
  EXPECT_EQ(error_text(logits, Routed(3, 2)), "experts int32[3, 2] on cpu: expected 2 in dimension 0");
}

INSTANTIATE_TEST_SUITE_P(Moe, RouteTest, testing::ValuesIn(testing_support::moe_devices()),
                         testing_support::name_of_device);

}  // namespace
}  // namespace attend::kernels
