// Tables of adapters for GPUs, written to host memory and read there; and the choice of tiles and grids.
#include "attend/kernels/gemm/cuda/low_rank_table.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "attend/kernels/gemm/token_groups.h"
#include "tests/kernels/dense/test_tensor.h"
#include "tests/support/error_message.h"

namespace attend::kernels::cuda {
namespace {

using testing_support::error_message;
using testing_support::kWeightTypes;
using testing_support::TestTensor;

double element(const void* data, DType dtype, int64_t i) {
  double value = 0.0;
  visit_float_dtype(dtype, [&]<class T>(TypeTag<T>) {
    value = static_cast<double>(static_cast<float>(static_cast<const T*>(data)[i]));
  });
  return value;
}

// Checks a padded matrix against a transposed one.
void expect_padded(const void* data, DType dtype, int64_t stride, int64_t num_rows, const TestTensor& from) {
  const int64_t rows = from.view().shape[1], columns = from.view().shape[0];
  for (int64_t row = 0; row < num_rows; ++row)
    for (int64_t column = 0; column < stride; ++column)
      ASSERT_EQ(element(data, dtype, row * stride + column),
                row < rows && column < columns ? from.at(column * rows + row) : 0.0)
          << "row " << row << ", column " << column;
}

TEST(LowRankTable, HasTheTermsOfEachLayerInTheOrderOfFiles) {
  for (const DType dtype : kWeightTypes) {
    SCOPED_TRACE(to_string(dtype));
    // A layer without terms, and one with two of different ranks.
    const TestTensor a = TestTensor::random({70, 16}, dtype, 1), b = TestTensor::random({16, 40}, dtype, 2),
                     other_a = TestTensor::random({70, 33}, dtype, 3),
                     other_b = TestTensor::random({33, 5}, dtype, 4);
    const LowRankAdapter adapter{.layers = {{},
                                            {{.a = a, .b = b, .scale = 0.5f, .first_out = 0},
                                             {.a = other_a, .b = other_b, .scale = -2.0f, .first_out = 48}}},
                                 .max_rank = 49};
    const LowRankTable table(adapter, dtype);
    std::vector<uint64_t> memory(static_cast<size_t>(table.num_bytes()) / sizeof(uint64_t));
    table.write(reinterpret_cast<std::byte*>(memory.data()), reinterpret_cast<uintptr_t>(memory.data()));
    const auto* const layers = reinterpret_cast<const LowRankLayerEntry*>(memory.data());
    EXPECT_EQ(layers[0].layer.num_terms, 0);
    EXPECT_EQ(layers[0].layer.rank, 0);
    ASSERT_EQ(layers[1].layer.num_terms, 2);
    EXPECT_EQ(layers[1].layer.rank, 16 + 48);
    EXPECT_EQ(layers[1].layer.in_stride, 96);
    EXPECT_EQ(layers[1].terms[2].num_outputs, 0);
    EXPECT_EQ(layers[2].layer.rank, 0);
    EXPECT_EQ(table.row_floats(), kRowHeader + 16 + 48);
    const LowRankTermEntry *const first = &layers[1].terms[0], *const second = &layers[1].terms[1];
    EXPECT_EQ(first->scale, 0.5f);
    EXPECT_EQ(second->scale, -2.0f);
    EXPECT_EQ(second->first_out, 48);
    EXPECT_EQ(second->first_rank, 16);
    EXPECT_EQ(second->num_outputs, 5);
    expect_padded(layers[1].layer.a, dtype, 96, 16, a);
    const auto rows = static_cast<int64_t>(16 * 96 * size_of(dtype));
    expect_padded(static_cast<const std::byte*>(layers[1].layer.a) + rows, dtype, 96, 48, other_a);
    expect_padded(first->b, dtype, 16, 64, b);
    expect_padded(second->b, dtype, 48, 32, other_b);
    for (const void* const start : {layers[1].layer.a, first->b, second->b})
      EXPECT_EQ(reinterpret_cast<uintptr_t>(start) % 16, reinterpret_cast<uintptr_t>(memory.data()) % 16);
  }
}

TEST(LowRankTable, RoundsValuesOfFilesToTheDtypeOfActivations) {
  const TestTensor a = TestTensor::random({32, 16}, DType::kF32, 1),
                   b = TestTensor::random({16, 32}, DType::kF32, 2);
  const LowRankAdapter adapter{.layers = {{{.a = a, .b = b}}}, .max_rank = 16};
  const LowRankTable table(adapter, DType::kBF16);
  std::vector<uint64_t> memory(static_cast<size_t>(table.num_bytes()) / sizeof(uint64_t));
  table.write(reinterpret_cast<std::byte*>(memory.data()), reinterpret_cast<uintptr_t>(memory.data()));
  const LowRankLayer& layer = reinterpret_cast<const LowRankLayerEntry*>(memory.data())->layer;
  for (int64_t i = 0; i < 16; ++i)
    EXPECT_EQ(element(layer.a, DType::kBF16, i * 32 + 5),
              static_cast<double>(static_cast<float>(BF16(static_cast<float>(a.at(5 * 16 + i))))));
}

TEST(LowRankTable, NeedsRowsForTheBlocksOfTheWidestLayer) {
  const TestTensor a({1400, 16}, DType::kF32), b({16, 32}, DType::kF32), wide({512, 200}, DType::kF32),
      wide_b({200, 32}, DType::kF32);
  const LowRankAdapter narrow{.layers = {{{.a = a, .b = b}}}, .max_rank = 16};
  EXPECT_EQ(LowRankTable(narrow, DType::kF16).row_floats(), kRowHeader + 3 * 16);
  const LowRankAdapter both{.layers = {{{.a = a, .b = b}}, {{.a = wide, .b = wide_b}}}, .max_rank = 200};
  EXPECT_EQ(LowRankTable(both, DType::kF16).row_floats(), kRowHeader + 208);
  EXPECT_GT(LowRankTable(LowRankAdapter{}, DType::kF16).num_bytes(), 0);
}

TEST(LowRankTable, RejectsMoreTermsOfALayerThanAnEntryHas) {
  const TestTensor a({8, 1}, DType::kF32), b({1, 4}, DType::kF32);
  const LowRankTerm term{.a = a, .b = b};
  LowRankAdapter adapter{.layers = {std::vector<LowRankTerm>(kMaxTerms, term)}, .max_rank = kMaxTerms};
  EXPECT_NO_THROW(LowRankTable(adapter, DType::kF16));
  adapter.layers[0].push_back(term);
  const std::string message =
      error_message(ErrorCode::kUnsupported, [&] { LowRankTable(adapter, DType::kF16); });
  EXPECT_NE(message.find("9 terms"), std::string::npos);
}

TEST(ChooseLowRankTiles, SharesLoadsAmongTheTokensOfPromptsOnly) {
  EXPECT_EQ(choose_segment_tokens(8192, /*in_graph=*/false), kLargeSegment);
  EXPECT_EQ(choose_segment_tokens(8192, /*in_graph=*/true), kSmallSegment);
  EXPECT_EQ(choose_segment_tokens(100, /*in_graph=*/false), kSmallSegment);
}

TEST(ChooseLowRankTiles, HasACtaForEachPartUnlessAGraphHasTooMany) {
  const auto arrays = [](int num_segments, int segment_tokens) {
    return LowRankArrays{.max_segments = num_segments, .segment_tokens = segment_tokens};
  };
  EXPECT_EQ(choose_shrink_grid(4096, arrays(1, kSmallSegment), 132).x, 8);
  EXPECT_EQ(choose_shrink_grid(4097, arrays(2, kSmallSegment), 132).x, 18);
  EXPECT_EQ(choose_shrink_grid(4096, arrays(256, kSmallSegment), 132).x, 3 * 132);
  EXPECT_EQ(choose_shrink_grid(4096, arrays(256, kLargeSegment), 132).x, 256 * 8);
  EXPECT_EQ(choose_expand_grid(6144, arrays(1, kSmallSegment), 132).x, 6144 / 256 + 2);
  EXPECT_EQ(choose_expand_grid(6144, arrays(1, kSmallSegment), 132).y, 1);
  EXPECT_EQ(choose_expand_grid(6144, arrays(256, kSmallSegment), 132).y, 8 * 132 / 26);
  EXPECT_EQ(choose_expand_grid(6144, arrays(256, kLargeSegment), 132).y, 256);
  EXPECT_EQ(choose_gate_grid(14336, arrays(1, kSmallSegment), 132).x, 112);
  EXPECT_EQ(choose_gate_grid(14336, arrays(64, kSmallSegment), 132).y, 8 * 132 / 112);
  EXPECT_EQ(choose_expand_grid(1 << 20, arrays(256, kSmallSegment), 132).y, 1);
}

TEST(TokenGroups, JoinRequestsWithTheSameAdapter) {
  const LowRankAdapter adapters[2];
  const AdapterRun runs[] = {{0, 1, &adapters[1]}, {1, 1, &adapters[0]}, {3, 2, &adapters[1]}};
  TokenGroups groups;
  groups.build(runs, 2);
  ASSERT_EQ(groups.groups.size(), 3u);
  const auto tokens_of = [&](const LowRankAdapter& adapter) {
    std::vector<int32_t> tokens;
    for (const TokenGroup& group : groups.groups) {
      EXPECT_LE(group.count, 2);
      if (group.adapter != &adapter) continue;
      const View<const int32_t> of = groups.tokens_of(group);
      tokens.insert(tokens.end(), of.begin(), of.end());
    }
    return tokens;
  };
  EXPECT_EQ(tokens_of(adapters[0]), std::vector<int32_t>{1});
  EXPECT_EQ(tokens_of(adapters[1]), (std::vector<int32_t>{0, 3, 4}));
  groups.add_others(8, 2);
  ASSERT_EQ(groups.groups.size(), 5u);
  EXPECT_EQ(groups.groups[3].adapter, nullptr);
  const View<const int32_t> others = groups.tokens_of(groups.groups[3]),
                            last = groups.tokens_of(groups.groups[4]);
  EXPECT_EQ(std::vector(others.begin(), others.end()), (std::vector<int32_t>{2, 5}));
  EXPECT_EQ(std::vector(last.begin(), last.end()), (std::vector<int32_t>{6, 7}));
}

}  // namespace
}  // namespace attend::kernels::cuda
