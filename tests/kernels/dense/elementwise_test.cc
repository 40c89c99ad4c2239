#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <limits>
#include <vector>

#include "attend/kernels/norm_rope/activation.h"
#include "attend/kernels/norm_rope/norm.h"
#include "attend/kernels/norm_rope/rope.h"
#include "attend/kernels/norm_rope/rotate.h"
#include "attend/kernels/norm_rope/rows.h"
#include "tests/kernels/dense/target.h"
#include "tests/kernels/dense/test_tensor.h"
#include "tests/support/error_message.h"

namespace attend::kernels {
namespace {

using testing::HasSubstr;
using testing_support::error_message;
using testing_support::kWeightTypes;
using testing_support::NeedsTarget;
using testing_support::Target;
using testing_support::targets;
using testing_support::TestTensor;

using Embedding = NeedsTarget;
using RmsNorm = NeedsTarget;
using AddRmsNorm = NeedsTarget;
using SiluMul = NeedsTarget;
using Rope = NeedsTarget;
using NormRope = NeedsTarget;
using GatherRows = NeedsTarget;
using Elementwise = NeedsTarget;

// Every remainder of a vector, and rows of many vectors.
constexpr int64_t kDims[] = {1,  2,  3,  4,  5,  7,  8,  9,  12, 15, 16,  17,  20,
                             24, 31, 32, 33, 47, 48, 63, 64, 65, 96, 127, 300, 4096};

const float kNan = std::numeric_limits<float>::quiet_NaN();

TEST_F(Embedding, CopiesTheRowOfEachId) {
  const std::vector<int32_t> ids = {4, 0, 6, 4};
  for (const auto& target : targets())
    for (const DType dtype : kWeightTypes)
      for (const int64_t hidden : kDims) {
        const TestTensor table = TestTensor::random({7, hidden}, dtype, 1);
        TestTensor out({4, hidden}, DType::kF32);
        target->embedding(ids, table, out);
        for (int64_t row = 0; row < 4; ++row)
          for (int64_t i = 0; i < hidden; ++i)
            ASSERT_EQ(out.at(row * hidden + i), table.at(ids[static_cast<size_t>(row)] * hidden + i))
                << *target << " " << dtype << " hidden " << hidden;
      }
}

TEST_F(Embedding, RefusesAnIdBeyondTheTable) {
  const TestTensor table({7, 8}, DType::kBF16), out({2, 8}, DType::kF32);
  Stream stream;
  for (const int32_t bad : {7, -1}) {
    const std::vector<int32_t> ids = {0, bad};
    EXPECT_EQ(error_message(ErrorCode::kInvalidArgument, [&] { embedding(ids, table, out, stream); }),
              "ids[1] = " + std::to_string(bad) + ": table has 7 rows");
  }
}

// x / sqrt(mean(x^2) + eps) * (weight + offset) of one row, in float64.
std::vector<double> rms_norm_in_float64(const std::vector<double>& x, const std::vector<double>& weight,
                                        double eps, double offset) {
  double sum = 0;
  for (const double element : x) sum += element * element;
  const double scale = 1.0 / std::sqrt(sum / static_cast<double>(x.size()) + eps);
  std::vector<double> result;
  for (size_t i = 0; i < x.size(); ++i) result.push_back(x[i] * scale * (weight[i] + offset));
  return result;
}

void expect_rows_near(const TestTensor& out, int64_t row, const std::vector<double>& expected) {
  const auto dim = static_cast<int64_t>(expected.size());
  for (int64_t i = 0; i < dim; ++i) {
    const double value = expected[static_cast<size_t>(i)];
    ASSERT_NEAR(out.at(row * dim + i), value, 1e-6 * std::abs(value)) << "row " << row << ", element " << i;
  }
}

std::vector<double> row_values(const TestTensor& tensor, int64_t row, int64_t dim) {
  std::vector<double> values;
  for (int64_t i = 0; i < dim; ++i) values.push_back(tensor.at(row * dim + i));
  return values;
}

TEST_F(RmsNorm, MatchesFloat64) {
  for (const auto& target : targets())
    for (const DType dtype : kWeightTypes)
      for (const int64_t dim : kDims)
        for (const float offset : {0.0f, 1.0f}) {
          SCOPED_TRACE(testing::Message()
                       << *target << " " << dtype << " dim " << dim << " offset " << offset);
          const TestTensor x = TestTensor::random({3, dim}, DType::kF32, 1, 5.0f);
          const TestTensor weight = TestTensor::random({dim}, dtype, 2, 0.25f);
          TestTensor out({3, dim}, DType::kF32);
          target->rms_norm(x, weight, 1e-5f, out, offset);
          for (int64_t row = 0; row < 3; ++row)
            expect_rows_near(out, row,
                             rms_norm_in_float64(row_values(x, row, dim), weight.values(), 1e-5f, offset));
        }
}

TEST_F(RmsNorm, OfZerosIsZero) {
  for (const auto& target : targets()) {
    const TestTensor x({1, 37}, DType::kF32), weight = TestTensor::random({37}, DType::kF32, 1);
    TestTensor out({1, 37}, DType::kF32);
    out.fill(kNan);
    target->rms_norm(x, weight, 1e-6f, out, 0.0f);
    for (int64_t i = 0; i < 37; ++i) EXPECT_EQ(out.at(i), 0.0) << *target;
  }
}

TEST_F(RmsNorm, MayWriteOverItsInput) {
  for (const auto& target : targets()) {
    TestTensor x = TestTensor::random({2, 45}, DType::kF32, 1);
    const TestTensor weight = TestTensor::random({45}, DType::kF32, 2);
    TestTensor out({2, 45}, DType::kF32);
    target->rms_norm(x, weight, 1e-6f, out, 0.0f);
    target->rms_norm(x, weight, 1e-6f, x, 0.0f);
    EXPECT_EQ(x.values(), out.values()) << *target;
  }
}

TEST_F(RmsNorm, NormalisesEachHeadInsideAWiderRow) {
  constexpr int64_t kTokens = 3, kHeads = 2, kDim = 20, kWidth = 64, kFirst = 8;
  for (const auto& target : targets()) {
    TestTensor qkv = TestTensor::random({kTokens, kWidth}, DType::kF32, 1);
    const std::vector<double> before = qkv.values();
    const TestTensor weight = TestTensor::random({kDim}, DType::kF32, 2);
    const TensorView heads = qkv.view().slice(1, kFirst, kFirst + kHeads * kDim).split(1, kDim);
    target->rms_norm(heads, weight, 1e-6f, heads, 0.0f);
    std::vector<double> expected = before;
    for (int64_t token = 0; token < kTokens; ++token)
      for (int64_t head = 0; head < kHeads; ++head) {
        const auto at = before.begin() + token * kWidth + kFirst + head * kDim;
        const std::vector<double> row = rms_norm_in_float64({at, at + kDim}, weight.values(), 1e-6f, 0.0);
        std::copy(row.begin(), row.end(), expected.begin() + (at - before.begin()));
      }
    expect_rows_near(qkv, 0, expected);
  }
}

TEST_F(AddRmsNorm, IsTheSumAndThenTheNorm) {
  for (const auto& target : targets())
    for (const int64_t hidden : kDims) {
      SCOPED_TRACE(testing::Message() << *target << " hidden " << hidden);
      TestTensor x = TestTensor::random({2, hidden}, DType::kF32, 1);
      TestTensor residual = TestTensor::random({2, hidden}, DType::kF32, 2);
      const TestTensor weight = TestTensor::random({hidden}, DType::kBF16, 3);
      TestTensor sum({2, hidden}, DType::kF32), normed({2, hidden}, DType::kF32);
      for (int64_t i = 0; i < sum.size(); ++i)
        sum.set(i, static_cast<float>(x.at(i)) + static_cast<float>(residual.at(i)));
      target->rms_norm(sum, weight, 1e-6f, normed, 0.0f);
      target->add_rms_norm(x, residual, weight, 1e-6f, x);
      EXPECT_EQ(residual.values(), sum.values());
      EXPECT_EQ(x.values(), normed.values());
    }
}

TEST_F(SiluMul, MatchesFloat64OverTheWholeRange) {
  for (const auto& target : targets())
    for (const int64_t intermediate : kDims) {
      const TestTensor gate_up = TestTensor::random({2, 2 * intermediate}, DType::kF32, 1, 30.0f);
      TestTensor out({2, intermediate}, DType::kF32);
      target->silu_mul(gate_up, out);
      for (int64_t row = 0; row < 2; ++row)
        for (int64_t i = 0; i < intermediate; ++i) {
          const double gate = gate_up.at(row * 2 * intermediate + i);
          const double up = gate_up.at(row * 2 * intermediate + intermediate + i);
          const double expected = gate / (1.0 + std::exp(-gate)) * up;
          // Below e^-87.3 the factor is a denormal in float32, and counts as zero.
          ASSERT_NEAR(out.at(row * intermediate + i), expected, 1e-6 * std::abs(expected) + 1e-33)
              << *target << " gate " << gate;
        }
    }
}

TEST_F(SiluMul, TakesTheExtremes) {
  const std::vector<float> gates = {0.0f,
                                    -0.0f,
                                    88.0f,
                                    -88.0f,
                                    1e30f,
                                    -1e30f,
                                    std::numeric_limits<float>::max(),
                                    -std::numeric_limits<float>::max(),
                                    1e-40f};
  const auto n = static_cast<int64_t>(gates.size());
  for (const auto& target : targets()) {
    TestTensor gate_up({1, 2 * n}, DType::kF32), out({1, n}, DType::kF32);
    gate_up.fill(1.0f);
    for (int64_t i = 0; i < n; ++i) gate_up.set(i, gates[static_cast<size_t>(i)]);
    target->silu_mul(gate_up, out);
    for (int64_t i = 0; i < n; ++i) {
      const double gate = gate_up.at(i), expected = gate / (1.0 + std::exp(-gate));
      EXPECT_NEAR(out.at(i), expected, 1e-6 * std::abs(expected) + 1e-33) << *target << " gate " << gate;
    }
  }
}

// cos and sin of position * angle(i), and the angles themselves.
struct Angles {
  Angles(int64_t num_positions, int64_t half)
      : cos({num_positions, half}, DType::kF32), sin({num_positions, half}, DType::kF32) {
    for (int64_t position = 0; position < num_positions; ++position)
      for (int64_t i = 0; i < half; ++i) {
        const double angle =
            static_cast<double>(position) * std::pow(10000.0, -static_cast<double>(i) / half);
        cos.set(position * half + i, static_cast<float>(std::cos(angle)));
        sin.set(position * half + i, static_cast<float>(std::sin(angle)));
      }
  }
  // The rotation of pair i as a complex number.
  std::complex<double> rotation(int64_t position, int64_t i) const {
    const int64_t half = cos.view().shape[1];
    return {cos.at(position * half + i), sin.at(position * half + i)};
  }
  TestTensor cos, sin;
};

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

// What norm_rope, qkv_norm_rope_store and apply_rope_rows have on a GPU too.
TEST_F(Rope, HasTheBitsOfRotateButWhereFmaRoundsTwice) {
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

TEST_F(Rope, RotatesTheHeadsOfAWiderRowAlone) {
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

// What attention relies on: the product of two rotated heads depends on the distance of their positions only.
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

TEST_F(Rope, RefusesAPositionBeyondTheTable) {
  const Angles angles(10, 4);
  const TestTensor x({2, 1, 8}, DType::kF32), narrow({2, 1, 6}, DType::kF32);
  Stream stream;
  const std::vector<int32_t> beyond = {3, 10}, good = {3, 9};
  EXPECT_EQ(
      error_message(ErrorCode::kInvalidArgument, [&] { rope(x, beyond, angles.cos, angles.sin, stream); }),
      "positions[1] = 10: cos has 10 rows");
  EXPECT_THAT(
      error_message(ErrorCode::kInvalidArgument, [&] { rope(narrow, good, angles.cos, angles.sin, stream); }),
      HasSubstr("rotates 8 elements, the heads of x have 6"));
}

TEST_F(NormRope, NormsEachHeadOfQAndKAndThenRotatesIt) {
  constexpr int64_t kTokens = 3, kQHeads = 4, kKHeads = 2;
  const std::vector<int32_t> positions = {7, 0, 9};
  for (const auto& target : targets())
    for (const auto& [head_dim, rotary_dim] :
         std::vector<std::pair<int64_t, int64_t>>{{64, 64}, {128, 128}, {80, 80}, {128, 32}, {20, 6}})
      for (const bool normed : {false, true}) {
        SCOPED_TRACE(testing::Message() << *target << " head_dim " << head_dim << " normed " << normed);
        const Angles angles(10, rotary_dim / 2);
        const TestTensor q_norm = TestTensor::random({head_dim}, DType::kBF16, 3);
        const TestTensor k_norm = TestTensor::random({head_dim}, DType::kF32, 4);
        TestTensor qkv = TestTensor::random({kTokens, (kQHeads + kKHeads) * head_dim}, DType::kF32, 5);
        TestTensor expected = TestTensor::random({kTokens, (kQHeads + kKHeads) * head_dim}, DType::kF32, 5);
        const auto heads = [&](const TestTensor& row, int64_t first, int64_t count) {
          return row.view().slice(1, first * head_dim, (first + count) * head_dim).split(1, head_dim);
        };
        for (const auto& [first, count, weight] :
             {std::tuple{int64_t{0}, kQHeads, &q_norm}, std::tuple{kQHeads, kKHeads, &k_norm}}) {
          const TensorView part = heads(expected, first, count);
          if (normed) target->rms_norm(part, *weight, 1e-6f, part, 0.0f);
          target->rope(part, positions, angles.cos, angles.sin);
        }
        // One allocation for q and k, as the projection writes them.
        const TensorView q = heads(qkv, 0, kQHeads), k = heads(qkv, kQHeads, kKHeads);
        target->norm_rope({.q = q,
                           .q_norm = normed ? q_norm.view() : TensorView(),
                           .positions = positions,
                           .cos = angles.cos,
                           .sin = angles.sin});
        target->norm_rope({.q = k,
                           .q_norm = normed ? k_norm.view() : TensorView(),
                           .positions = positions,
                           .cos = angles.cos,
                           .sin = angles.sin});
        for (int64_t i = 0; i < qkv.size(); ++i) ASSERT_NEAR(qkv.at(i), expected.at(i), 1e-5) << i;

        TestTensor q_alone = TestTensor::random({kTokens, kQHeads, head_dim}, DType::kF32, 6);
        TestTensor k_alone = TestTensor::random({kTokens, kKHeads, head_dim}, DType::kF32, 7);
        TestTensor q_apart = TestTensor::random({kTokens, kQHeads, head_dim}, DType::kF32, 6);
        TestTensor k_apart = TestTensor::random({kTokens, kKHeads, head_dim}, DType::kF32, 7);
        target->norm_rope({.q = q_alone,
                           .k = k_alone,
                           .q_norm = normed ? q_norm.view() : TensorView(),
                           .k_norm = normed ? k_norm.view() : TensorView(),
                           .positions = positions,
                           .cos = angles.cos,
                           .sin = angles.sin});
        for (const auto& [apart, weight] : {std::pair{&q_apart, &q_norm}, std::pair{&k_apart, &k_norm}})
          target->norm_rope({.q = *apart,
                             .q_norm = normed ? weight->view() : TensorView(),
                             .positions = positions,
                             .cos = angles.cos,
                             .sin = angles.sin});
        EXPECT_EQ(q_alone.values(), q_apart.values());
        EXPECT_EQ(k_alone.values(), k_apart.values());
      }
}

TEST_F(GatherRows, CopiesTheChosenRows) {
  const std::vector<int32_t> rows = {5, 0, 5};
  for (const auto& target : targets())
    for (const int64_t hidden : kDims) {
      const TestTensor wide = TestTensor::random({6, hidden + 3}, DType::kF32, 1);
      TestTensor out({3, hidden}, DType::kF32);
      target->gather_rows(wide.view().slice(1, 2, hidden + 2), rows, out);
      for (int64_t row = 0; row < 3; ++row)
        for (int64_t i = 0; i < hidden; ++i)
          ASSERT_EQ(out.at(row * hidden + i), wide.at(rows[static_cast<size_t>(row)] * (hidden + 3) + 2 + i));
    }
}

TEST_F(Elementwise, GivesTheSameBitsWhenThreadsShareTheRows) {
  constexpr int64_t kRows = 300, kDim = 256;
  const TestTensor x = TestTensor::random({kRows, kDim}, DType::kF32, 1);
  const TestTensor weight = TestTensor::random({kDim}, DType::kF32, 2);
  const Angles angles(kRows, 16);
  std::vector<int32_t> all;
  for (int32_t row = 0; row < kRows; ++row) all.push_back(row);
  TestTensor normed({kRows, kDim}, DType::kF32), gated({kRows, kDim / 2}, DType::kF32);
  TestTensor gathered({kRows, kDim}, DType::kF32), rotated({kRows, 8, 32}, DType::kF32);
  for (int64_t i = 0; i < x.size(); ++i) rotated.set(i, static_cast<float>(x.at(i)));
  const Target& target = *targets().back();
  target.rms_norm(x, weight, 1e-6f, normed, 0.0f);
  target.silu_mul(x, gated);
  target.gather_rows(x, all, gathered);
  target.rope(rotated, all, angles.cos, angles.sin);
  EXPECT_EQ(gathered.values(), x.values());
  for (int32_t row = 0; row < kRows; ++row) {
    const TensorView one = x.view().slice(0, row, row + 1);
    TestTensor one_normed({1, kDim}, DType::kF32), one_gated({1, kDim / 2}, DType::kF32);
    TestTensor one_rotated({1, 8, 32}, DType::kF32);
    for (int64_t i = 0; i < kDim; ++i) one_rotated.set(i, static_cast<float>(x.at(row * kDim + i)));
    target.rms_norm(one, weight, 1e-6f, one_normed, 0.0f);
    target.silu_mul(one, one_gated);
    target.rope(one_rotated, View<const int32_t>(all).subspan(static_cast<size_t>(row), 1), angles.cos,
                angles.sin);
    ASSERT_EQ(one_normed.values(), row_values(normed, row, kDim)) << row;
    ASSERT_EQ(one_gated.values(), row_values(gated, row, kDim / 2)) << row;
    ASSERT_EQ(one_rotated.values(), row_values(rotated, row, kDim)) << row;
  }
}

TEST_F(Elementwise, RefusesWhatDoesNotFitAndSaysWhy) {
  const TestTensor x({3, 8}, DType::kF32), half({3, 8}, DType::kF16), narrow({3, 6}, DType::kF32);
  const TestTensor weight({8}, DType::kBF16), short_weight({7}, DType::kBF16);
  Stream stream;
  const auto refusal = [](ErrorCode code, auto&& fn) { return error_message(code, fn); };
  constexpr ErrorCode kInvalid = ErrorCode::kInvalidArgument, kUnsupported = ErrorCode::kUnsupported;
  EXPECT_THAT(refusal(kInvalid, [&] { rms_norm(x, short_weight, 1e-6f, x, stream); }),
              HasSubstr("weight bfloat16[7] on cpu: expected 8 in dimension 0"));
  EXPECT_THAT(refusal(kInvalid, [&] { rms_norm(x, weight, 1e-6f, narrow, stream); }),
              HasSubstr("out float32[3, 6] on cpu: expected 8 in dimension 1"));
  EXPECT_THAT(refusal(kInvalid, [&] { rms_norm(weight, weight, 1e-6f, x, stream); }),
              HasSubstr("expected 2 or 3 dimensions"));
  EXPECT_THAT(refusal(kUnsupported, [&] { rms_norm(half, weight, 1e-6f, x, stream); }),
              HasSubstr("x float16[3, 8] on cpu: activations are float32 on the CPU"));
  EXPECT_THAT(refusal(kInvalid, [&] { add_rms_norm(x, narrow, weight, 1e-6f, x, stream); }),
              HasSubstr("residual float32[3, 6] on cpu: expected 8 in dimension 1"));
  EXPECT_THAT(refusal(kInvalid, [&] { silu_mul(x, narrow, stream); }),
              HasSubstr("gate_up float32[3, 8] on cpu: expected 12 in dimension 1"));
  const std::vector<int32_t> rows = {0, 3, 1}, too_few = {0, 1};
  EXPECT_EQ(refusal(kInvalid, [&] { gather_rows(x, rows, x, stream); }), "rows[1] = 3: x has 3 rows");
  EXPECT_THAT(refusal(kInvalid, [&] { gather_rows(x, too_few, x, stream); }),
              HasSubstr("out float32[3, 8] on cpu: expected 2 in dimension 0"));
  Stream gpu{.device = {DeviceType::kCuda, 1}, .handle = nullptr};
  EXPECT_EQ(refusal(kInvalid, [&] { silu_mul(x, narrow, gpu); }),
            "out float32[3, 6] on cpu: expected on cuda:1");
}

}  // namespace
}  // namespace attend::kernels
