#include "attend/engine/speculation/draft_group.h"

#include <gtest/gtest.h>

namespace attend {
namespace {

constexpr int kPageSize = 4;

class DraftGroupTest : public testing::Test {
 protected:
  RequestRow add_row(std::initializer_list<int> pages) {
    const RequestRow row = *rows_.allocate();
    std::vector<TokenSlot> slots;
    for (const int page : pages)
      for (int i = 0; i < kPageSize; ++i) slots.emplace_back(page * kPageSize + i);
    rows_.write(row, 0, slots);
    return row;
  }
  static std::vector<PageId> ids(std::initializer_list<int> pages) {
    std::vector<PageId> ids;
    for (const int page : pages) ids.emplace_back(page);
    return ids;
  }

  ReqToTokenPool rows_{4, 32};
  DraftGroup group_{rows_, kPageSize, 10};
};

TEST_F(DraftGroupTest, SharesThePagesThatOneRowCompleted) {
  const RequestRow first = add_row({1, 2, 3}), second = add_row({1, 2, 4});
  group_.begin(second, 0, ids({1, 2}), 2);
  EXPECT_EQ(group_.num_tokens(second), 0);
  group_.set_num_tokens(first, 10, 10);
  EXPECT_EQ(group_.num_tokens(first), 10);
  EXPECT_EQ(group_.num_tokens(second), 8);
}

// Copies of the rows on a device receive the slots of pages that the row did not compute itself.
TEST_F(DraftGroupTest, UploadsTheSlotsOfPagesThatAnotherRowCompleted) {
  const RequestRow first = add_row({1, 2}), second = add_row({1, 2});
  int64_t cursor = rows_.shared_cursor();
  group_.set_num_tokens(first, 8, 8);
  EXPECT_EQ(group_.num_tokens(second), 8);
  int num_copied = 0;
  rows_.apply_shared_writes(cursor, [&](const RowRange& range) {
    EXPECT_EQ(range.row, second);
    num_copied += range.count;
  });
  EXPECT_EQ(num_copied, 8);
}

TEST_F(DraftGroupTest, DraftsCompleteAPageOnlyWhenTheyAreAccepted) {
  const RequestRow row = add_row({1, 2}), other = add_row({1, 2});
  group_.set_num_tokens(row, 8, 6);
  EXPECT_EQ(group_.num_tokens(other), 4);
  group_.rewind(row, 8, 7);
  EXPECT_EQ(group_.num_tokens(row), 7);
  group_.set_num_tokens(row, 8, 8);
  group_.snapshot(row, 8);
  EXPECT_EQ(group_.num_tokens(other), 8);
}

TEST_F(DraftGroupTest, ASnapshotCompletesOnlyPagesWithAllTokens) {
  const RequestRow row = add_row({1, 2}), other = add_row({1, 2});
  group_.set_num_tokens(row, 8, 3);
  group_.snapshot(row, 7);
  EXPECT_EQ(group_.num_tokens(other), 4);
}

TEST_F(DraftGroupTest, AReplacedPageKeepsOnlyItsOwnTokens) {
  const RequestRow row = add_row({1, 2, 3});
  group_.set_num_tokens(row, 11, 11);
  const TokenSlot first(5 * kPageSize);  // the first group rewrites the row
  rows_.write_shared(row, kPageSize, {&first, 1});
  group_.replace(row, 1, ids({2}), ids({5}));
  EXPECT_EQ(group_.num_tokens(row), 4);
}

TEST_F(DraftGroupTest, AFreedPageHasNoTokens) {
  const RequestRow row = add_row({1, 2}), other = add_row({1, 2});
  group_.set_num_tokens(row, 8, 8);
  group_.release(row, 8);
  EXPECT_EQ(group_.num_tokens(other), 8);
  group_.release(other, 8);
  group_.forget(ids({1, 2}));
  EXPECT_EQ(group_.num_tokens(other), 0);
}

TEST_F(DraftGroupTest, ARowDoesNotContinueAfterMissingTokens) {
  const RequestRow first = add_row({1, 2}), second = add_row({3, 2});
  group_.set_num_tokens(first, 8, 8);
  group_.begin(second, 1, ids({2}), 1);
  EXPECT_EQ(group_.num_tokens(second), 0);
  group_.set_num_tokens(second, 4, 4);
  EXPECT_EQ(group_.num_tokens(second), 8);
}

}  // namespace
}  // namespace attend
