#include "attend/kernels/attention/unmasked_keys.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "attend/kernels/attention/reference_mask.h"

namespace attend::kernels {
namespace {

struct Batch {
  std::vector<int32_t> cu_seqlen_q{0, 3, 73};
  std::vector<int32_t> seqlen_kv{2, 150};  // the first request has more queries than keys
  std::vector<uint64_t> tree;
  std::vector<int32_t> positions;

  QueryBatch view() const {
    return {.cu_seqlen_q = cu_seqlen_q,
            .seqlen_kv = seqlen_kv,
            .max_seqlen_q = 70,
            .tree_mask = tree,
            .tree_mask_words = tree.empty() ? 0 : 2,
            .positions = positions};
  }
};

void expect_words_agree_with_reference(const Batch& batch, const AttentionMask& attention_mask) {
  const QueryBatch view = batch.view();
  for (int request = 0; request < 2; ++request)
    for (int j = 0; j < batch.cu_seqlen_q[static_cast<size_t>(request) + 1] -
                            batch.cu_seqlen_q[static_cast<size_t>(request)];
         ++j) {
      const UnmaskedKeys keys = visible_keys(view, attention_mask, request, j);
      const reference::Query query = reference::make_query(view, attention_mask, request, j);
      for (int32_t k = 0; k < batch.seqlen_kv[static_cast<size_t>(request)]; ++k) {
        const bool in_word = unmasked_word(keys, k / 64 * 64) >> (k % 64) & 1;
        ASSERT_EQ(in_word, reference::sees(view, attention_mask, query, k))
            << "request " << request << " query " << j << " key " << k;
        if (in_word) {
          ASSERT_TRUE(keys.begin <= k && k < keys.last_end());
        }
      }
      const auto seqlen_kv = batch.seqlen_kv[static_cast<size_t>(request)];
      EXPECT_EQ(unmasked_word(keys, seqlen_kv), 0u) << "keys beyond the last";
    }
}

const std::vector<AttentionMask> kMasks = {
    {},
    {.causal = false},
    {.window_left = 0},
    {.window_left = 63},
    {.window_left = 64},
    {.chunk = 1},
    {.chunk = 64},
    {.chunk = 100},
    {.window_left = 20, .chunk = 50},
    {.causal = false, .window_left = 5},
    {.window_right = 2},
    {.window_left = 3, .window_right = 70},
    {.window_left = 9, .window_right = INT32_MAX},
    {.chunk = 50, .window_right = 7},
    {.window_left = 60, .chunk = 64, .window_right = INT32_MAX},
};

TEST(UnmaskedKeys, MatchTheReferenceForEveryKey) {
  for (const AttentionMask& attention_mask : kMasks)
    expect_words_agree_with_reference(Batch{}, attention_mask);
}

TEST(UnmaskedKeys, MatchTheReferenceUnderTreeMasks) {
  Batch batch;
  batch.tree.resize(73 * 2);
  for (size_t i = 0; i < batch.tree.size(); ++i) batch.tree[i] = 0x9e3779b97f4a7c15u * (i + 1);
  for (int token = 0; token < 73; ++token)
    batch.positions.push_back(token < 3 ? token - 1 : 80 + (token - 3) / 2);
  for (const AttentionMask& attention_mask : kMasks)
    if (attention_mask.causal) expect_words_agree_with_reference(batch, attention_mask);
}

TEST(UnmaskedKeys, AWindowToTheRightEndsAtItsChunkAndAtTheLastKey) {
  const Batch batch;  // query j of request 1 is at position 80 + j
  const auto last = [&](const AttentionMask& attention_mask, int request, int j) {
    return visible_keys(batch.view(), attention_mask, request, j).end - 1;
  };
  EXPECT_EQ(last({.window_right = 5}, 1, 0), 85);
  EXPECT_EQ(last({.window_right = 5}, 1, 69), 149);
  EXPECT_EQ(last({.window_right = INT32_MAX}, 1, 0), 149);
  EXPECT_EQ(last({.chunk = 50, .window_right = 7}, 1, 15), 99);
  EXPECT_EQ(last({.chunk = 50, .window_right = INT32_MAX}, 1, 20), 149);
  // Query 0 of request 0 is before the first key.
  EXPECT_EQ(last({.window_right = 2}, 0, 0), 1);
  EXPECT_LT(last({.chunk = 50, .window_right = 2}, 0, 0), 0);
}

TEST(UnmaskedKeys, RangeBitsCoverWholeAndEmptyWords) {
  EXPECT_EQ(range_bits(0, 64, 0), ~uint64_t{0});
  EXPECT_EQ(range_bits(64, 128, 0), 0u);
  EXPECT_EQ(range_bits(65, 67, 64), 0b110u);
  EXPECT_EQ(range_bits(10, 10, 0), 0u);
  EXPECT_EQ(range_bits(-5, 1000, 128), ~uint64_t{0});
}

}  // namespace
}  // namespace attend::kernels
