// Cache group of recurrent states together with token slots: the boundaries of chunks, and the saved states.
#include "tests/engine/schedule/state_group.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "attend/engine/schedule/admission.h"
#include "attend/engine/schedule/request_memory.h"

namespace attend {
namespace {

using test::StateGroup;

// Requests with pages of 2 tokens and states at multiples of 4, computed one chunk at a time.
class StateGroupTest : public testing::Test {
 protected:
  StateGroupTest() {
    std::vector<std::unique_ptr<CacheGroup>> groups = make_cache_groups({}, rows_, *slots_);
    groups.push_back(std::make_unique<StateGroup>(rows_, 2, 2, 16));
    state_ = static_cast<StateGroup*>(groups.back().get());
    memory_ = std::make_unique<RequestMemory>(256, rows_, *slots_, EvictionPolicy::kLru, std::move(groups));
  }

  // Prompt that shares its first `num_common` tokens with all prompts.
  static Request make_prompt(RequestId id, int num_common, int num_tokens) {
    Request request;
    request.id = id;
    for (int i = 0; i < num_tokens; ++i)
      request.tokens.push_back(i < num_common ? i : 1000 * static_cast<int32_t>(id) + i);
    request.num_prompt = num_tokens;
    return request;
  }
  void compute_to(Request& request, int end) {
    ASSERT_TRUE(memory_->grow(request, end));
    std::vector<uint64_t> keys;
    uint64_t key = 1;
    for (const int32_t token : View<const int32_t>(request.tokens).first(static_cast<size_t>(end)))
      keys.push_back(key = (key ^ static_cast<uint64_t>(token + 1)) * 0x9e3779b97f4a7c15ull);
    state_->compute(request.row, request.num_computed, keys);
    request.num_computed = end;
    memory_->advance(request);
    memory_->checkpoint(request);
  }
  // Computes the prompt in chunks of at most `room` tokens. Returns the number of cached tokens.
  int run(Request request, int room = 64) {
    EXPECT_TRUE(memory_->admit(request, memory_->find_prefix(request)));
    const int begin = request.num_computed;
    while (request.num_to_compute() > 0)
      compute_to(request, chunk_end({.begin = request.num_computed,
                                     .prompt_end = request.num_tokens(),
                                     .room = room,
                                     .grid = memory_->chunk_grid()}));
    Request* const running[] = {&request};
    memory_->check(running);
    memory_->release(request);
    return begin;
  }

  ReqToTokenPool rows_{4, 64};
  std::unique_ptr<SlotAllocator> slots_ = make_allocator(2, 64);
  StateGroup* state_ = nullptr;  // owned by memory_
  std::unique_ptr<RequestMemory> memory_;
};

TEST_F(StateGroupTest, ChunksEndAtCommonMultiplesOfThePageSizeAndTheGridsOfGroups) {
  EXPECT_EQ(memory_->chunk_grid(), 4);
  std::vector<std::unique_ptr<CacheGroup>> groups = make_cache_groups({}, rows_, *slots_);
  groups.push_back(std::make_unique<StateGroup>(rows_, 2, 3, 1));
  groups.push_back(std::make_unique<StateGroup>(rows_, 2, 2, 1));
  EXPECT_EQ(RequestMemory(64, rows_, *slots_, std::nullopt, std::move(groups)).chunk_grid(), 12);
}

TEST_F(StateGroupTest, SavesTheLastStateOfAPromptForAnyChunks) {
  EXPECT_EQ(run(make_prompt(1, 0, 23), 9), 0);
  EXPECT_EQ(state_->num_snapshots(), 1);
  EXPECT_EQ(run(make_prompt(1, 0, 23)), 20) << "the same prompt";
  EXPECT_EQ(run(make_prompt(2, 0, 24)), 0);
  EXPECT_EQ(run(make_prompt(2, 0, 24)), 20) << "its last token has to be computed";
}

TEST_F(StateGroupTest, SavesAStateWhereAPromptLeavesItsCachedPrefix) {
  EXPECT_EQ(run(make_prompt(1, 15, 30)), 0);
  EXPECT_EQ(run(make_prompt(2, 15, 30)), 0) << "14 tokens are cached, but the only state is at 28";
  EXPECT_EQ(state_->num_saved_forks(), 1);
  EXPECT_EQ(run(make_prompt(3, 15, 30), 5), 12) << "where the second prompt left the first";
  EXPECT_EQ(state_->num_saved_forks(), 1) << "the state exists already";
  EXPECT_EQ(run(make_prompt(4, 7, 30), 5), 0);
  EXPECT_EQ(state_->num_saved_forks(), 2);
  EXPECT_EQ(run(make_prompt(5, 7, 30)), 4);
}

TEST_F(StateGroupTest, SavesStatesOfAnAnswerButNotOfUncomputedTokens) {
  Request request = make_prompt(1, 0, 10);
  ASSERT_TRUE(memory_->admit(request, memory_->find_prefix(request)));
  compute_to(request, 10);
  request.tokens.push_back(5);
  ASSERT_TRUE(memory_->grow(request, 11));
  ASSERT_TRUE(memory_->grow(request, 11 + 6));
  memory_->rewind(request, 11);
  for (int end = 11; end <= 14; ++end) {
    compute_to(request, end);
    request.tokens.push_back(5);
  }
  EXPECT_EQ(state_->num_snapshots(), 2) << "at 8 and 12, not at 16";
  EXPECT_EQ(state_->num_replayed(), 0);
  memory_->release(request);
}

// Pages of 2 tokens and states at multiples of 4. Pages enter the cache before they are computed, states
// after.
TEST(CacheGroups, ARequestStartsAtTheLastSnapshotOfAPromptSharedBeforeItsComputation) {
  ReqToTokenPool rows(2, 32);
  const auto slots = make_allocator(2, 16);
  std::vector<std::unique_ptr<CacheGroup>> groups = make_cache_groups({}, rows, *slots);
  groups.push_back(std::make_unique<StateGroup>(rows, 2, 2, 8));
  auto& state = static_cast<StateGroup&>(*groups.back());
  RequestMemory memory(64, rows, *slots, EvictionPolicy::kLru, std::move(groups));
  const std::vector<uint64_t> keys = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  Request first, second;
  first.tokens = second.tokens = {11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21};
  first.num_prompt = second.num_prompt = 11;
  ASSERT_TRUE(memory.admit(first, memory.find_prefix(first)));
  ASSERT_TRUE(memory.grow(first, 11));
  memory.share_before_compute(first, 11);
  EXPECT_EQ(memory.num_matched_tokens(second), 10);
  EXPECT_TRUE(memory.find_prefix(second).pages.empty()) << "no state is computed yet";
  state.compute(first.row, 0, keys);
  first.num_computed = 11;
  memory.advance(first);
  memory.checkpoint(first);
  ASSERT_TRUE(memory.admit(second, memory.find_prefix(second)));
  EXPECT_EQ(second.num_computed, 8);
  EXPECT_EQ(second.num_cached_tokens, 8);
  ASSERT_TRUE(memory.grow(second, 11));
  state.compute(second.row, 8, keys);
  second.num_computed = 11;
  memory.advance(second);
  memory.checkpoint(second);
  EXPECT_EQ(rows.row(second.row)[8], rows.row(first.row)[8]) << "the page after the snapshot is shared too";
  Request* const both[] = {&first, &second};
  memory.check(both);
  memory.release(first);
  memory.release(second);
  EXPECT_EQ(state.num_snapshots(), 1) << "at 8, where the same prompt can resume";
  memory.flush();
  EXPECT_EQ(state.num_snapshots(), 0);
  EXPECT_EQ(slots->num_used_slots(), 0);
}

}  // namespace
}  // namespace attend
