// Keys that a query attends to in the reference. With equal scores and positions as values, the output is the
// mean position of visible keys, and e^LSE their number.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "attend/kernels/metadata/metadata.h"
#include "tests/kernels/conformance/cases/random.h"
#include "tests/kernels/reference/tiny_attention.h"

namespace attend::conformance {
namespace {

using kernels::kEmptyLse;
using ::testing::ElementsAre;
using ::testing::FloatEq;

class EqualScores : public TinyAttention {
 public:
  EqualScores(int seqlen_q, int seqlen_kv)
      : TinyAttention(seqlen_q, equal_scores(seqlen_kv), positions_as_values(seqlen_kv)) {}
};

::testing::Matcher<float> num_keys(int count) { return FloatEq(std::log(static_cast<float>(count))); }

TEST(ReferenceVisibility, IsCausal) {
  const auto result = EqualScores(3, 5).run();
  EXPECT_THAT(result.out, ElementsAre(FloatEq(1.0f), FloatEq(1.5f), FloatEq(2.0f)));
  EXPECT_THAT(result.lse, ElementsAre(num_keys(3), num_keys(4), num_keys(5)));
}

TEST(ReferenceVisibility, MasksAllKeysForQueriesBeforePositionZero) {
  const auto result = EqualScores(3, 1).run();
  EXPECT_THAT(result.out, ElementsAre(0.0f, 0.0f, 0.0f));
  EXPECT_THAT(result.lse, ElementsAre(kEmptyLse, kEmptyLse, num_keys(1)));
}

TEST(ReferenceVisibility, LeavesPaddingTokensEmpty) {
  EqualScores tiny(3, 2);
  const std::vector<int32_t> cu_seqlen_q = {0, 1};
  tiny.args.batch.cu_seqlen_q = cu_seqlen_q;
  const auto result = tiny.run();
  EXPECT_THAT(result.out, ElementsAre(0.5f, 0.0f, 0.0f));
  EXPECT_THAT(result.lse, ElementsAre(num_keys(2), kEmptyLse, kEmptyLse));
}

TEST(ReferenceVisibility, WindowIncludesTheQueryItself) {
  EqualScores tiny(3, 7);
  tiny.args.attention_mask.window_left = 3;  // a sliding window of 4 keys
  const auto result = tiny.run();
  EXPECT_THAT(result.out, ElementsAre(FloatEq(2.5f), FloatEq(3.5f), FloatEq(4.5f)));
  EXPECT_THAT(result.lse, ElementsAre(num_keys(4), num_keys(4), num_keys(4)));
}

// Example of the window conventions: sliding_window 4096 with 5000 keys attends to keys 904 to 4999.
TEST(ReferenceVisibility, DecodeWithAWindowOf4096AttendsToKeys904To4999) {
  EqualScores tiny(1, 5000);
  tiny.args.attention_mask.window_left = 4095;
  const auto result = tiny.run();
  EXPECT_THAT(result.out, ElementsAre(FloatEq((904.0f + 4999.0f) / 2.0f)));
  EXPECT_THAT(result.lse, ElementsAre(num_keys(4096)));
}

TEST(ReferenceVisibility, WindowOfOneKeyContainsTheQuery) {
  EqualScores tiny(2, 4);
  tiny.args.attention_mask.window_left = 0;
  EXPECT_THAT(tiny.run().out, ElementsAre(2.0f, 3.0f));
}

TEST(ReferenceVisibility, RestartsAtEachChunk) {
  EqualScores tiny(6, 9);
  tiny.args.attention_mask.chunk = 4;
  const auto result = tiny.run();
  // Positions 3 | 4 5 6 7 | 8.
  EXPECT_THAT(result.out,
              ElementsAre(FloatEq(1.5f), 4.0f, FloatEq(4.5f), FloatEq(5.0f), FloatEq(5.5f), 8.0f));
  EXPECT_THAT(result.lse,
              ElementsAre(num_keys(4), num_keys(1), num_keys(2), num_keys(3), num_keys(4), num_keys(1)));
}

TEST(ReferenceVisibility, UsesTheNarrowerOfWindowAndChunk) {
  EqualScores tiny(6, 9);
  tiny.args.attention_mask = {.causal = true, .window_left = 1, .chunk = 4};
  EXPECT_THAT(tiny.run().out,
              ElementsAre(FloatEq(2.5f), 4.0f, FloatEq(4.5f), FloatEq(5.5f), FloatEq(6.5f), 8.0f));
}

TEST(ReferenceVisibility, PlacesEveryQueryAtTheLastKeyWithoutCausality) {
  EqualScores tiny(2, 5);
  tiny.args.attention_mask.causal = false;
  EXPECT_THAT(tiny.run().out, ElementsAre(FloatEq(2.0f), FloatEq(2.0f)));
  tiny.args.attention_mask.window_left = 1;
  EXPECT_THAT(tiny.run().out, ElementsAre(FloatEq(3.5f), FloatEq(3.5f)));
  tiny.args.attention_mask = {.causal = false, .window_left = -1, .chunk = 4};
  EXPECT_THAT(tiny.run().out, ElementsAre(4.0f, 4.0f));
}

// The documentation's tree of three tokens, two of them children of the first: mask rows 100, 110, 101.
class SmallTree : public EqualScores {
 public:
  // Two prefix keys. The new tokens are keys 2, 3, 4 at positions 2, 3, 3.
  SmallTree() : EqualScores(3, 5) {
    args.batch.tree_mask = mask_;
    args.batch.tree_mask_words = 1;
    args.batch.positions = positions_;
  }

 private:
  std::vector<uint64_t> mask_{0b001, 0b011, 0b101};
  std::vector<int32_t> positions_{2, 3, 3};
};

TEST(ReferenceVisibility, TreeTokensAttendToThePrefixAndTheirAncestors) {
  const auto result = SmallTree().run();
  EXPECT_THAT(result.out, ElementsAre(FloatEq(3.0f / 3), FloatEq(6.0f / 4), FloatEq(7.0f / 4)));
  EXPECT_THAT(result.lse, ElementsAre(num_keys(3), num_keys(4), num_keys(4)));
}

TEST(ReferenceVisibility, MeasuresWindowsOfTreesInPositions) {
  SmallTree tiny;
  tiny.args.attention_mask.window_left = 1;
  // The siblings are at position 3 and attend to positions 2 and 3: key 2 and their own key.
  EXPECT_THAT(tiny.run().out, ElementsAre(FloatEq(3.0f / 2), FloatEq(5.0f / 2), FloatEq(6.0f / 2)));
}

TEST(ReferenceVisibility, MeasuresChunksOfTreesInPositions) {
  SmallTree tiny;
  tiny.args.attention_mask.chunk = 3;
  // Position 2 ends the first chunk; position 3 starts the second.
  EXPECT_THAT(tiny.run().out, ElementsAre(FloatEq(3.0f / 3), 3.0f, 4.0f));
}

TEST(ReferenceVisibility, ReadsTreeBitsBeyondTheFirstWord) {
  constexpr int kNew = 70;
  EqualScores tiny(kNew, kNew);
  std::vector<uint64_t> mask(2 * kNew, 0);
  std::vector<int32_t> positions(kNew, 0);
  // All tokens are roots. The last one also attends to its neighbors across the word boundary.
  for (size_t j = 0; j < kNew; ++j) mask[2 * j + j / 64] |= uint64_t{1} << (j % 64);
  mask[2 * 69] |= uint64_t{1} << 63;
  mask[2 * 69 + 1] |= 1;
  positions.back() = 2;
  tiny.args.batch.tree_mask = mask;
  tiny.args.batch.tree_mask_words = 2;
  tiny.args.batch.positions = positions;
  const auto result = tiny.run();
  EXPECT_EQ(result.out[64], 64.0f);
  EXPECT_FLOAT_EQ(result.out[69], (63.0f + 64.0f + 69.0f) / 3.0f);
}

// The documentation's example of chunked attention (chunk 4, pages of 2): the chunk rule equals causal
// attention over the virtual batches.
TEST(ReferenceVisibility, ChunksMatchVirtualBatches) {
  constexpr int kDim = 8, kPageSize = 2, kTableWidth = 10;
  const std::vector<int32_t> cu_seqlen_q = {0, 4, 14, 19}, seqlen_kv = {6, 17, 9};
  std::vector<int32_t> page_table(3 * kTableWidth);
  for (size_t i = 0; i < page_table.size(); ++i) page_table[i] = static_cast<int32_t>(i);
  Random random(34);
  std::vector<float> q(19 * kDim), k(30 * kPageSize * kDim), v(k.size()), out(q.size()),
      out_virtual(q.size());
  for (auto* values : {&q, &k, &v})
    for (float& value : *values) value = random.normal();

  kernels::AttentionArgs args;
  args.q = TensorView::contiguous(q.data(), DType::kF32, {19, 1, kDim});
  args.out = TensorView::contiguous(out.data(), DType::kF32, {19, 1, kDim});
  args.kv.k = TensorView::contiguous(k.data(), DType::kF32, {30, kPageSize, 1, kDim});
  args.kv.v = TensorView::contiguous(v.data(), DType::kF32, {30, kPageSize, 1, kDim});
  args.kv.index = {.kind = kernels::KvIndexKind::kPageTable,
                   .page_size = kPageSize,
                   .table = page_table.data(),
                   .table_stride = kTableWidth};
  args.batch.cu_seqlen_q = cu_seqlen_q;
  args.batch.seqlen_kv = seqlen_kv;
  args.batch.max_seqlen_q = 10;
  args.attention_mask.chunk = 4;
  kernels::reference::attention(args);

  const auto batches =
      kernels::local_attention_batches(4, kPageSize, cu_seqlen_q, seqlen_kv, page_table, kTableWidth);
  ASSERT_THAT(batches.seqlen_q, ElementsAre(2, 2, 1, 4, 4, 1, 4, 1));
  args.out = TensorView::contiguous(out_virtual.data(), DType::kF32, {19, 1, kDim});
  args.kv.index.table = batches.page_table.data();
  args.kv.index.table_stride = batches.pages_per_chunk;
  args.batch.cu_seqlen_q = batches.cu_seqlen_q;
  args.batch.seqlen_kv = batches.seqlen_kv;
  args.attention_mask.chunk = 0;
  kernels::reference::attention(args);
  EXPECT_EQ(out, out_virtual);
}

}  // namespace
}  // namespace attend::conformance
