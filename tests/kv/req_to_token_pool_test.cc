#include "attend/kv/req_to_token_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "tests/support/count_allocations.h"
#include "tests/support/error_message.h"
#include "tests/support/token_slots.h"

namespace attend {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing_support::error_message;
using testing_support::make_slots;

TEST(ReqToTokenPool, AllocatesEveryRowExceptThePaddingRow) {
  ReqToTokenPool pool(3, 8);
  EXPECT_EQ(pool.num_rows(), 4);
  EXPECT_EQ(pool.num_free(), 3);
  EXPECT_EQ(pool.allocate(), RequestRow(1));
  EXPECT_EQ(pool.allocate(), RequestRow(2));
  EXPECT_EQ(pool.allocate(), RequestRow(3));
  EXPECT_EQ(pool.allocate(), std::nullopt);
  EXPECT_EQ(pool.num_free(), 0);
}

TEST(ReqToTokenPool, ReusesTheRowFreedLastFirst) {
  ReqToTokenPool pool(4, 8);
  for (int i = 0; i < 3; ++i) pool.allocate();
  pool.free(RequestRow(1));
  pool.free(RequestRow(3));
  EXPECT_EQ(pool.allocate(), RequestRow(3));
  EXPECT_EQ(pool.allocate(), RequestRow(1));
  EXPECT_EQ(pool.allocate(), RequestRow(4));
}

TEST(ReqToTokenPool, StartsWithSlotsOfThePaddingPage) {
  const ReqToTokenPool pool(3, 8);
  EXPECT_THAT(pool.table().span<int32_t>(), Each(0));
  EXPECT_EQ(pool.table().to_string(), "int32[4, 8] on cpu");
}

TEST(ReqToTokenPool, KernelsReadTheRowsOfTheHost) {
  ReqToTokenPool pool(2, 6);
  const RequestRow row = *pool.allocate();
  pool.write(row, 0, make_slots({8, 9, 10}));
  pool.write(row, 3, make_slots({11}));
  pool.write(row, 5, make_slots({20}));
  EXPECT_THAT(pool.row(row), ElementsAre(TokenSlot(8), TokenSlot(9), TokenSlot(10), TokenSlot(11),
                                         TokenSlot(0), TokenSlot(20)));
  EXPECT_THAT(pool.table()[row.value].span<int32_t>(), ElementsAre(8, 9, 10, 11, 0, 20));
  EXPECT_THAT(pool.row(RequestRow(2)), Each(TokenSlot(0)));
  EXPECT_THAT(pool.row(kPaddingRow), Each(TokenSlot(0)));
}

TEST(ReqToTokenPool, ClearsFreedRows) {
  ReqToTokenPool pool(1, 4);
  const RequestRow row = *pool.allocate();
  pool.write(row, 0, make_slots({5, 6, 7, 8}));
  pool.free(row);
  EXPECT_THAT(pool.row(row), Each(TokenSlot(0)));
}

TEST(ReqToTokenPool, RejectsMismatchedArgumentsWithoutSideEffects) {
  ReqToTokenPool pool(2, 4);
  const RequestRow row = *pool.allocate();
  EXPECT_EQ(error_message(ErrorCode::kInternal,
                          [&] {
                            pool.write(row, 2, make_slots({1, 2, 3}));
                          }),
            "ReqToTokenPool: positions 2 to 4 of request row 1: a row has 4 positions");
  EXPECT_THROW(pool.write(row, -1, make_slots({1})), Error);
  EXPECT_THROW(pool.write(row, 5, {}), Error);
  EXPECT_EQ(error_message(ErrorCode::kInternal,
                          [&] {
                            pool.write(row, 0, make_slots({1, -1}));
                          }),
            "ReqToTokenPool: slot -1 for request row 1: slots are 0 or above");
  EXPECT_THAT(pool.table().span<int32_t>(), Each(0));
  pool.write(row, 4, {});
}

TEST(ReqToTokenPool, RejectsRowsThatAreNotAllocated) {
  ReqToTokenPool pool(2, 4);
  const RequestRow row = *pool.allocate();
  EXPECT_EQ(error_message(ErrorCode::kInternal, [&] { pool.free(RequestRow(2)); }),
            "ReqToTokenPool: request row 2 is not in use");
  EXPECT_THROW(pool.free(kPaddingRow), Error);
  EXPECT_THROW(pool.free(RequestRow(-1)), Error);
  EXPECT_THROW(pool.free(RequestRow(3)), Error);
  EXPECT_THROW(pool.write(kPaddingRow, 0, make_slots({1})), Error);
  EXPECT_THROW(pool.write(RequestRow(2), 0, make_slots({1})), Error);
  EXPECT_THROW(pool.row(RequestRow(3)), Error);
  pool.free(row);
  EXPECT_THROW(pool.free(row), Error);
  EXPECT_EQ(pool.num_free(), 2);
}

TEST(ReqToTokenPool, RejectsSizesWithoutARequest) {
  EXPECT_EQ(error_message(ErrorCode::kInvalidArgument, [] { ReqToTokenPool(0, 4); }),
            "max_reqs 0: ReqToTokenPool needs at least 1");
  EXPECT_EQ(error_message(ErrorCode::kInvalidArgument, [] { ReqToTokenPool(4, 0); }),
            "max_context_len 0: ReqToTokenPool needs at least 1");
}

TEST(ReqToTokenPool, ReportsRequiredAndFreeBytesIfMemoryIsShort) {
  EXPECT_EQ(ReqToTokenPool::num_bytes(1 << 20, 1 << 20), ((size_t{1} << 20) + 1) << 22);
  EXPECT_THAT(error_message(ErrorCode::kOutOfMemory, [] { ReqToTokenPool(1 << 20, 1 << 20); }),
              HasSubstr("ReqToTokenPool: needed 4398050705408 bytes (4398.1 GB), free "));
}

TEST(ReqToTokenPool, DoesNotAllocateOnTheHeapAfterConstruction) {
  ReqToTokenPool pool(4, 64);
  const std::vector<TokenSlot> slots = make_slots({1, 2, 3});
  const int64_t before = testing_support::num_allocations();
  for (int round = 0; round < 10; ++round) {
    const RequestRow first = *pool.allocate(), second = *pool.allocate();
    pool.write(second, 7, slots);
    pool.free(first);
    pool.free(second);
  }
  EXPECT_EQ(testing_support::num_allocations(), before);
}

RC_GTEST_PROP(ReqToTokenPoolProperty, RowsContainTheLastWrittenSlotsOnly, ()) {
  const int max_reqs = *rc::gen::inRange(1, 6), max_context_len = *rc::gen::inRange(1, 20);
  ReqToTokenPool pool(max_reqs, max_context_len);
  std::map<RequestRow, std::vector<TokenSlot>> model;
  const int num_steps = *rc::gen::inRange(1, 40);
  for (int step = 0; step < num_steps; ++step) {
    const int action = *rc::gen::inRange(0, 5);
    if (action == 4) {  // invalid calls change nothing
      const RequestRow row(*rc::gen::inRange(-1, max_reqs + 2));
      if (!model.contains(row)) {
        RC_ASSERT_THROWS_AS(pool.free(row), Error);
        RC_ASSERT_THROWS_AS(pool.write(row, 0, make_slots({5})), Error);
      } else {
        RC_ASSERT_THROWS_AS(pool.write(row, max_context_len, make_slots({5})), Error);
        RC_ASSERT_THROWS_AS(pool.write(row, 0, make_slots({-1})), Error);
      }
    } else if (action == 0) {
      const auto row = pool.allocate();
      RC_ASSERT(row.has_value() == (model.size() < static_cast<size_t>(max_reqs)));
      if (row)
        RC_ASSERT(model.emplace(*row, std::vector<TokenSlot>(static_cast<size_t>(max_context_len))).second);
    } else if (!model.empty()) {
      const auto chosen =
          std::next(model.begin(), *rc::gen::inRange<int64_t>(0, static_cast<int64_t>(model.size())));
      if (action == 1) {
        pool.free(chosen->first);
        model.erase(chosen);
      } else {
        const int first = *rc::gen::inRange(0, max_context_len);
        const int num_slots = *rc::gen::inRange(0, max_context_len - first + 1);
        std::vector<TokenSlot> slots;
        for (int i = 0; i < num_slots; ++i) slots.emplace_back(*rc::gen::inRange(0, 1000));
        pool.write(chosen->first, first, slots);
        std::copy(slots.begin(), slots.end(), chosen->second.begin() + first);
      }
    }
    RC_ASSERT(pool.num_free() == max_reqs - static_cast<int>(model.size()));
    for (int32_t row = 0; row <= max_reqs; ++row) {
      const auto taken = model.find(RequestRow(row));
      const auto stored = pool.row(RequestRow(row));
      if (taken == model.end())
        RC_ASSERT(std::all_of(stored.begin(), stored.end(), [](TokenSlot slot) { return slot.value == 0; }));
      else
        RC_ASSERT(std::equal(stored.begin(), stored.end(), taken->second.begin(), taken->second.end()));
    }
  }
}

}  // namespace
}  // namespace attend
