// Fused norm, RoPE and store of a latent row.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "attend/kernels/kv_store/reference_rows.h"
#include "attend/kernels/kv_store/selected_rows.h"
#include "tests/kernels/dense/elementwise_case.h"
#include "tests/kernels/dense/target.h"
#include "tests/kernels/dense/test_tensor.h"
#include "tests/support/error_message.h"

namespace attend::kernels {
namespace {

using testing_support::Angles;
using testing_support::error_message;
using testing_support::NeedsTarget;
using testing_support::targets;
using testing_support::TestTensor;

using LatentNormRopeStore = NeedsTarget;

constexpr int64_t kTokens = 4, kHeads = 11, kPageSize = 2;
constexpr float kEps = 1e-2f, kScale = 0.5f;

// Latent row and heads of one step in a wider matrix, and a cache.
struct Step {
  int64_t rank, rope_dim;
  TestTensor first, norm, cache;
  Angles angles;
  std::vector<int32_t> positions = {7, 0, 9, 3}, slots = {4, 3, -1, 7};
  bool rotates = true;

  Step(int64_t kv_lora_rank, int64_t rope, DType dtype, DType cache_dtype)
      : rank(kv_lora_rank),
        rope_dim(rope),
        first(TestTensor::random({kTokens, kHeads * rope + rank + rope}, dtype, 1)),
        norm(TestTensor::random({rank}, DType::kF32, 2)),
        cache({4, kPageSize, rank + rope}, cache_dtype),
        angles(10, rope / 2) {}

  LatentNormRopeStoreArgs args(bool interleaved) const {
    const TensorView& all = first.view();
    return {.kv_a = all.slice(1, kHeads * rope_dim, all.shape[1]),
            .norm = norm,
            .eps = kEps,
            .q_rope = all.slice(1, 0, kHeads * rope_dim).split(1, rope_dim),
            .positions = positions,
            .cos = rotates ? angles.cos.view() : TensorView(),
            .sin = rotates ? angles.sin.view() : TensorView(),
            .interleaved = interleaved,
            .to = {.k = cache, .slots = slots, .k_scale = kScale}};
  }

  // Expected row `token` of `first` for its previous contents.
  std::vector<double> expected(const std::vector<double>& was, int64_t token, bool interleaved) const {
    std::vector<double> row = was;
    const auto width = static_cast<size_t>(rope_dim);
    const auto rotate_head = [&](size_t begin) {
      for (size_t i = 0; i < width / 2 && rotates; ++i) {
        const size_t a = begin + (interleaved ? 2 * i : i),
                     b = begin + (interleaved ? 2 * i + 1 : i + width / 2);
        const auto rotated = std::complex(was[a], was[b]) *
                             angles.rotation(positions[static_cast<size_t>(token)], static_cast<int64_t>(i));
        row[a] = rotated.real();
        row[b] = rotated.imag();
      }
    };
    for (size_t head = 0; head < kHeads; ++head) rotate_head(head * width);
    const size_t begin = kHeads * width;
    rotate_head(begin + static_cast<size_t>(rank));
    double squares = 0.0;
    for (int64_t i = 0; i < rank; ++i) squares += std::pow(was[begin + static_cast<size_t>(i)], 2);
    for (int64_t i = 0; i < rank; ++i)
      row[begin + static_cast<size_t>(i)] *=
          norm.at(i) / std::sqrt(squares / static_cast<double>(rank) + double{kEps});
    return row;
  }
};

TEST_F(LatentNormRopeStore, NormalizesRotatesAndStoresTheRowAndRotatesQ) {
  for (const auto& target : targets())
    for (const DType weights : {DType::kF32, DType::kBF16})
      for (const bool interleaved : {true, false})
        for (const auto& [rank, rope_dim] :
             std::vector<std::pair<int64_t, int64_t>>{{512, 64}, {40, 8}, {48, 8}, {44, 8}}) {
          const DType dtype = target->activation_for(weights);
          SCOPED_TRACE(testing::Message() << *target << ", " << to_string(dtype) << ", rank " << rank);
          // 16 bits, 8 bits, or the dtype of x.
          const DType cache_dtype = rank == 40 ? DType::kBF16 : rank == 48 ? DType::kF8E4M3 : dtype;
          Step step(rank, rope_dim, dtype, cache_dtype);
          step.rotates = rank != 44;
          const std::vector<double> was = step.first.values();
          target->latent_norm_rope_store(step.args(interleaved));
          const int64_t width = step.first.view().shape[1];
          const double tolerance = cache_dtype == DType::kF8E4M3 ? 0x1p-4
                                   : cache_dtype == DType::kF32  ? 2e-6
                                                                 : 0x1p-7;
          for (int64_t token = 0; token < kTokens; ++token) {
            const std::vector<double> expected = step.expected(
                {was.begin() + token * width, was.begin() + (token + 1) * width}, token, interleaved);
            for (int64_t i = 0; i < width; ++i) {
              const double value = expected[static_cast<size_t>(i)];
              ASSERT_NEAR(step.first.at(token * width + i), value, tolerance * (1.0 + std::abs(value)))
                  << "token " << token << ", element " << i;
            }
          }
          // Rows equal the cache times the scale. Slots without a token stay 0.
          std::vector<int64_t> token_of_slot(8, -1);
          for (int64_t token = 0; token < kTokens; ++token)
            if (const int32_t slot = step.slots[static_cast<size_t>(token)]; slot >= 0)
              token_of_slot[static_cast<size_t>(slot)] = token;
          const int64_t features = rank + rope_dim;
          for (int64_t slot = 0; slot < 8; ++slot)
            for (int64_t i = 0; i < features; ++i) {
              const int64_t token = token_of_slot[static_cast<size_t>(slot)];
              const double row = token < 0 ? 0.0 : step.first.at(token * width + kHeads * rope_dim + i);
              ASSERT_EQ(step.cache.at(slot * features + i), row / double{kScale})
                  << "slot " << slot << ", element " << i;
            }
        }
}

// fp8 attention reads q rounded to e4m3, including the rotated part. The latent row is unchanged.
TEST_F(LatentNormRopeStore, RoundsQueriesToE4m3OnRequest) {
  for (const auto& target : targets())
    for (const DType weights : {DType::kF32, DType::kBF16, DType::kF16}) {
      const DType dtype = target->activation_for(weights);
      SCOPED_TRACE(testing::Message() << *target << ", " << to_string(dtype));
      constexpr int64_t kRank = 40, kRope = 8, kLatents = 72;
      const Step exact(kRank, kRope, dtype, DType::kBF16), rounded(kRank, kRope, dtype, DType::kBF16);
      // Some values exceed the range of e4m3.
      const TestTensor latents = TestTensor::random({kTokens, kHeads, kLatents}, dtype, 3, 200.0f);
      const std::vector<double> were = latents.values();
      target->latent_norm_rope_store(exact.args(/*interleaved=*/true));
      LatentNormRopeStoreArgs args = rounded.args(/*interleaved=*/true);
      args.q_latent = latents;
      target->latent_norm_rope_store(args);
      const auto e4m3 = [](double value) {
        return static_cast<double>(static_cast<float>(F8E4M3(static_cast<float>(value))));
      };
      for (size_t i = 0; i < were.size(); ++i)
        ASSERT_EQ(latents.at(static_cast<int64_t>(i)), e4m3(were[i])) << "latent " << i;
      const int64_t width = exact.first.view().shape[1];
      for (int64_t i = 0; i < kTokens * width; ++i) {
        const bool of_q = i % width < kHeads * kRope;
        ASSERT_EQ(rounded.first.at(i), of_q ? e4m3(exact.first.at(i)) : exact.first.at(i)) << "element " << i;
      }
    }
}

// Scaled rows of 656 bytes. kv_a is overwritten with the dequantized row.
TEST_F(LatentNormRopeStore, StoresScaledRows) {
  for (const auto& target : targets())
    for (const DType weights : {DType::kF32, DType::kBF16, DType::kF16}) {
      const DType dtype = target->activation_for(weights);
      SCOPED_TRACE(testing::Message() << *target << ", " << to_string(dtype));
      constexpr int64_t kRank = kScaledRow.rank, kRope = kScaledRow.rope_dim;
      Step step(kRank, kRope, dtype, DType::kU8);
      step.cache = TestTensor({4, kPageSize, kScaledRow.bytes}, DType::kU8);
      const std::vector<double> was = step.first.values();
      target->latent_norm_rope_store(step.args(/*interleaved=*/true));
      const int64_t width = step.first.view().shape[1], row_begin = kHeads * kRope;
      for (int64_t token = 0; token < kTokens; ++token) {
        const std::vector<double> expected = step.expected(
            {was.begin() + token * width, was.begin() + (token + 1) * width}, token, /*interleaved=*/true);
        const int32_t slot = step.slots[static_cast<size_t>(token)];
        for (int64_t i = 0; i < width; ++i) {
          const double value = expected[static_cast<size_t>(i)];
          const bool quantized = slot >= 0 && i >= row_begin && i < row_begin + kRank;
          ASSERT_NEAR(step.first.at(token * width + i), value,
                      (quantized ? 0x1p-4 : 0x1p-7) * (1.0 + std::abs(value)))
              << "token " << token << ", element " << i;
        }
        if (slot < 0) continue;
        const std::vector<double> row =
            reference::load_latent(step.cache, slot * kScaledRow.bytes, 0, kScaledRow.width());
        for (int64_t i = 0; i < kScaledRow.width(); ++i)
          ASSERT_EQ(step.first.at(token * width + row_begin + i),
                    row[static_cast<size_t>(i)] * double{kScale})
              << "token " << token << ", element " << i;
      }
      const auto bytes = step.cache.span<uint8_t>();
      for (const int64_t slot : {0, 1, 2, 5, 6})
        EXPECT_TRUE(std::ranges::all_of(bytes.subspan(static_cast<size_t>(slot * kScaledRow.bytes), 656),
                                        [](uint8_t byte) { return byte == 0; }))
            << "slot " << slot;
    }
}

TEST(LatentNormRopeStoreEntry, RejectsAnglesRowsAndCachesOfOtherWidths) {
  const Step step(40, 8, DType::kF32, DType::kF32), other(40, 10, DType::kF32, DType::kF32);
  const auto error_text = [](const LatentNormRopeStoreArgs& args) {
    Stream stream;
    return error_message(ErrorCode::kInvalidArgument, [&] { latent_norm_rope_store(args, stream); });
  };
  LatentNormRopeStoreArgs args = step.args(true);
  args.cos = other.angles.cos;
  EXPECT_EQ(error_text(args), "cos float32[10, 5] on cpu: expected 4 in dimension 1");
  args = step.args(true);
  args.kv_a = other.args(true).kv_a;
  EXPECT_EQ(error_text(args), "kv_a float32[4, 50] on cpu: expected 48 in dimension 1");
  args = step.args(true);
  args.to.k = other.cache;
  EXPECT_EQ(error_text(args), "cache float32[4, 2, 50] on cpu: expected 48 in dimension 2");
  args = step.args(true);
  const TestTensor latents({kTokens, kHeads + 1, 40}, DType::kF32);
  args.q_latent = latents;
  EXPECT_EQ(error_text(args), "q_latent float32[4, 12, 40] on cpu: expected 11 in dimension 1");
}

}  // namespace
}  // namespace attend::kernels
