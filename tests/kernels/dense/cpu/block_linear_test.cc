// Products with weights in the block formats of GGUF files, on every instruction set of the CPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "attend/kernels/fused/vocab_ops.h"
#include "attend/kernels/gemm/weights.h"
#include "tests/kernels/dense/cpu/block_weight.h"
#include "tests/kernels/dense/target.h"
#include "tests/kernels/dense/test_tensor.h"
#include "tests/support/error_message.h"

namespace attend::kernels {
namespace {

using testing_support::BlockWeight;
using testing_support::error_message;
using testing_support::for_each_block_format;
using testing_support::targets;
using testing_support::TestTensor;

// One input is 1, the others are 0, so each output equals one element.
TEST(BlockLinear, DecodesEveryElementExactly) {
  for_each_block_format([](BlockFormat format) {
    const BlockWeight weight(format, 32, 512);
    for (const auto& target : targets())
      for (int64_t input = 0; input < 512; input += 5) {
        TestTensor x({1, 512}, DType::kF32), many({40, 512}, DType::kF32);
        for (int64_t row = 0; row < 40; ++row) many.set(row * 512 + input, 1.0f);
        x.set(input, 1.0f);
        TestTensor out({1, 32}, DType::kF32), outs({40, 32}, DType::kF32);
        target->linear({.x = x, .weight = weight.view, .bias = {}, .out = out});
        target->linear({.x = many, .weight = weight.view, .bias = {}, .out = outs});
        for (int64_t o = 0; o < 32; ++o) {
          const double element = reference::weight_row(weight.view, o)[static_cast<size_t>(input)];
          ASSERT_EQ(out.at(o), element) << *target << " input " << input << " output " << o;
          ASSERT_EQ(outs.at(39 * 32 + o), element) << *target << " input " << input << " output " << o;
        }
      }
  });
}

TEST(BlockLinear, MatchesFloat64ForFewAndForManyRows) {
  for_each_block_format([](BlockFormat format) {
    // Rows that are not a multiple of 128 elements, where blocks are small.
    const int64_t in_features = block_layout(format).elements == 32 ? 416 : 768;
    const BlockWeight weight(format, 29, in_features);
    for (const auto& target : targets())
      for (const int64_t num_rows : {1, 3, 9, 40}) {
        const TestTensor x = TestTensor::random({num_rows, in_features}, DType::kF32, 1);
        TestTensor out({num_rows, 29}, DType::kF32);
        target->linear({.x = x, .weight = weight.view, .bias = {}, .out = out});
        for (int64_t o = 0; o < 29; ++o) {
          const std::vector<double> row = reference::weight_row(weight.view, o);
          for (int64_t r = 0; r < num_rows; ++r) {
            double value = 0.0, magnitude = 0.0;
            for (int64_t i = 0; i < in_features; ++i) {
              const double product = x.at(r * in_features + i) * row[static_cast<size_t>(i)];
              value += product;
              magnitude += std::abs(product);
            }
            ASSERT_NEAR(out.at(r * 29 + o), value, 4.0 * target->linear_tolerance() * magnitude)
                << *target << " row " << r << " of " << num_rows << ", output " << o;
          }
        }
      }
  });
}

TEST(BlockLinear, ReturnsTheSameBitsInEveryBatch) {
  for_each_block_format([](BlockFormat format) {
    const BlockWeight weight(format, 45, 512);
    const TestTensor x = TestTensor::random({37, 512}, DType::kF32, 2);
    for (const auto& target : targets()) {
      TestTensor all({37, 45}, DType::kF32), one({1, 45}, DType::kF32);
      target->linear({.x = x, .weight = weight.view, .bias = {}, .out = all, .batch_invariant = true});
      for (const int64_t row : {0, 4, 36}) {
        target->linear({.x = x.view().slice(0, row, row + 1),
                        .weight = weight.view,
                        .bias = {},
                        .out = one,
                        .batch_invariant = true});
        for (int64_t o = 0; o < 45; ++o)
          ASSERT_EQ(one.at(o), all.at(row * 45 + o)) << *target << " row " << row;
      }
    }
  });
}

TEST(BlockLinear, RejectsWeightsThatAreNotWholeBlocks) {
  Stream stream;
  BlockWeight weight(BlockFormat::kQ4K, 4, 512);
  const TestTensor x({1, 512}, DType::kF32);
  TestTensor out({1, 4}, DType::kF32);
  Weight part = weight.view;
  part.data = TensorView::contiguous(part.data.data, DType::kU8, {4, 287});
  EXPECT_THAT(error_message(ErrorCode::kInvalidArgument, [&] { require_weight_on(stream, "weight", part); }),
              testing::HasSubstr("287 bytes per output: expected blocks of 144"));
  part = weight.view;
  part.scales = x;
  EXPECT_THAT(error_message(ErrorCode::kInvalidArgument, [&] { require_weight_on(stream, "weight", part); }),
              testing::HasSubstr("expected no scales"));
}

TEST(BlockEmbedding, ReturnsTheElementsOfEachToken) {
  for_each_block_format([](BlockFormat format) {
    const BlockWeight table(format, 7, 256);
    const std::vector<int32_t> ids = {6, 0, 3};
    TestTensor out({3, 256}, DType::kF32);
    Stream stream;
    embed({.ids = ids, .table = table.view, .scale = 2.0f, .out = out}, {.stream = stream});
    for (int64_t token = 0; token < 3; ++token) {
      const std::vector<double> row = reference::weight_row(table.view, ids[static_cast<size_t>(token)]);
      for (int64_t i = 0; i < 256; ++i)
        ASSERT_EQ(out.at(token * 256 + i), 2.0 * row[static_cast<size_t>(i)]) << token << ", " << i;
    }
  });
}

TEST(BlockEmbedding, RejectsTokensOutsideOfTheTable) {
  const BlockWeight table(BlockFormat::kQ8_0, 7, 32);
  TestTensor out({1, 32}, DType::kF32);
  Stream stream;
  for (const int32_t id : {-1, 7}) {
    const std::vector<int32_t> ids = {id};
    EXPECT_THAT(
        error_message(ErrorCode::kInvalidArgument,
                      [&] { embed({.ids = ids, .table = table.view, .out = out}, {.stream = stream}); }),
        testing::HasSubstr("expected 0 to 6"));
  }
}

}  // namespace
}  // namespace attend::kernels
