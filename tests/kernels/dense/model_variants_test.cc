// Elementwise operations that some models need in addition to Llama's: scaled embeddings, norms after
// sublayers, GELU, soft caps, interleaved RoPE pairs, two tables of angles.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "attend/kernels/norm_rope/elementwise.h"
#include "attend/kernels/norm_rope/rope.h"
#include "tests/kernels/dense/target.h"
#include "tests/kernels/dense/test_tensor.h"
#include "tests/support/error_message.h"

namespace attend::kernels {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing_support::error_message;
using testing_support::kWeightTypes;
using testing_support::NeedsTarget;
using testing_support::targets;
using testing_support::TestTensor;

using ScaledEmbedding = NeedsTarget;
using RmsNormAdd = NeedsTarget;
using GeluMul = NeedsTarget;
using GeluTanhMul = NeedsTarget;
using SoftCap = NeedsTarget;
using InterleavedRope = NeedsTarget;
using RopeRowsByLength = NeedsTarget;

constexpr int64_t kSizes[] = {1, 5, 8, 31, 48, 300, 4096};

TEST_F(ScaledEmbedding, MultipliesEachRow) {
  const std::vector<int32_t> ids = {4, 0, 4};
  for (const auto& target : targets())
    for (const DType dtype : kWeightTypes)
      for (const int64_t hidden : kSizes) {
        const TestTensor table = TestTensor::random({5, hidden}, dtype, 1);
        TestTensor out({3, hidden}, DType::kF32);
        target->embedding(ids, table, out, 50.5f);
        for (int64_t row = 0; row < 3; ++row)
          for (int64_t i = 0; i < hidden; ++i)
            ASSERT_EQ(out.at(row * hidden + i),
                      static_cast<float>(table.at(ids[static_cast<size_t>(row)] * hidden + i)) * 50.5f)
                << *target << " " << dtype << " hidden " << hidden;
      }
}

TEST_F(RmsNormAdd, AddsTheNormOfXToTheResidual) {
  for (const auto& target : targets())
    for (const DType dtype : kWeightTypes)
      for (const int64_t hidden : kSizes) {
        SCOPED_TRACE(testing::Message() << *target << " " << dtype << " hidden " << hidden);
        TestTensor x = TestTensor::random({2, hidden}, DType::kF32, 1, 5.0f);
        const std::vector<double> before = x.values();
        TestTensor residual = TestTensor::random({2, hidden}, DType::kF32, 2);
        const std::vector<double> sum = residual.values();
        const TestTensor weight = TestTensor::random({hidden}, dtype, 3);
        target->rms_norm_add(x, weight, 1e-6f, residual);
        for (int64_t row = 0; row < 2; ++row) {
          double squares = 0.0;
          for (int64_t i = 0; i < hidden; ++i) {
            const double value = before[static_cast<size_t>(row * hidden + i)];
            squares += value * value;
          }
          const double scale = 1.0 / std::sqrt(squares / static_cast<double>(hidden) + 1e-6);
          for (int64_t i = 0; i < hidden; ++i) {
            const auto at = static_cast<size_t>(row * hidden + i);
            ASSERT_NEAR(residual.at(row * hidden + i), sum[at] + before[at] * scale * weight.at(i), 2e-6);
          }
        }
      }
}

TEST_F(RmsNormAdd, RejectsAResidualOfAnotherShape) {
  const TestTensor x({2, 8}, DType::kF32), narrow({2, 7}, DType::kF32), weight({8}, DType::kF32);
  Stream stream;
  EXPECT_THAT(
      error_message(ErrorCode::kInvalidArgument, [&] { rms_norm_add(x, weight, 1e-6f, narrow, stream); }),
      HasSubstr("residual"));
}

double exact_gelu_in_float64(double x) { return 0.5 * x * std::erfc(-x / std::sqrt(2.0)); }

TEST_F(GeluMul, MatchesFloat64OverTheWholeRange) {
  for (const auto& target : targets())
    for (const int64_t intermediate : kSizes)
      for (const float deviation : {0.1f, 3.0f, 30.0f}) {
        const TestTensor gate_up = TestTensor::random({2, 2 * intermediate}, DType::kF32, 1, deviation);
        TestTensor out({2, intermediate}, DType::kF32);
        target->gelu_mul(gate_up, out);
        for (int64_t row = 0; row < 2; ++row)
          for (int64_t i = 0; i < intermediate; ++i) {
            const double gate = gate_up.at(row * 2 * intermediate + i);
            const double up = gate_up.at(row * 2 * intermediate + intermediate + i);
            ASSERT_NEAR(out.at(row * intermediate + i), exact_gelu_in_float64(gate) * up,
                        1e-6 * std::abs(gate * up) + 1e-30)
                << *target << " gate " << gate;
          }
      }
}

double gelu_in_float64(double x) {
  return 0.5 * x * (1.0 + std::tanh(std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x)));
}

TEST_F(GeluTanhMul, MatchesFloat64OverTheWholeRange) {
  for (const auto& target : targets())
    for (const int64_t intermediate : kSizes)
      for (const float deviation : {0.1f, 3.0f, 30.0f}) {
        const TestTensor gate_up = TestTensor::random({2, 2 * intermediate}, DType::kF32, 1, deviation);
        TestTensor out({2, intermediate}, DType::kF32);
        target->gelu_tanh_mul(gate_up, out);
        for (int64_t row = 0; row < 2; ++row)
          for (int64_t i = 0; i < intermediate; ++i) {
            const double gate = gate_up.at(row * 2 * intermediate + i);
            const double up = gate_up.at(row * 2 * intermediate + intermediate + i);
            ASSERT_NEAR(out.at(row * intermediate + i), gelu_in_float64(gate) * up,
                        1e-6 * std::abs(gate * up) + 1e-30)
                << *target << " gate " << gate;
          }
      }
}

TEST_F(GeluTanhMul, HandlesExtremes) {
  const std::vector<float> gates = {
      0.0f, -0.0f, 1e30f, -1e30f, std::numeric_limits<float>::max(), -std::numeric_limits<float>::max()};
  const auto n = static_cast<int64_t>(gates.size());
  for (const auto& target : targets()) {
    TestTensor gate_up({1, 2 * n}, DType::kF32), out({1, n}, DType::kF32);
    gate_up.fill(1.0f);
    for (int64_t i = 0; i < n; ++i) gate_up.set(i, gates[static_cast<size_t>(i)]);
    target->gelu_tanh_mul(gate_up, out);
    for (int64_t i = 0; i < n; ++i) {
      const double gate = gate_up.at(i);
      EXPECT_NEAR(out.at(i), std::max(gate, 0.0), 1e-6 * std::abs(gate)) << *target << " gate " << gate;
    }
  }
}

TEST_F(SoftCap, CompressesValuesNearTheCap) {
  for (const auto& target : targets())
    for (const int64_t columns : kSizes)
      for (const float cap : {0.5f, 30.0f}) {
        TestTensor x = TestTensor::random({3, columns}, DType::kF32, 1, 40.0f);
        const std::vector<double> before = x.values();
        target->soft_cap(x, cap);
        for (int64_t i = 0; i < x.size(); ++i) {
          const double expected = cap * std::tanh(before[static_cast<size_t>(i)] / cap);
          ASSERT_NEAR(x.at(i), expected, 1e-6 * std::abs(expected)) << *target << " cap " << cap;
        }
      }
}

TEST_F(SoftCap, LeavesOtherColumnsUnchanged) {
  for (const auto& target : targets()) {
    TestTensor wide = TestTensor::random({2, 30}, DType::kF32, 1, 9.0f);
    const std::vector<double> before = wide.values();
    target->soft_cap(wide.view().slice(1, 3, 20), 1.0f);
    for (int64_t i = 0; i < wide.size(); ++i) {
      const bool inside = i % 30 >= 3 && i % 30 < 20;
      EXPECT_EQ(inside, wide.at(i) != before[static_cast<size_t>(i)]) << *target << " element " << i;
    }
  }
}

TEST_F(SoftCap, RejectsAnInvalidCap) {
  const TestTensor x({1, 8}, DType::kF32);
  Stream stream;
  for (const float cap : {0.0f, -1.0f, std::numeric_limits<float>::quiet_NaN()})
    EXPECT_THAT(error_message(ErrorCode::kInvalidArgument, [&] { soft_cap(x, cap, stream); }),
                HasSubstr("expected above 0"));
}

// Heads with pairs (2i, 2i + 1) are heads with pairs (i, i + pairs) in another order, including norms and
// weights.
TEST_F(InterleavedRope, MatchesRopeOfReorderedHeads) {
  constexpr int64_t kTokens = 3, kHeads = 2, kPositions = 10;
  const std::vector<int32_t> positions = {7, 0, 9};
  for (const auto& target : targets())
    for (const auto& [head_dim, rotary_dim] :
         std::vector<std::pair<int64_t, int64_t>>{{2, 2}, {64, 64}, {128, 128}, {32, 16}, {128, 64}, {20, 6}})
      for (const bool normed : {false, true}) {
        SCOPED_TRACE(testing::Message() << *target << " head_dim " << head_dim << " rotary_dim " << rotary_dim
                                        << " normed " << normed);
        const int64_t pairs = rotary_dim / 2;
        const TestTensor cos = TestTensor::random({kPositions, pairs}, DType::kF32, 3);
        const TestTensor sin = TestTensor::random({kPositions, pairs}, DType::kF32, 4);
        const auto halves_of = [&](int64_t d) {
          return d >= rotary_dim ? d : (d % 2 == 0 ? d / 2 : pairs + d / 2);
        };
        TestTensor x = TestTensor::random({kTokens, kHeads, head_dim}, DType::kF32, 1);
        TestTensor halves({kTokens, kHeads, head_dim}, DType::kF32);
        const TestTensor weight = TestTensor::random({head_dim}, DType::kF32, 2);
        TestTensor weight_of_halves({head_dim}, DType::kF32);
        for (int64_t i = 0; i < x.size(); ++i)
          halves.set(i / head_dim * head_dim + halves_of(i % head_dim), static_cast<float>(x.at(i)));
        for (int64_t d = 0; d < head_dim; ++d)
          weight_of_halves.set(halves_of(d), static_cast<float>(weight.at(d)));
        NormRopeArgs args{.q = x,
                          .q_norm = normed ? weight.view() : TensorView(),
                          .positions = positions,
                          .cos = cos,
                          .sin = sin,
                          .interleaved = true};
        target->norm_rope(args);
        args.q = halves;
        args.q_norm = normed ? weight_of_halves.view() : TensorView();
        args.interleaved = false;
        target->norm_rope(args);
        for (int64_t i = 0; i < x.size(); ++i)
          ASSERT_NEAR(x.at(i), halves.at(i / head_dim * head_dim + halves_of(i % head_dim)), 2e-6) << i;
      }
}

TEST_F(RopeRowsByLength, UsesTheSecondTableBeyondTheOriginalLength) {
  // A prompt within the original length, a chunk of a longer prompt, a request that crosses the length, and a
  // padding token.
  const std::vector<int32_t> cu_seqlen_q = {0, 3, 5, 7}, prompt_lens = {3, 40, 8};
  const std::vector<int32_t> positions = {0, 1, 2, 10, 11, 31, 32, 0};
  for (const auto& target : targets()) {
    std::vector<int32_t> rows(positions.size(), -1);
    target->rope_rows_by_length({.positions = positions,
                                 .cu_seqlen_q = cu_seqlen_q,
                                 .prompt_lens = prompt_lens,
                                 .original_length = 32,
                                 .num_positions = 100,
                                 .rows = rows});
    EXPECT_THAT(rows, ElementsAre(0, 1, 2, 110, 111, 31, 132, 0)) << *target;
  }
}

}  // namespace
}  // namespace attend::kernels
