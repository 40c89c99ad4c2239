// Reference of merge, compared with the documentation's example and with attention over all keys.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "attend/kernels/attention/attention.h"
#include "tests/kernels/reference/tiny_attention.h"

namespace attend::conformance {
namespace {

using kernels::kEmptyLse;

// Two parts of one row of eight equal elements.
struct TwoParts {
  TwoParts(float out_a, float lse_a, float out_b, float lse_b) : lse{lse_a, lse_b} {
    std::fill_n(parts, 8, out_a);
    std::fill_n(parts + 8, 8, out_b);
  }

  void merge() {
    const auto row = [](float* data) { return TensorView::contiguous(data, DType::kF32, {1, 1, 8}); };
    const auto one = [](float* data) { return TensorView::contiguous(data, DType::kF32, {1, 1}); };
    kernels::reference::merge({.out_a = row(parts),
                               .out_b = row(parts + 8),
                               .lse_a = one(lse),
                               .lse_b = one(lse + 1),
                               .out = row(merged),
                               .lse = one(&merged_lse)});
  }

  void merge_splits(View<const float> sinks) {
    kernels::reference::merge_splits({.partial_out = TensorView::contiguous(parts, DType::kF32, {2, 1, 1, 8}),
                                      .partial_lse = TensorView::contiguous(lse, DType::kF32, {2, 1, 1}),
                                      .sinks = sinks,
                                      .out = TensorView::contiguous(merged, DType::kF32, {1, 1, 8}),
                                      .lse = TensorView::contiguous(&merged_lse, DType::kF32, {1, 1})});
  }

  float parts[16], lse[2];
  float merged[8] = {}, merged_lse = 0.0f;
};

TEST(ReferenceMerge, MatchesTheDocumentedExample) {
  TwoParts two(1.0f, 2.0f, 3.0f, 1.0f);
  two.merge();
  EXPECT_NEAR(two.merged[7], 1.53788, 5e-6);
  EXPECT_NEAR(two.merged_lse, 2.31326, 5e-6);
}

TEST(ReferenceMerge, SplitsMatchTheDocumentedExample) {
  TwoParts two(1.0f, 2.0f, 3.0f, 1.0f);
  two.merge_splits({});
  EXPECT_NEAR(two.merged[7], 1.53788, 5e-6);
  EXPECT_NEAR(two.merged_lse, 2.31326, 5e-6);
}

TEST(ReferenceMerge, ReturnsTheOtherPartWhenOneIsEmpty) {
  for (float mark : {kEmptyLse, -kEmptyLse}) {
    TwoParts two(NAN, mark, 3.0f, 1.0f);
    two.merge();
    EXPECT_EQ(two.merged[0], 3.0f);
    EXPECT_EQ(two.merged_lse, 1.0f);
  }
}

TEST(ReferenceMerge, KeepsTwoEmptyRowsEmpty) {
  TwoParts two(NAN, kEmptyLse, NAN, kEmptyLse);
  two.merge();
  EXPECT_EQ(two.merged[0], 0.0f);
  EXPECT_EQ(two.merged_lse, kEmptyLse);
  const std::vector<float> sinks = {2.0f};
  two.merge_splits(sinks);
  EXPECT_EQ(two.merged[0], 0.0f);
  EXPECT_EQ(two.merged_lse, kEmptyLse);
}

TEST(ReferenceMerge, IsSafeForLargeLse) {
  TwoParts two(1.0f, 5000.0f, 3.0f, 5000.0f);
  two.merge();
  EXPECT_EQ(two.merged[0], 2.0f);
  EXPECT_FLOAT_EQ(two.merged_lse, 5000.0f + std::log(2.0f));
}

TEST(ReferenceMerge, AddsTheSinkOnceAfterAllSplits) {
  // Two parts of weight 1, and a sink of weight 2.
  TwoParts two(4.0f, 0.0f, 12.0f, 0.0f);
  const std::vector<float> sinks = {std::log(2.0f)};
  two.merge_splits(sinks);
  EXPECT_FLOAT_EQ(two.merged[0], 4.0f);
  EXPECT_FLOAT_EQ(two.merged_lse, std::log(2.0f));
}

TEST(ReferenceMerge, MergedRangesOfKeysMatchAttentionOverAllKeys) {
  const std::vector<float> scores = {0.5f, -1.0f, 2.0f, 0.0f, 1.5f}, values = {3.0f, -2.0f, 7.0f, 1.0f, 4.0f};
  const auto whole = TinyAttention(1, scores, values).run();
  const auto head = TinyAttention(1, {0.5f, -1.0f}, {3.0f, -2.0f}).run();
  const auto tail = TinyAttention(1, {2.0f, 0.0f, 1.5f}, {7.0f, 1.0f, 4.0f}).run();
  TwoParts two(head.out[0], head.lse[0], tail.out[0], tail.lse[0]);
  two.merge();
  EXPECT_FLOAT_EQ(two.merged[0], whole.out[0]);
  EXPECT_FLOAT_EQ(two.merged_lse, whole.lse[0]);
}

}  // namespace
}  // namespace attend::conformance
