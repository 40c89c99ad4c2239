// Norms of heads and RoPE in one launch.
#include <gtest/gtest.h>

#include <vector>

#include "attend/kernels/norm_rope/elementwise.h"
#include "attend/kernels/norm_rope/rope.h"
#include "tests/kernels/dense/elementwise_case.h"
#include "tests/kernels/dense/target.h"
#include "tests/kernels/dense/test_tensor.h"

namespace attend::kernels {
namespace {

using testing_support::Angles;
using testing_support::NeedsTarget;
using testing_support::targets;
using testing_support::TestTensor;

using NormRope = NeedsTarget;

TEST_F(NormRope, NormalizesThenRotatesEachHeadOfQAndK) {
  constexpr int64_t kTokens = 3, kQHeads = 4, kKHeads = 2;
  const std::vector<int32_t> positions = {7, 0, 9};
  for (const auto& target : targets())
    for (const auto& [head_dim, rotary_dim] : std::vector<std::pair<int64_t, int64_t>>{
             {64, 64}, {128, 128}, {80, 80}, {128, 32}, {20, 6}, {256, 64}, {320, 32}, {512, 512}})
      for (const bool normalized : {false, true}) {
        SCOPED_TRACE(testing::Message()
                     << *target << " head_dim " << head_dim << " normalized " << normalized);
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
          if (normalized) target->rms_norm(part, *weight, 1e-6f, part, 0.0f);
          target->rope(part, positions, angles.cos, angles.sin);
        }
        // One allocation for q and k, as the projection writes them.
        const TensorView q = heads(qkv, 0, kQHeads), k = heads(qkv, kQHeads, kKHeads);
        target->norm_rope({.q = q,
                           .q_norm = normalized ? q_norm.view() : TensorView(),
                           .positions = positions,
                           .cos = angles.cos,
                           .sin = angles.sin});
        target->norm_rope({.q = k,
                           .q_norm = normalized ? k_norm.view() : TensorView(),
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
                           .q_norm = normalized ? q_norm.view() : TensorView(),
                           .k_norm = normalized ? k_norm.view() : TensorView(),
                           .positions = positions,
                           .cos = angles.cos,
                           .sin = angles.sin});
        for (const auto& [apart, weight] : {std::pair{&q_apart, &q_norm}, std::pair{&k_apart, &k_norm}})
          target->norm_rope({.q = *apart,
                             .q_norm = normalized ? weight->view() : TensorView(),
                             .positions = positions,
                             .cos = angles.cos,
                             .sin = angles.sin});
        EXPECT_EQ(q_alone.values(), q_apart.values());
        EXPECT_EQ(k_alone.values(), k_apart.values());
      }
}

}  // namespace
}  // namespace attend::kernels
