// Virtual batches of chunked local attention, and Triton's split counts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "attend/kernels/metadata/metadata.h"
#include "tests/support/error_message.h"

namespace attend::kernels {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing_support::error_message;

std::vector<int32_t> row_of(const VirtualBatches& batches, size_t i) {
  const auto begin = batches.page_table.begin() + static_cast<std::ptrdiff_t>(i) * batches.pages_per_chunk;
  return {begin, begin + batches.pages_per_chunk};
}

TEST(LocalAttentionBatches, MatchTheWorkedExample) {
  const std::vector<int32_t> cu_seqlen_q{0, 4, 14, 19}, seqlen_kv{6, 17, 9};
  std::vector<int32_t> page_table(30);
  std::iota(page_table.begin(), page_table.end(), 0);
  const VirtualBatches batches = local_attention_batches(4, 2, cu_seqlen_q, seqlen_kv, page_table, 10);
  EXPECT_THAT(batches.seqlen_q, ElementsAre(2, 2, 1, 4, 4, 1, 4, 1));
  EXPECT_THAT(batches.cu_seqlen_q, ElementsAre(0, 2, 4, 5, 9, 13, 14, 18, 19));
  EXPECT_THAT(batches.seqlen_kv, ElementsAre(4, 2, 4, 4, 4, 1, 4, 1));
  EXPECT_THAT(batches.kv_start, ElementsAre(0, 4, 4, 8, 12, 16, 4, 8));
  EXPECT_EQ(batches.pages_per_chunk, 2);
  EXPECT_THAT(batches.page_table, ElementsAre(0, 1, 2, 3, 12, 13, 14, 15, 16, 17, 18, 19, 22, 23, 24, 25));
  EXPECT_LE(batches.seqlen_q.size(), static_cast<size_t>(max_virtual_batches(3, 19, 4)));
}

TEST(LocalAttentionBatches, NeverShortenTheChunkToTheLongestRequest) {
  const std::vector<int32_t> cu_seqlen_q{0, 36}, seqlen_kv{100}, page_table{5, 9};
  const VirtualBatches batches = local_attention_batches(8192, 64, cu_seqlen_q, seqlen_kv, page_table, 2);
  EXPECT_THAT(batches.seqlen_q, ElementsAre(36));
  EXPECT_THAT(batches.seqlen_kv, ElementsAre(100));
  EXPECT_THAT(batches.kv_start, ElementsAre(0));
  EXPECT_EQ(batches.pages_per_chunk, 128);
  std::vector<int32_t> expected(128, 0);
  expected[0] = 5;
  expected[1] = 9;
  EXPECT_EQ(row_of(batches, 0), expected);
}

TEST(LocalAttentionBatches, FirstTokenOfAChunkAttendsOnlyToItself) {
  const std::vector<int32_t> cu_seqlen_q{0, 1}, seqlen_kv{5}, page_table{10, 11, 12, 13, 14};
  const VirtualBatches batches = local_attention_batches(4, 1, cu_seqlen_q, seqlen_kv, page_table, 5);
  EXPECT_THAT(batches.seqlen_kv, ElementsAre(1));
  EXPECT_THAT(batches.kv_start, ElementsAre(4));
  EXPECT_EQ(row_of(batches, 0)[0], 14);
}

TEST(LocalAttentionBatches, LastTokenOfAChunkAttendsToTheWholeChunk) {
  const std::vector<int32_t> cu_seqlen_q{0, 1}, seqlen_kv{8}, page_table{3, 4};
  const VirtualBatches batches = local_attention_batches(4, 4, cu_seqlen_q, seqlen_kv, page_table, 2);
  EXPECT_THAT(batches.seqlen_kv, ElementsAre(4));
  EXPECT_THAT(batches.kv_start, ElementsAre(4));
  EXPECT_THAT(batches.page_table, ElementsAre(4));
}

TEST(LocalAttentionBatches, RequestWithoutNewTokensHasNone) {
  const std::vector<int32_t> cu_seqlen_q{0, 0, 2, 2}, seqlen_kv{6, 2, 0}, page_table(9);
  const VirtualBatches batches = local_attention_batches(4, 2, cu_seqlen_q, seqlen_kv, page_table, 3);
  EXPECT_THAT(batches.seqlen_q, ElementsAre(2));
  EXPECT_THAT(batches.cu_seqlen_q, ElementsAre(0, 2));
  const std::vector<int32_t> none{0};
  EXPECT_THAT(local_attention_batches(4, 2, none, {}, {}, 3).cu_seqlen_q, ElementsAre(0));
}

TEST(LocalAttentionBatches, NameMismatchedArguments) {
  const std::vector<int32_t> cu_seqlen_q{0, 4}, seqlen_kv{6}, short_kv{3}, falling{0, -1}, late{1, 4},
      page_table{1, 2, 3};
  const auto error_text = [&](int chunk, int page_size, const std::vector<int32_t>& cu,
                              const std::vector<int32_t>& kv, int width) {
    return error_message(ErrorCode::kInvalidArgument,
                         [&] { local_attention_batches(chunk, page_size, cu, kv, page_table, width); });
  };
  EXPECT_EQ(error_text(6, 4, cu_seqlen_q, seqlen_kv, 3),
            "chunk 6: local_attention_batches needs a multiple of page_size 4");
  EXPECT_THAT(error_text(0, 2, cu_seqlen_q, seqlen_kv, 3), HasSubstr("chunk 0"));
  EXPECT_THAT(error_text(4, 3, cu_seqlen_q, seqlen_kv, 3), HasSubstr("page_size 3"));
  EXPECT_EQ(error_text(4, 2, cu_seqlen_q, short_kv, 3),
            "seqlen_kv 3 of request 0: local_attention_batches needs at least its 4 new tokens");
  EXPECT_EQ(error_text(4, 2, cu_seqlen_q, seqlen_kv, 2),
            "page_table_width 2: local_attention_batches needs 3 pages for request 0");
  EXPECT_EQ(error_text(4, 2, cu_seqlen_q, seqlen_kv, 4),
            "page_table of 3 entries: local_attention_batches needs 1 x 4");
  EXPECT_EQ(error_text(4, 2, falling, seqlen_kv, 3),
            "cu_seqlen_q falls from 0 to -1 at request 0: local_attention_batches needs ascending values");
  EXPECT_EQ(error_text(4, 2, late, seqlen_kv, 3),
            "cu_seqlen_q of 2 entries: local_attention_batches needs 2, the first one 0");
  EXPECT_EQ(error_text(4, 2, cu_seqlen_q, {6, 6}, 1),
            "cu_seqlen_q of 2 entries: local_attention_batches needs 3, the first one 0");
}

TEST(MaxVirtualBatches, IsBoundedByTheNumberOfTokens) {
  EXPECT_EQ(max_virtual_batches(3, 19, 4), 11);
  EXPECT_EQ(max_virtual_batches(64, 64, 8192), 64);
  EXPECT_EQ(max_virtual_batches(1, 8192, 8192), 3);
  EXPECT_EQ(max_virtual_batches(4, 0, 4), 0);
  EXPECT_THROW(max_virtual_batches(1, 1, 0), Error);
}

TEST(NumKvSplits, MatchTheWorkedExamples) {
  const auto splits = [](std::vector<int32_t> seqlen_kv, int num_q_heads, int num_kv_heads, int max_splits) {
    return num_kv_splits(seqlen_kv, num_q_heads, num_kv_heads, max_splits, 132);
  };
  EXPECT_THAT(splits({4096, 1024, 128}, 32, 8, 8), ElementsAre(8, 2, 1));
  EXPECT_THAT(splits({4096}, 32, 8, 8), ElementsAre(8));
  EXPECT_EQ(splits(std::vector<int32_t>(64, 100), 32, 8, 8), std::vector<int32_t>(64, 1));
  EXPECT_THAT(splits({1000, 900}, 128, 1, 16), ElementsAre(16, 15));
}

// 64 requests of 8 head tiles target 132 / 512 splits per SM, so one split, and rule 1 applies.
TEST(NumKvSplits, LengthsWithinAFifthCountAsEqual) {
  std::vector<int32_t> seqlen_kv(64, 100);
  seqlen_kv[0] = 81;
  EXPECT_EQ(num_kv_splits(seqlen_kv, 32, 8, 8, 132), std::vector<int32_t>(64, 1));
  seqlen_kv[0] = 80;
  EXPECT_EQ(num_kv_splits(seqlen_kv, 32, 8, 8, 132), std::vector<int32_t>(64, 2));
}

// 32 requests of 128 / 16 head tiles: 132 SMs x log2(1000 / 64) = 523 splits over 256 tiles is 3.
TEST(NumKvSplits, SixteenHeadsOfAGroupShareATile) {
  EXPECT_EQ(num_kv_splits(std::vector<int32_t>(32, 1000), 128, 1, 16, 132), std::vector<int32_t>(32, 3));
}

TEST(NumKvSplits, ShortKvFillsTheSms) {
  EXPECT_THAT(num_kv_splits(std::vector<int32_t>{64}, 32, 8, 32, 132), ElementsAre(16));
}

TEST(NumKvSplits, DependOnTheRestOfTheBatch) {
  // Deterministic steps do not use these counts because of this dependency.
  const std::vector<int32_t> single{1024}, both{1024, 4096};
  EXPECT_NE(num_kv_splits(single, 32, 32, 8, 132)[0], num_kv_splits(both, 32, 32, 8, 132)[0]);
}

TEST(NumKvSplits, NameUnsupportedArguments) {
  const std::vector<int32_t> seqlen_kv{100, 0}, fine{100};
  EXPECT_THAT(num_kv_splits({}, 32, 8, 8, 132), IsEmpty());
  EXPECT_EQ(error_message(ErrorCode::kInvalidArgument, [&] { num_kv_splits(seqlen_kv, 32, 8, 8, 132); }),
            "seqlen_kv 0 of request 1: num_kv_splits needs at least 1, also for padding requests");
  EXPECT_EQ(error_message(ErrorCode::kInvalidArgument, [&] { num_kv_splits(fine, 30, 8, 8, 132); }),
            "num_q_heads 30: num_kv_splits needs a multiple of num_kv_heads 8");
  EXPECT_EQ(error_message(ErrorCode::kInvalidArgument, [&] { num_kv_splits(fine, 32, 8, 0, 132); }),
            "max_splits 0, num_sms 132: num_kv_splits needs at least 1");
}

}  // namespace
}  // namespace attend::kernels
