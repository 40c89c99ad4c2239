// RoPE of heads.
#include "attend/kernels/norm_rope/rope.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <vector>

#include "attend/kernels/norm_rope/rotate.h"
#include "tests/kernels/dense/elementwise_case.h"
#include "tests/kernels/dense/target.h"
#include "tests/kernels/dense/test_tensor.h"
#include "tests/support/error_message.h"

namespace attend::kernels {
namespace {

using testing::HasSubstr;
using testing_support::Angles;
using testing_support::error_message;
using testing_support::NeedsTarget;
using testing_support::targets;
using testing_support::TestTensor;

using Rope = NeedsTarget;

TEST_F(Rope, RotatesPairsAsComplexNumbers) {
  constexpr int64_t kTokens = 4, kHeads = 3;
  const std::vector<int32_t> positions = {0, 9, 3, 9};
  for (const auto& target : targets())
    for (const auto& [head_dim, rotary_dim] : std::vector<std::pair<int64_t, int64_t>>{
             {2, 2}, {8, 8}, {24, 24}, {64, 64}, {80, 80}, {128, 128}, {128, 32}, {96, 24}, {10, 6}}) {
      SCOPED_TRACE(testing::Message() << *target << " head_dim " << head_dim << " rotary_dim " << rotary_dim);
      const int64_t half = rotary_dim / 2;
      const Angles angles(10, half);
      TestTensor x = TestTensor::random({kTokens, kHeads, head_dim}, DType::kF32, 1);
      const std::vector<double> before = x.values();
      target->rope(x, positions, angles.cos, angles.sin);
      for (int64_t row = 0; row < kTokens * kHeads; ++row) {
        const auto at = [&](int64_t i) { return before[static_cast<size_t>(row * head_dim + i)]; };
        for (int64_t i = 0; i < half; ++i) {
          const std::complex<double> rotated =
              std::complex<double>(at(i), at(i + half)) *
              angles.rotation(positions[static_cast<size_t>(row / kHeads)], i);
          ASSERT_NEAR(x.at(row * head_dim + i), rotated.real(), 1e-6) << "pair " << i;
          ASSERT_NEAR(x.at(row * head_dim + i + half), rotated.imag(), 1e-6) << "pair " << i;
        }
        for (int64_t i = rotary_dim; i < head_dim; ++i) ASSERT_EQ(x.at(row * head_dim + i), at(i));
      }
    }
}

// norm_rope, qkv_norm_rope_store and apply_rope_rows use the same function on a GPU.
TEST_F(Rope, MatchesTheBitsOfRotateExceptWithoutFma) {
  constexpr int64_t kTokens = 5, kHeads = 2, kDim = 76, kHalf = kDim / 2;
  const std::vector<int32_t> positions = {0, 9, 3, 9, 1};
  const Angles angles(10, kHalf);
  for (const auto& target : targets()) {
    TestTensor x = TestTensor::random({kTokens, kHeads, kDim}, DType::kF32, 1);
    const std::vector<double> before = x.values();
    target->rope(x, positions, angles.cos, angles.sin);
    for (int64_t row = 0; row < kTokens * kHeads; ++row)
      for (int64_t i = 0; i < kHalf; ++i) {
        const auto at = [&](int64_t d) {
          return static_cast<float>(before[static_cast<size_t>(row * kDim + d)]);
        };
        const int64_t angle = positions[static_cast<size_t>(row / kHeads)] * kHalf + i;
        const RotatedPair want = rotate(at(i), at(i + kHalf), static_cast<float>(angles.cos.at(angle)),
                                        static_cast<float>(angles.sin.at(angle)));
        const double got[] = {x.at(row * kDim + i), x.at(row * kDim + i + kHalf)};
        const double rounding =
            target->name() == "portable" ? 0x1p-23 * (std::abs(at(i)) + std::abs(at(i + kHalf))) : 0.0;
        ASSERT_NEAR(got[0], static_cast<double>(want.first), rounding) << *target << " pair " << i;
        ASSERT_NEAR(got[1], static_cast<double>(want.second), rounding) << *target << " pair " << i;
      }
  }
}

TEST_F(Rope, RotatesOnlyTheHeadsOfAWiderRow) {
  constexpr int64_t kTokens = 2, kWidth = 50, kFirst = 10, kHeads = 2, kDim = 12;
  const std::vector<int32_t> positions = {5, 2};
  const Angles angles(6, kDim / 2);
  for (const auto& target : targets()) {
    TestTensor wide = TestTensor::random({kTokens, kWidth}, DType::kF32, 1);
    const std::vector<double> before = wide.values();
    TestTensor heads({kTokens, kHeads, kDim}, DType::kF32);
    for (int64_t i = 0; i < heads.size(); ++i) {
      const int64_t token = i / (kHeads * kDim), column = kFirst + i % (kHeads * kDim);
      heads.set(i, static_cast<float>(wide.at(token * kWidth + column)));
    }
    target->rope(heads, positions, angles.cos, angles.sin);
    target->rope(wide.view().slice(1, kFirst, kFirst + kHeads * kDim).split(1, kDim), positions, angles.cos,
                 angles.sin);
    for (int64_t i = 0; i < wide.size(); ++i) {
      const int64_t token = i / kWidth, column = i % kWidth - kFirst;
      const bool inside = column >= 0 && column < kHeads * kDim;
      ASSERT_EQ(wide.at(i),
                inside ? heads.at(token * kHeads * kDim + column) : before[static_cast<size_t>(i)])
          << *target << " token " << token << " column " << column;
    }
  }
}

// Attention relies on this: the product of two rotated heads depends only on the distance of their positions.
TEST_F(Rope, KeepsProductsOfHeadsAtTheSameDistance) {
  constexpr int64_t kDim = 64;
  const Angles angles(200, kDim / 2);
  const TestTensor q = TestTensor::random({1, 1, kDim}, DType::kF32, 1);
  const TestTensor k = TestTensor::random({1, 1, kDim}, DType::kF32, 2);
  for (const auto& target : targets()) {
    std::vector<double> products;
    for (const int32_t first : {0, 1, 50, 190}) {
      TestTensor pair({2, 1, kDim}, DType::kF32);
      for (int64_t i = 0; i < kDim; ++i) {
        pair.set(i, static_cast<float>(q.at(i)));
        pair.set(kDim + i, static_cast<float>(k.at(i)));
      }
      const std::vector<int32_t> positions = {first + 7, first};
      target->rope(pair, positions, angles.cos, angles.sin);
      double product = 0;
      for (int64_t i = 0; i < kDim; ++i) product += pair.at(i) * pair.at(kDim + i);
      products.push_back(product);
    }
    for (const double product : products) EXPECT_NEAR(product, products[0], 2e-5) << *target;
  }
}

TEST_F(Rope, RejectsAPositionBeyondTheTable) {
  const Angles angles(10, 4);
  const TestTensor x({2, 1, 8}, DType::kF32), narrow({2, 1, 6}, DType::kF32);
  Stream stream;
  const std::vector<int32_t> beyond = {3, 10}, good = {3, 9};
  EXPECT_EQ(
      error_message(ErrorCode::kInvalidArgument, [&] { rope(x, beyond, angles.cos, angles.sin, stream); }),
      "positions[1] = 10: cos has 10 rows");
  EXPECT_THAT(
      error_message(ErrorCode::kInvalidArgument, [&] { rope(narrow, good, angles.cos, angles.sin, stream); }),
      HasSubstr("rotates 8 elements, heads of x have 6"));
}

// Positions 8190, 8191 and 16383 with a slope of 0.1 and steps of 8192.
TEST(QueryTemperature, GrowsWithTheLogarithmOfSteps) {
  TestTensor q({3, 2, 4}, DType::kF32);
  const std::vector<int32_t> positions = {8190, 8191, 16383};
  const double expected[] = {1.0, 1.06931, 1.10986};
  for (const auto& target : targets()) {
    q.fill(2.0f);
    target->scale_by_position(q, positions, {.slope = 0.1f, .floor_scale = 8192.0f});
    for (int64_t i = 0; i < q.size(); ++i)
      EXPECT_NEAR(q.at(i), 2.0 * expected[i / 8], 1e-5) << i << " " << *target;
    // With first = 0, the same factors apply one position later.
    q.fill(2.0f);
    const std::vector<int32_t> later = {8191, 8192, 16384};
    target->scale_by_position(q, later, {.slope = 0.1f, .floor_scale = 8192.0f, .first = 0});
    for (int64_t i = 0; i < q.size(); ++i)
      EXPECT_NEAR(q.at(i), 2.0 * expected[i / 8], 1e-5) << i << " " << *target;
  }
  Stream stream;
  EXPECT_THAT(error_message(ErrorCode::kInvalidArgument,
                            [&] { scale_by_position(q, positions, {.slope = 0.1f}, stream); }),
              HasSubstr("floor_scale 0"));
  EXPECT_THAT(error_message(
                  ErrorCode::kInvalidArgument,
                  [&] {
                    scale_by_position(q, {positions.data(), 2}, {.slope = 0.1f, .floor_scale = 1.0f}, stream);
                  }),
              HasSubstr("positions of 2 tokens: expected 3"));
}

// A norm without weights and a rotation both preserve the mean of squares, so their order does not matter.
// Without angles nothing is rotated.
TEST(NormAfterRope, UsesTheUnrotatedHead) {
  constexpr int64_t kTokens = 3, kHeads = 2, kHeadDim = 24;
  constexpr float kEps = 1e-5f;
  const std::vector<int32_t> positions = {4, 0, 7};
  const Angles angles(8, kHeadDim / 2);
  Stream stream;
  for (const auto& target : targets())
    for (const bool rotated : {true, false}) {
      const TestTensor q = TestTensor::random({kTokens, kHeads, kHeadDim}, DType::kF32, 3),
                       expected = TestTensor::random({kTokens, kHeads, kHeadDim}, DType::kF32, 3),
                       ones({kHeadDim}, DType::kF32);
      for (int64_t i = 0; i < kHeadDim; ++i) ones.view().as<float>()[i] = 1.0f;
      NormRopeArgs args{.q = q, .eps = kEps, .positions = positions, .norm_after_rope = true};
      NormRopeArgs before{.q = expected, .q_norm = ones, .eps = kEps, .positions = positions};
      if (rotated) {
        args.cos = before.cos = angles.cos;
        args.sin = before.sin = angles.sin;
      }
      target->norm_rope(args);
      target->norm_rope(before);
      for (int64_t i = 0; i < q.size(); ++i)
        ASSERT_NEAR(q.at(i), expected.at(i), 1e-5) << i << rotated << " " << *target;
    }
  const TestTensor wide({1, 1, 520}, DType::kF32);
  EXPECT_THAT(error_message(ErrorCode::kInvalidArgument,
                            [&] { norm_rope({.q = wide, .norm_after_rope = true}, stream); }),
              HasSubstr("heads of 520: expected at most 512"));
}

}  // namespace
}  // namespace attend::kernels
