// Bounds on numbers of keys that backends use in plans.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "attend/backends/cascade.h"
#include "attend/backends/plan_key.h"

namespace attend {
namespace {

using kernels::AttentionMask;

constexpr int32_t kUnlimited = std::numeric_limits<int32_t>::max();

// Number of keys of a request that its new tokens attend to, together.
int num_unmasked_keys(const AttentionMask& attention_mask, int seqlen_q, int seqlen_kv) {
  int begin = seqlen_kv, end = 0;
  for (int j = 0; j < seqlen_q; ++j) {
    const int p = attention_mask.causal ? seqlen_kv - seqlen_q + j : seqlen_kv - 1;
    begin = std::min(begin, kernels::first_unmasked(attention_mask, p));
    end = std::max(end, kernels::last_unmasked(attention_mask, p, seqlen_kv) + 1);
  }
  return std::max(0, end - begin);
}

std::vector<AttentionMask> all_masks() {
  std::vector<AttentionMask> all;
  for (const bool causal : {true, false})
    for (const int window_left : {-1, 0, 1, 5, 40})
      for (const int chunk : {0, 1, 4, 7, 40})
        for (const int window_right : {0, 2, kUnlimited})
          if (causal || window_right == 0)
            all.push_back(
                {.causal = causal, .window_left = window_left, .chunk = chunk, .window_right = window_right});
  return all;
}

TEST(MostVisibleKeys, BoundTheKeysThatARequestAttendsTo) {
  constexpr int kMaxLength = 30;
  for (const AttentionMask& attention_mask : all_masks())
    for (int seqlen_q = 1; seqlen_q <= 4; ++seqlen_q) {
      const int bound_for_any_length = max_unmasked_keys(attention_mask, seqlen_q, 0);
      const int bound = max_unmasked_keys(attention_mask, seqlen_q, kMaxLength);
      ASSERT_LE(bound, kMaxLength);
      int max_keys = 0;
      for (int seqlen_kv = seqlen_q; seqlen_kv <= kMaxLength; ++seqlen_kv)
        max_keys = std::max(max_keys, num_unmasked_keys(attention_mask, seqlen_q, seqlen_kv));
      ASSERT_GE(bound, max_keys) << "window " << attention_mask.window_left << ", chunk "
                                 << attention_mask.chunk;
      ASSERT_TRUE(bound_for_any_length == 0 || bound_for_any_length >= max_keys);
      // Without `causal` all new tokens attend to the same keys, which may be fewer than the bound.
      if (attention_mask.causal || seqlen_q == 1) {
        ASSERT_EQ(bound, max_keys);
      }
    }
}

TEST(MostVisibleKeys, EqualTheRequestLengthWithoutWindowsAndChunks) {
  EXPECT_EQ(max_unmasked_keys({}, 1, 5000), 5000);
  EXPECT_EQ(max_unmasked_keys({}, 1, 0), 0);
  EXPECT_EQ(max_unmasked_keys({.causal = false}, 8, 5000), 5000);
}

TEST(MostVisibleKeys, AreBoundedByWindowsAndChunksOfLongRequests) {
  EXPECT_EQ(max_unmasked_keys({.window_left = 1023}, 1, 5000), 1024);
  EXPECT_EQ(max_unmasked_keys({.window_left = 1023}, 8, 5000), 1031);
  EXPECT_EQ(max_unmasked_keys({.window_left = 1023}, 1, 900), 900);
  EXPECT_EQ(max_unmasked_keys({.window_left = 1023}, 1, 0), 1024);
  EXPECT_EQ(max_unmasked_keys({.chunk = 2048}, 1, 5000), 2048);
  EXPECT_EQ(max_unmasked_keys({.chunk = 2048}, 8, 0), 2055);
  EXPECT_EQ(max_unmasked_keys({.window_left = 100, .chunk = 2048}, 1, 5000), 101);
}

TEST(MostVisibleKeys, DoNotOverflow) {
  EXPECT_EQ(max_unmasked_keys({.window_left = 10, .window_right = kUnlimited}, 1, 5000), 11);
  EXPECT_EQ(max_unmasked_keys({.window_left = kUnlimited}, 100, 0), kUnlimited);
}

// Batch of three requests of at most 900 keys, of which the first `num_sharing` share 512.
int suffix_key_bound(int num_sharing, int max_seqlen_kv) {
  static const std::vector<int32_t> lengths{600, 700, 900}, own_lengths{88, 188, 388};
  const SharedKeys shared{.num_keys = 512, .num_reqs = num_sharing, .suffix_seqlen_kv = own_lengths};
  const kernels::QueryBatch own = suffix_queries(
      {.cu_seqlen_q = {}, .seqlen_kv = lengths, .max_seqlen_q = 1, .max_seqlen_kv = max_seqlen_kv}, shared);
  EXPECT_EQ(own.seqlen_kv.data(), own_lengths.data());
  return own.max_seqlen_kv;
}

TEST(SuffixQueries, BoundExcludesSharedKeysIfAllRequestsShareThem) {
  EXPECT_EQ(suffix_key_bound(3, 900), 388);
  EXPECT_EQ(suffix_key_bound(2, 900), 900);
  EXPECT_EQ(suffix_key_bound(3, 0), 0);  // bound unknown
  EXPECT_EQ(suffix_key_bound(3, 512), 1);
}

}  // namespace
}  // namespace attend
