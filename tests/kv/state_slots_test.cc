// State slots of request rows and snapshots, their columns in steps, and the cache group that assigns them.
#include "attend/kv/state/state_slots.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "attend/base/error.h"
#include "attend/kv/cache_group.h"
#include "attend/kv/state/state_pool.h"
#include "tests/support/error_message.h"

namespace attend {
namespace {

using testing::ElementsAre;
using testing_support::error_message;

TEST(StateSlots, SnapshotsFollowTheRows) {
  StateSlots slots(3, 2);
  EXPECT_EQ(slots.num_slots(), 5);
  const int first = slots.allocate(), second = slots.allocate();
  EXPECT_EQ(first, 3);
  EXPECT_EQ(second, 4);
  EXPECT_EQ(slots.allocate(), 0);
  slots.free(first);
  EXPECT_EQ(slots.allocate(), first);
  EXPECT_NE(error_message(ErrorCode::kInternal, [&] { slots.free(2); }).find("state slot 2"),
            std::string::npos);
}

TEST(StateSlots, ColumnsNameTheSlotsOfAStep) {
  StateSlots slots(4, 3);
  slots.set_load(RequestRow(2), 8, 5);
  slots.add_save(RequestRow(2), 10, 6);
  slots.add_save(RequestRow(2), 16, 4);
  slots.add_save(RequestRow(1), 3, 4);
  // Row 2 computes tokens 8 to 10, a pad request one token, row 1 tokens 4 and 5.
  const std::vector<RequestRow> rows = {RequestRow(2), kPaddingRow, RequestRow(1)};
  const std::vector<int32_t> seqlen_kv = {11, 1, 6}, cu_seqlen_q = {0, 3, 4, 6};
  const HostStep step{
      .request_rows = rows, .seqlen_kv = seqlen_kv, .cu_seqlen_q = cu_seqlen_q, .out_slots = {}};
  std::vector<int32_t> loads(3, -7), saves(6, -7);
  StateLoadColumn(slots).fill(step, loads);
  StateSaveColumn(slots).fill(step, saves);
  EXPECT_THAT(loads, ElementsAre(5, 0, 0));
  EXPECT_THAT(saves, ElementsAre(0, 6, 0, 0, 0, 0));
  slots.clear(RequestRow(2));
  StateLoadColumn(slots).fill(step, loads);
  EXPECT_THAT(loads, ElementsAre(0, 0, 0));
}

TEST(StateSlots, AStepWithDraftsWritesNoStateOfARequestOrSnapshot) {
  StateSlots slots(4, 3, 2);
  EXPECT_EQ(slots.num_slots(), 9);
  for (int slot = 4; slot < 7; ++slot) EXPECT_EQ(slots.allocate(), slot);
  EXPECT_EQ(slots.allocate(), 0) << "the last slots belong to drafts";
  EXPECT_NE(error_message(ErrorCode::kInternal, [&] { slots.free(7); }).find("state slot 7"),
            std::string::npos);
  slots.set_load(RequestRow(2), 8, 5);
  slots.add_save(RequestRow(1), 5, 4);
  slots.add_save(RequestRow(3), 8, 6);
  // Row 3 computes tokens 7 and 8, row 1 token 4 and a draft, row 2 token 8 and two drafts.
  const std::vector<RequestRow> rows = {RequestRow(3), RequestRow(1), RequestRow(2)};
  const std::vector<int32_t> seqlen_kv = {9, 6, 11}, cu_seqlen_q = {0, 2, 4, 7}, num_drafts = {0, 1, 2};
  const HostStep step{.request_rows = rows,
                      .seqlen_kv = seqlen_kv,
                      .cu_seqlen_q = cu_seqlen_q,
                      .out_slots = {},
                      .num_drafts = num_drafts};
  std::vector<int32_t> row_slots(3, -7), loads(3, -7), saves(7, -7), tokens(7, -7);
  StateRowColumn(slots).fill(step, row_slots);
  StateLoadColumn(slots).fill(step, loads);
  StateSaveColumn(slots).fill(step, saves);
  VerifiedTokenColumn().fill(step, tokens);
  EXPECT_THAT(row_slots, ElementsAre(3, 7, 8));
  EXPECT_THAT(loads, ElementsAre(0, 1, 5));
  EXPECT_THAT(saves, ElementsAre(6, 0, 0, 0, 0, 0, 0));
  EXPECT_THAT(tokens, ElementsAre(2, 3, 4, 5, 6, 0, 0));
}

TEST(StatePool, LayersHaveTheirOwnShapes) {
  const StatePool::Config config{
      .caches = {{.kind = CacheKind::kState,
                  .layers = {0, 2},
                  .state = {.num_heads = 2,
                            .head_dim_v = 3,
                            .head_dim_k = 4,
                            .conv_inputs = 3,
                            .conv_channels = 5}},
                 {.kind = CacheKind::kState, .layers = {1}, .state = {.conv_inputs = 2, .conv_channels = 7}}},
      .num_slots = 6};
  EXPECT_EQ(config.slot_bytes(), sizeof(float) * (2 * (24 + 15) + 14));
  const StatePool pool(config);
  ASSERT_EQ(pool.num_layers(), 3);
  EXPECT_EQ(pool.layer(2).recurrent.to_string(), "float32[6, 2, 3, 4] on cpu");
  EXPECT_TRUE(pool.layer(1).recurrent.empty());
  EXPECT_EQ(pool.layer(1).conv.to_string(), "float32[6, 2, 7] on cpu");
}

// Pages of 4 tokens. The row's page i has id first_page + i.
class StateGroupTest : public testing::Test {
 protected:
  RequestRow row(int num_tokens, int first_page) {
    const RequestRow row = rows_.allocate().value();
    std::vector<TokenSlot> written;
    for (int i = 0; i < num_tokens; ++i) written.emplace_back(4 * first_page + i);
    rows_.write(row, 0, written);
    return row;
  }

  ReqToTokenPool rows_{3, 64};
  StateSlots slots_{rows_.num_rows(), 2};
  std::unique_ptr<CacheGroup> group_ =
      make_state_group(rows_, slots_, {.page_size = 4, .grid = 4, .interval = 32, .answer_interval = 8});
};

TEST_F(StateGroupTest, SavesTheStateBeforeTheLastTokenOfAPrompt) {
  const RequestRow prompt = row(12, 5);
  group_->begin(prompt, 0, {}, 0);
  group_->grow(prompt, 0, 12, {.is_prompt = true, .prompt_end = 12});
  EXPECT_EQ(slots_.save_slot(prompt, 8), 4);
  EXPECT_EQ(slots_.save_slot(prompt, 12), 0);
  group_->advance(prompt, 12);
  const PageId pages[] = {PageId(5), PageId(6), PageId(7)};
  EXPECT_EQ(group_->match(pages), 0);
  group_->snapshot(prompt, 12);
  EXPECT_EQ(group_->match(pages), 2);
  EXPECT_EQ(group_->match(View<const PageId>(pages).first(1)), 0);
  group_->release(prompt, 12);
  EXPECT_EQ(group_->match(pages), 2);
  group_->forget(View<const PageId>(pages).subspan(1, 1));
  EXPECT_EQ(group_->match(pages), 0);
  EXPECT_EQ(slots_.num_free(), 2);
}

TEST_F(StateGroupTest, ARowLoadsASnapshotUntilItsStepIsComputed) {
  const RequestRow first = row(9, 5);
  group_->begin(first, 0, {}, 0);
  group_->grow(first, 0, 9, {.is_prompt = true, .prompt_end = 9});
  group_->snapshot(first, 9);
  const RequestRow second = row(16, 5);
  const PageId pages[] = {PageId(5), PageId(6)};
  group_->begin(second, 0, pages, 2);
  EXPECT_EQ(slots_.load_slot(second, 8), 4);
  // The loaded snapshot is not replaced, so only one of the two states is saved: the one at the prompt's end.
  group_->grow(second, 8, 16, {.is_prompt = true, .prompt_end = 17});
  EXPECT_EQ(slots_.save_slot(second, 16), 5);
  group_->advance(second, 16);
  EXPECT_EQ(slots_.load_slot(second, 8), 0);
  group_->check(std::vector<CachedRow>{{first, 9, 9}, {second, 16, 16}});
  group_->release(second, 16);
  EXPECT_EQ(slots_.num_free(), 1) << "the state of a request that was not cached";
}

TEST_F(StateGroupTest, AnAnswerKeepsOneState) {
  const RequestRow answer = row(3, 5);
  group_->begin(answer, 0, {}, 0);
  group_->grow(answer, 0, 3, {.is_prompt = true, .prompt_end = 3});
  for (int end = 4; end <= 17; ++end) {
    group_->grow(answer, end - 1, end, {});
    group_->advance(answer, end);
  }
  EXPECT_EQ(slots_.save_slot(answer, 8), 0);
  EXPECT_NE(slots_.save_slot(answer, 16), 0);
  EXPECT_EQ(slots_.num_free(), 1);
  // The request ended before token 16: its state is dropped.
  group_->snapshot(answer, 15);
  const PageId pages[] = {PageId(5), PageId(6), PageId(7), PageId(8)};
  EXPECT_EQ(group_->match(pages), 0);
  group_->release(answer, 17);
  EXPECT_EQ(slots_.num_free(), 2);
}

TEST_F(StateGroupTest, AnAnswerKeepsItsStateIfTheDraftOfTheNextOneIsRejected) {
  const RequestRow answer = row(18, 5);
  group_->begin(answer, 0, {}, 0);
  group_->grow(answer, 0, 3, {.is_prompt = true, .prompt_end = 3});
  for (int end = 4; end <= 14; ++end) {
    group_->grow(answer, end - 1, end, {});
    group_->advance(answer, end);
  }
  // Token 14, and drafts up to token 17.
  group_->grow(answer, 14, 15, {});
  group_->grow(answer, 15, 18, {});
  EXPECT_NE(slots_.save_slot(answer, 8), 0);
  EXPECT_NE(slots_.save_slot(answer, 16), 0);
  group_->advance(answer, 15);
  group_->rewind(answer, 18, 15);
  EXPECT_EQ(slots_.save_slot(answer, 16), 0);
  group_->snapshot(answer, 15);
  const PageId pages[] = {PageId(5), PageId(6), PageId(7)};
  EXPECT_EQ(group_->match(pages), 2);
  group_->release(answer, 15);
}

}  // namespace
}  // namespace attend
