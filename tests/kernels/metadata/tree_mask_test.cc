// Tree masks of other layouts, and the tree half of cascade attention.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "attend/kernels/metadata/metadata.h"
#include "tests/support/error_message.h"

namespace attend::kernels {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using testing_support::error_message;

std::vector<uint64_t> pack(TreeMaskLayout layout, const std::vector<uint8_t>& mask,
                           const std::vector<int32_t>& cu_seqlen_q, const std::vector<int32_t>& seqlen_kv,
                           int tree_mask_words = 1) {
  std::vector<uint64_t> words(static_cast<size_t>(cu_seqlen_q.back() * tree_mask_words), ~uint64_t{0});
  pack_tree_mask(layout, mask, cu_seqlen_q, seqlen_kv, tree_mask_words, words);
  return words;
}

// Two drafts each after prefixes of 3 and 2: the masks of the requests have 10 and 8 bytes.
TEST(PackTreeMask, ReadsFullMasksWithThePrefixFirst) {
  const std::vector<uint8_t> mask{1, 1, 1, 1, 0,  //
                                  1, 1, 1, 1, 1,  //
                                  1, 1, 1, 0,     //
                                  1, 1, 0, 1};
  EXPECT_THAT(pack(TreeMaskLayout::kFullMask, mask, {0, 2, 4}, {5, 4}), ElementsAre(0b01, 0b11, 0b01, 0b10));
}

TEST(PackTreeMask, ReadsMasksOfNewTokensOnly) {
  const std::vector<uint8_t> mask{1, 0,   0,  //
                                  1, 255, 0,  //
                                  1, 0,   1,  //
                                  1};
  EXPECT_THAT(pack(TreeMaskLayout::kQlenOnly, mask, {0, 3, 4}, {20, 1}),
              ElementsAre(0b001, 0b011, 0b101, 0b1));
}

TEST(PackTreeMask, ReadsPackedBitsFromTheLowBitAndStartsRequestsAtBytes) {
  // Rows 001, 011, 101 (low bit first: 1 0 0, 1 1 0, 1 0 1), then a request of one token.
  const std::vector<uint8_t> mask{0b01011001, 0b1, 0b1};
  EXPECT_THAT(pack(TreeMaskLayout::kBitPacked, mask, {0, 3, 4}, {20, 1}),
              ElementsAre(0b001, 0b011, 0b101, 0b1));
}

TEST(PackTreeMask, SpreadsMoreThan64NewTokensOverWords) {
  constexpr int kNumTokens = 70;
  std::vector<uint8_t> mask(kNumTokens * kNumTokens, 0);
  for (size_t i = 0; i < kNumTokens; ++i) mask[i * kNumTokens + i] = mask[i * kNumTokens] = 1;
  const auto words = pack(TreeMaskLayout::kQlenOnly, mask, {0, kNumTokens}, {100}, 3);
  for (size_t i = 0; i < kNumTokens; ++i) {
    EXPECT_EQ(words[i * 3], 1u | (i < 64 ? uint64_t{1} << i : 0)) << i;
    EXPECT_EQ(words[i * 3 + 1], i < 64 ? 0 : uint64_t{1} << (i - 64)) << i;
    EXPECT_EQ(words[i * 3 + 2], 0u) << i;
  }
}

TEST(PackTreeMask, PaddingTokensAttendToNothing) {
  std::vector<uint64_t> words(4, ~uint64_t{0});
  const std::vector<int32_t> cu_seqlen_q{0, 2}, seqlen_kv{2};
  pack_tree_mask(TreeMaskLayout::kQlenOnly, std::vector<uint8_t>{1, 0, 1, 1}, cu_seqlen_q, seqlen_kv, 1,
                 words);
  EXPECT_THAT(words, ElementsAre(0b01, 0b11, 0, 0));
}

TEST(PackTreeMask, RejectsAMaskThatExcludesAKeyOfThePrefix) {
  std::vector<uint8_t> mask(2 * 5, 1);
  mask[5 + 1] = 0;
  EXPECT_EQ(
      error_message(ErrorCode::kUnsupported,
                    [&] {
                      pack(TreeMaskLayout::kFullMask, mask, {0, 2}, {5});
                    }),
      "tree mask hides key 1 from new token 1 of request 0: pack_tree_mask needs the whole prefix of 3 keys "
      "visible");
}

TEST(PackTreeMask, NamesMismatchedSizes) {
  const auto error_text = [](auto&& fn) { return error_message(ErrorCode::kInvalidArgument, fn); };
  for (auto [layout, num_bytes] : {std::pair{TreeMaskLayout::kFullMask, 30},
                                   {TreeMaskLayout::kQlenOnly, 9},
                                   {TreeMaskLayout::kBitPacked, 2}})
    for (int wrong : {num_bytes - 1, num_bytes + 1})
      EXPECT_EQ(
          error_text([&] {
            pack(layout, std::vector<uint8_t>(static_cast<size_t>(wrong), 1), {0, 3}, {10});
          }),
          "mask of " + std::to_string(wrong) + " bytes: pack_tree_mask needs " + std::to_string(num_bytes));
  EXPECT_EQ(error_text([] {
              pack(TreeMaskLayout::kQlenOnly, std::vector<uint8_t>(65 * 65), {0, 65}, {65});
            }),
            "tree_mask_words 1: pack_tree_mask needs 2, one bit per new token of the longest request");
  EXPECT_EQ(error_text([] {
              std::vector<uint64_t> words(2);
              pack_tree_mask(TreeMaskLayout::kQlenOnly, std::vector<uint8_t>(9, 1),
                             std::vector<int32_t>{0, 3}, std::vector<int32_t>{3}, 1, words);
            }),
            "words of 2 entries: pack_tree_mask needs 3 x 1");
}

// The documentation's example: three drafts in slots 8, 9, 10; the third is a sibling of the second.
TEST(ExpandTreeRequests, MatchTheWorkedExample) {
  const std::vector<uint64_t> tree_mask{0b001, 0b011, 0b101};
  const std::vector<int32_t> cu_seqlen_q{0, 3}, slots{8, 9, 10};
  const TreeRequests requests = expand_tree_requests(tree_mask, 1, cu_seqlen_q, slots);
  EXPECT_EQ(requests.width, 3);
  EXPECT_THAT(requests.seqlen_kv, ElementsAre(1, 2, 2));
  EXPECT_THAT(requests.slots, ElementsAre(8, 9, 10, 8, 9, 10, 8, 10, 9));
}

TEST(ExpandTreeRequests, ShorterRequestsLeaveTheEndOfTheirRowsZero) {
  const std::vector<uint64_t> tree_mask{0b1, 0b01, 0b10};
  const std::vector<int32_t> cu_seqlen_q{0, 1, 1, 3}, slots{4, 20, 21};
  const TreeRequests requests = expand_tree_requests(tree_mask, 1, cu_seqlen_q, slots);
  EXPECT_EQ(requests.width, 2);
  EXPECT_THAT(requests.seqlen_kv, ElementsAre(1, 1, 1));
  EXPECT_THAT(requests.slots, ElementsAre(4, 0, 20, 21, 21, 20));
}

TEST(ExpandTreeRequests, ReadBitsBeyondTheFirstWord) {
  constexpr int kNumTokens = 66;
  std::vector<uint64_t> tree_mask(kNumTokens * 2, 0);
  for (size_t token = 0; token < kNumTokens; ++token)
    tree_mask[token * 2 + 1] = 0b10;  // all tokens attend to the last one
  std::vector<int32_t> slots(kNumTokens);
  std::iota(slots.begin(), slots.end(), 100);
  const std::vector<int32_t> cu_seqlen_q{0, kNumTokens};
  const TreeRequests requests = expand_tree_requests(tree_mask, 2, cu_seqlen_q, slots);
  EXPECT_THAT(requests.seqlen_kv, Each(1));
  for (size_t token = 0; token < kNumTokens; ++token) EXPECT_EQ(requests.slots[token * kNumTokens], 165);
}

TEST(ExpandTreeRequests, NameMismatchedSizes) {
  const std::vector<uint64_t> tree_mask{1, 1};
  const std::vector<int32_t> cu_seqlen_q{0, 2}, slots{4}, wide{0, 65};
  EXPECT_EQ(error_message(ErrorCode::kInvalidArgument,
                          [&] { expand_tree_requests(tree_mask, 1, cu_seqlen_q, slots); }),
            "slots of 1 tokens, tree_mask of 2 words: expand_tree_requests needs 2 and 2 x 1");
  EXPECT_EQ(
      error_message(ErrorCode::kInvalidArgument, [&] { expand_tree_requests(tree_mask, 1, wide, slots); }),
      "tree_mask_words 1: expand_tree_requests needs 2, one bit per new token of the longest request");
  EXPECT_EQ(
      error_message(ErrorCode::kInvalidArgument, [&] { expand_tree_requests(tree_mask, 1, {}, slots); }),
      "cu_seqlen_q of 0 entries: expand_tree_requests needs one more entry than requests");
}

}  // namespace
}  // namespace attend::kernels
