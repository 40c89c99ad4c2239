#include "attend/kv/allocator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "tests/support/count_allocations.h"
#include "tests/support/error_message.h"
#include "tests/support/token_slots.h"

namespace attend {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing_support::error_message;
using testing_support::make_slots;

std::vector<int32_t> slot_values(const std::vector<TokenSlot>& slots) {
  std::vector<int32_t> numbers;
  for (TokenSlot slot : slots) numbers.push_back(slot.value);
  return numbers;
}

// Slots of an extend that must succeed.
std::vector<int32_t> extend(SlotAllocator& allocator, const std::vector<int32_t>& prefix_lens,
                            const std::vector<int32_t>& seqlens, std::initializer_list<int32_t> last_slots) {
  const auto num_new = std::accumulate(seqlens.begin(), seqlens.end(), 0) -
                       std::accumulate(prefix_lens.begin(), prefix_lens.end(), 0);
  std::vector<TokenSlot> out(static_cast<size_t>(num_new));
  EXPECT_TRUE(allocator.alloc_extend(prefix_lens, seqlens, make_slots(last_slots), out));
  allocator.check_conservation();
  return slot_values(out);
}

std::vector<int32_t> decode(SlotAllocator& allocator, const std::vector<int32_t>& seqlens,
                            std::initializer_list<int32_t> last_slots) {
  std::vector<TokenSlot> out(seqlens.size());
  EXPECT_TRUE(allocator.alloc_decode(seqlens, make_slots(last_slots), out));
  allocator.check_conservation();
  return slot_values(out);
}

TEST(PagedAllocator, AllocatesNewPagesInAscendingOrderWithoutThePaddingPage) {
  PagedAllocator allocator(4, 4);
  EXPECT_THAT(extend(allocator, {0, 0}, {5, 2}, {-1, -1}), ElementsAre(4, 5, 6, 7, 8, 12, 13));
  EXPECT_EQ(allocator.num_free_pages(), 0);
}

TEST(PagedAllocator, FillsTheLastPageThenWholePagesThenAPartialOne) {
  // Example of the documentation: pages 9, 11 and 3 are next, page 6 is half filled.
  PagedAllocator allocator(4, 12);
  extend(allocator, {0}, {11 * 4}, {-1});
  allocator.free(make_slots({9 * 4, 11 * 4, 3 * 4}));
  EXPECT_EQ(allocator.pages_needed(std::vector<int32_t>{6, 0}, std::vector<int32_t>{13, 3}), 3);
  EXPECT_THAT(extend(allocator, {6, 0}, {13, 3}, {25, -1}),
              ElementsAre(26, 27, 36, 37, 38, 39, 44, 12, 13, 14));
  EXPECT_EQ(allocator.num_free_pages(), 0);
}

TEST(PagedAllocator, DecodeAllocatesAPageOnlyIfTheLastIsFull) {
  // Example of the documentation: page 7 is next.
  PagedAllocator allocator(4, 11);
  extend(allocator, {0}, {10 * 4}, {-1});
  allocator.free(make_slots({7 * 4}));
  EXPECT_THAT(decode(allocator, {9, 8}, {39, 22}), ElementsAre(28, 23));
  EXPECT_EQ(allocator.num_free_pages(), 0);
}

TEST(PagedAllocator, DecodeMatchesExtendByOneToken) {
  for (int page_size : {1, 2, 16}) {
    PagedAllocator by_decode(page_size, 20), by_extend(page_size, 20);
    std::vector<TokenSlot> last{kNoSlot}, other{kNoSlot};
    for (int32_t seqlen = 1; seqlen <= 19; ++seqlen) {
      const std::vector<int32_t> after{seqlen}, before{seqlen - 1};
      ASSERT_TRUE(by_decode.alloc_decode(after, last, last));
      ASSERT_TRUE(by_extend.alloc_extend(before, after, other, other));
      EXPECT_EQ(last[0], other[0]) << "page_size " << page_size << ", seqlen " << seqlen;
    }
  }
}

TEST(PagedAllocator, ReusesAFreedPageBeforeANewOne) {
  PagedAllocator allocator(16, 10);
  const std::vector<int32_t> first = extend(allocator, {0}, {16}, {-1});
  extend(allocator, {0}, {16}, {-1});
  allocator.free(make_slots({first[0]}));
  EXPECT_EQ(extend(allocator, {0}, {16}, {-1}), first);
}

TEST(PagedAllocator, ReusesPagesFreedTogetherInOrder) {
  PagedAllocator allocator(2, 10);
  extend(allocator, {0}, {12}, {-1});
  allocator.free(make_slots({2, 3}));
  allocator.free(make_slots({10, 11, 6, 7}));
  EXPECT_THAT(extend(allocator, {0}, {6}, {-1}), ElementsAre(10, 11, 6, 7, 2, 3));
}

TEST(PagedAllocator, FreesAPageOnceForAnyNumberOfItsSlots) {
  PagedAllocator allocator(4, 5);
  extend(allocator, {0}, {16}, {-1});
  allocator.free(make_slots({4, 8, 5, 9, 7}));
  EXPECT_EQ(allocator.num_free_pages(), 2);
  EXPECT_EQ(allocator.num_used_slots(), 8);
  allocator.check_conservation();
}

TEST(PagedAllocator, ExtendReturnsFalseAndChangesNothingWithoutPages) {
  PagedAllocator allocator(4, 5);
  const std::vector<int32_t> allocated = extend(allocator, {0}, {6}, {-1});
  ASSERT_EQ(allocator.num_free_pages(), 2);
  // The first request would fit; both together need three pages.
  const std::vector<int32_t> prefix_lens{6, 0}, seqlens{9, 5};
  std::vector<TokenSlot> out(8, TokenSlot(-7));
  EXPECT_FALSE(allocator.alloc_extend(prefix_lens, seqlens, make_slots({allocated.back(), -1}), out));
  EXPECT_THAT(out, testing::Each(TokenSlot(-7)));
  EXPECT_EQ(allocator.num_free_pages(), 2);
  allocator.check_conservation();
  // A later extend gets the pages that it would have got before.
  EXPECT_THAT(extend(allocator, {6, 0}, {9, 4}, {allocated.back(), -1}),
              ElementsAre(10, 11, 12, 16, 17, 18, 19));
}

TEST(PagedAllocator, DecodeReturnsFalseAndChangesNothingWithoutPages) {
  PagedAllocator allocator(4, 4);
  extend(allocator, {0, 0}, {4, 2}, {-1, -1});
  extend(allocator, {0}, {4}, {-1});
  ASSERT_EQ(allocator.num_free_pages(), 0);
  std::vector<TokenSlot> out(2, TokenSlot(-7));
  EXPECT_FALSE(allocator.alloc_decode(std::vector<int32_t>{5, 3}, make_slots({7, 9}), out));
  EXPECT_THAT(out, testing::Each(TokenSlot(-7)));
  EXPECT_THAT(decode(allocator, {3}, {9}), ElementsAre(10));
}

TEST(PagedAllocator, AcceptsEmptyExtendsAndBatches) {
  PagedAllocator allocator(4, 3);
  EXPECT_THAT(extend(allocator, {0}, {3}, {-1}), ElementsAre(4, 5, 6));
  EXPECT_THAT(extend(allocator, {3, 0}, {3, 0}, {6, -1}), ElementsAre());
  EXPECT_THAT(extend(allocator, {}, {}, {}), ElementsAre());
  EXPECT_THAT(decode(allocator, {}, {}), ElementsAre());
  allocator.free({});
  EXPECT_EQ(allocator.num_free_pages(), 1);
}

TEST(PagedAllocator, CountsSlotsWithoutThePaddingPage) {
  PagedAllocator allocator(16, 5);
  EXPECT_EQ(allocator.page_size(), 16);
  EXPECT_EQ(allocator.num_total_slots(), 64);
  EXPECT_EQ(allocator.num_free_slots(), 64);
  extend(allocator, {0}, {17}, {-1});
  EXPECT_EQ(allocator.num_used_slots(), 32);
  EXPECT_EQ(allocator.num_free_slots(), 32);
}

TEST(PagedAllocator, RejectsFreeingUnusedSlotsWithoutSideEffects) {
  PagedAllocator allocator(4, 6);
  extend(allocator, {0}, {8}, {-1});
  EXPECT_EQ(error_message(ErrorCode::kInternal,
                          [&] {
                            allocator.free(make_slots({4, 12}));
                          }),
            "free: slot 12: page 3 is free already");
  EXPECT_EQ(error_message(ErrorCode::kInternal,
                          [&] {
                            allocator.free(make_slots({4, 3}));
                          }),
            "free: slot 3: slots are 4 to 23, those before are the padding page");
  EXPECT_THROW(allocator.free(make_slots({4, 24})), Error);
  EXPECT_THROW(allocator.free(make_slots({4, -1})), Error);
  EXPECT_EQ(allocator.num_used_slots(), 8);
  allocator.free(make_slots({4}));
  EXPECT_THROW(allocator.free(make_slots({4})), Error);
  allocator.check_conservation();
}

TEST(PagedAllocator, RejectsALastSlotThatDoesNotMatchThePrefix) {
  PagedAllocator allocator(4, 6);
  extend(allocator, {0}, {6}, {-1});
  std::vector<TokenSlot> out(1);
  const auto grow = [&](int32_t prefix_len, int32_t last) {
    (void)allocator.alloc_extend(std::vector<int32_t>{prefix_len}, std::vector<int32_t>{prefix_len + 1},
                                 make_slots({last}), out);
  };
  EXPECT_EQ(error_message(ErrorCode::kInternal, [&] { grow(6, 8); }),
            "allocator: last slot 8 of request 0 with 6 tokens: offset 0 of its page, expected 1");
  EXPECT_EQ(error_message(ErrorCode::kInternal, [&] { grow(6, 13); }),
            "allocator: last slot 13 of request 0 is not in use");
  EXPECT_THROW(grow(6, 1), Error);
  EXPECT_THROW(grow(6, 25), Error);
  EXPECT_THROW(grow(6, -1), Error);
  EXPECT_EQ(error_message(ErrorCode::kInternal, [&] { grow(0, 9); }),
            "allocator: request 0 has no tokens but last slot 9");
  EXPECT_THROW((void)allocator.alloc_decode(std::vector<int32_t>{0}, make_slots({-1}), out), Error);
  EXPECT_EQ(allocator.num_used_slots(), 8);
  grow(6, 9);
  EXPECT_EQ(out[0], TokenSlot(10));
}

TEST(PagedAllocator, RejectsArraysOfOtherSizes) {
  PagedAllocator allocator(4, 6);
  const std::vector<int32_t> none{}, zero{0}, five{5};
  const std::vector<TokenSlot> last = make_slots({-1});
  std::vector<TokenSlot> out(4);
  EXPECT_EQ(error_message(ErrorCode::kInternal, [&] { (void)allocator.alloc_extend(zero, five, last, out); }),
            "alloc_extend: out of 4 slots for 5 new tokens");
  EXPECT_THROW((void)allocator.alloc_extend(none, five, last, out), Error);
  EXPECT_THROW((void)allocator.alloc_extend(zero, five, {}, out), Error);
  EXPECT_THROW((void)allocator.alloc_extend(five, zero, last, {}), Error);
  EXPECT_THROW((void)allocator.alloc_decode(five, last, out), Error);
  EXPECT_EQ(allocator.num_used_slots(), 0);
}

TEST(PagedAllocator, RejectsPageSizesThatAreNotPowersOfTwoUpTo256) {
  for (int page_size : {0, 3, 512, -4})
    EXPECT_EQ(error_message(ErrorCode::kInvalidArgument, [&] { PagedAllocator(page_size, 4); }),
              "page_size " + std::to_string(page_size) + ": expected a power of two from 1 to 256");
  for (int page_size = 1; page_size <= 256; page_size *= 2)
    EXPECT_EQ(PagedAllocator(page_size, 2).num_total_slots(), page_size);
}

TEST(PagedAllocator, RejectsPoolsWithoutPagesOrWithMoreSlotsThanInt32) {
  EXPECT_EQ(error_message(ErrorCode::kInvalidArgument, [] { PagedAllocator(4, 1); }),
            "num_pages 1: allocator needs at least 2, since page 0 is the padding page");
  EXPECT_THAT(error_message(ErrorCode::kInvalidArgument, [] { PagedAllocator(256, 1 << 23); }),
              HasSubstr("at most 8388607 pages"));
}

TEST(PagedAllocator, DoesNotAllocateOnTheHeapAfterConstruction) {
  PagedAllocator allocator(4, 100);
  const std::vector<int32_t> prefix_lens{0, 0}, seqlens{9, 5}, next{10, 6};
  const std::vector<TokenSlot> none = make_slots({-1, -1});
  std::vector<TokenSlot> out(14), last(2);
  const int64_t before = testing_support::num_allocations();
  for (int round = 0; round < 10; ++round) {
    ASSERT_TRUE(allocator.alloc_extend(prefix_lens, seqlens, none, out));
    last = {out[8], out[13]};
    ASSERT_TRUE(allocator.alloc_decode(next, last, last));
    allocator.free(out);
  }
  EXPECT_EQ(testing_support::num_allocations(), before);
}

TEST(TokenAllocator, AllocatesAnyFreeSlotExceptThePaddingSlot) {
  TokenAllocator allocator(8);
  EXPECT_THAT(extend(allocator, {0, 0}, {3, 2}, {-1, -1}), ElementsAre(1, 2, 3, 4, 5));
  allocator.free(make_slots({2, 4}));
  EXPECT_THAT(decode(allocator, {4, 3}, {3, 5}), ElementsAre(2, 4));
  EXPECT_THAT(decode(allocator, {5}, {2}), ElementsAre(6));
  EXPECT_EQ(allocator.num_free_slots(), 1);
}

TEST(MakeAllocator, ReturnsTheAllocatorForThePageSize) {
  EXPECT_NE(dynamic_cast<TokenAllocator*>(make_allocator(1, 8).get()), nullptr);
  const auto paged = make_allocator(64, 8);
  EXPECT_EQ(dynamic_cast<TokenAllocator*>(paged.get()), nullptr);
  EXPECT_EQ(paged->page_size(), 64);
  EXPECT_EQ(paged->num_total_slots(), 7 * 64);
}

}  // namespace
}  // namespace attend
