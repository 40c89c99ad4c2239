// JoinedWeight joins the parts of a quantized weight. The test uses host memory instead of GPU memory.
#include "attend/model/weights/join_parts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "attend/kernels/gemm/weights.h"
#include "tests/kernels/dense/quantized_weight.h"
#include "tests/support/error_message.h"

namespace attend {
namespace {

using testing_support::Format;
using testing_support::random_weight;
using testing_support::TestWeight;

void copy_bytes(const TensorView& from, const TensorView& to) {
  ASSERT_EQ(from.num_bytes(), to.num_bytes());
  ASSERT_EQ(from.dtype, to.dtype);
  ASSERT_TRUE(from.is_contiguous() && to.is_contiguous());
  std::memcpy(to.data, from.data, from.num_bytes());
}

// Joins parts with the given rows of outputs, and compares the rows of the result with those of the parts.
void expect_joins(std::vector<Format> formats, std::vector<int64_t> rows, int64_t common_rows) {
  std::vector<std::unique_ptr<TestWeight>> parts;
  int64_t num_rows = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    parts.push_back(random_weight(formats[i % formats.size()], rows[i], 256));
    num_rows += rows[i];
  }
  Arena arena(1 << 20);
  JoinedWeight joined(parts.front()->view, num_rows, common_rows, arena, copy_bytes);
  for (const auto& part : parts) joined.add(part->view, "part");
  ASSERT_EQ(joined.weight().out_features(), num_rows);
  int64_t first = 0;
  for (const auto& part : parts) {
    for (int64_t row = 0; row < part->view.out_features(); ++row)
      ASSERT_EQ(kernels::reference::weight_row(joined.weight(), first + row),
                kernels::reference::weight_row(part->view, row))
          << formats[0] << " row " << first + row;
    first += part->view.out_features();
  }
}

constexpr Format kTensor{WeightFormat::kFp8, 0, 0, DType::kF32};
constexpr Format kChannel{WeightFormat::kFp8, 1, 0, DType::kF32};
constexpr Format kBlocks{WeightFormat::kFp8, 128, 128, DType::kF32};
constexpr Format kInt4{WeightFormat::kInt4, 1, 64, DType::kBF16};
constexpr Format kInt4Zeros{WeightFormat::kInt4, 1, 64, DType::kBF16, true};
constexpr Format kReordered{WeightFormat::kInt4, 1, 64, DType::kBF16, true, true};
constexpr Format kMxFp4{WeightFormat::kMxFp4, 1, 32, DType::kU8};

TEST(JoinedWeight, HasTheRowsOfItsParts) {
  for (const Format& format : {kTensor, kChannel, kInt4, kInt4Zeros, kMxFp4})
    expect_joins({format}, {48, 16, 17}, 16);
  expect_joins({kTensor, kChannel}, {48, 16, 17}, 16);
  expect_joins({kInt4, kInt4Zeros}, {48, 16, 17}, 16);
  // Parts that end at the end of a block, parts that end within a block, and a part smaller than a block.
  expect_joins({kBlocks}, {256, 128, 100}, 128);
  expect_joins({kBlocks}, {200, 64, 100}, 8);
  expect_joins({kBlocks}, {64, 64, 300}, 64);
}

TEST(JoinedWeight, WithOnePartEqualsThatPart) {
  for (const Format& format : {kTensor, kChannel, kBlocks, kInt4Zeros, kReordered, kMxFp4})
    expect_joins({format}, {200}, 0);
}

// Gate and up of three experts; each expert has its own order of inputs.
TEST(JoinedWeight, HasAnInputOrderPerExpert) {
  constexpr int64_t kExperts = 3, kRows = 16, kColumns = 128;
  std::vector<std::unique_ptr<TestWeight>> parts;
  for (int64_t i = 0; i < 2 * kExperts; ++i) {
    parts.push_back(random_weight(kReordered, kRows, kColumns));
    const View<int32_t> order = parts.back()->order.span<int32_t>();
    std::ranges::rotate(order, order.begin() + i / 2 * 5);
    parts.back()->codes()[3] = static_cast<uint8_t>(17 * i);
  }
  Arena arena(1 << 20);
  JoinedWeight joined(parts.front()->view, 2 * kExperts * kRows, kRows, arena, copy_bytes, kExperts);
  for (const auto& part : parts) joined.add(part->view, "part");
  for (int64_t row = 0; row < 2 * kExperts * kRows; ++row)
    ASSERT_EQ(kernels::reference::weight_row(joined.weight(), row),
              kernels::reference::weight_row(parts[static_cast<size_t>(row / kRows)]->view, row % kRows))
        << "row " << row;

  JoinedWeight other(parts.front()->view, 2 * kExperts * kRows, kRows, arena, copy_bytes, kExperts);
  other.add(parts[0]->view, "gate of expert 0");
  EXPECT_THAT(testing_support::error_message(ErrorCode::kUnsupported,
                                             [&] { other.add(parts[2]->view, "up of expert 0"); }),
              testing::HasSubstr("up of expert 0: input order differs from the expert's gate"));
  const auto plain = random_weight(kInt4Zeros, kRows, kColumns);
  EXPECT_THAT(
      testing_support::error_message(ErrorCode::kUnsupported, [&] { other.add(plain->view, "in order"); }),
      testing::HasSubstr("in order: int4"));
}

TEST(JoinedWeight, RejectsPartsOfAnotherFormat) {
  const auto error_text = [](const Format& one, const Format& other) {
    return testing_support::error_message(ErrorCode::kUnsupported, [&] {
      expect_joins({one, other}, {32, 32}, 32);
    });
  };
  EXPECT_THAT(error_text(kInt4, kReordered), testing::HasSubstr("reordered inputs"));
  EXPECT_THAT(error_text(kInt4, {WeightFormat::kInt4, 1, 64, DType::kF16}), testing::HasSubstr("float16"));
  EXPECT_THAT(error_text(kInt4, {WeightFormat::kInt4, 1, 32, DType::kBF16}),
              testing::HasSubstr("part: int4 weight[32, 256], groups of 1 x 32"));
  EXPECT_THAT(error_text(kMxFp4, kTensor), testing::HasSubstr("fp8 weight"));
}

// Checkpoints can store layers in several formats.
TEST(JoinedWeight, RejectsBlocksOfAnotherSize) {
  constexpr Format kLowBlocks{WeightFormat::kFp8, 64, 128, DType::kF32};
  for (const auto& [one, other] : {std::pair(kBlocks, kLowBlocks), std::pair(kLowBlocks, kBlocks)}) {
    EXPECT_THAT(testing_support::error_message(ErrorCode::kUnsupported,
                                               [&] {
                                                 expect_joins({one, other}, {256, 128}, 128);
                                               }),
                testing::HasSubstr("part: fp8 weight[128, 256], groups of " +
                                   std::to_string(other.group_outs) + " x 128"));
    const auto first = random_weight(one, 256, 256), second = random_weight(other, 128, 256);
    const std::vector<LoadedPart> parts{{first->view, {}}, {second->view, {}}};
    EXPECT_FALSE(can_join(parts));
  }
}

}  // namespace
}  // namespace attend
