#include "attend/engine/schedule/scheduler.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "attend/base/error.h"
#include "tests/engine/schedule/state_group.h"

namespace attend {
namespace {

// A scheduler on real pools. "Computing" a step only advances its requests.
class SchedulerTest : public testing::Test {
 protected:
  void make(int max_reqs, int max_tokens, int page_size, int num_pages, int context = 64) {
    limits_ = {.max_reqs = max_reqs, .max_tokens = max_tokens, .max_kv_tokens = page_size * (num_pages - 1)};
    rows_ = std::make_unique<ReqToTokenPool>(max_reqs, context);
    slots_ = make_allocator(page_size, num_pages);
    make_scheduler();
  }

  // Limits the keys of a step to fewer than the pool holds.
  void make_with_kv_limit(int max_kv_tokens) {
    make(4, 64, 4, 32);
    limits_.max_kv_tokens = max_kv_tokens;
    make_scheduler();
  }

  void make_scheduler() {
    std::vector<std::unique_ptr<CacheGroup>> groups = make_cache_groups({}, *rows_, *slots_);
    if (state_grid_pages_ > 0)
      groups.push_back(std::make_unique<test::StateGroup>(*rows_, slots_->page_size(), state_grid_pages_,
                                                          /*max_snapshots=*/0));
    memory_ =
        std::make_unique<RequestMemory>(limits_.max_kv_tokens, *rows_, *slots_, caching_, std::move(groups));
    scheduler_ = std::make_unique<Scheduler>(limits_, *memory_, options_, drafts_);
  }

  std::unique_ptr<Request> find_request(RequestId id, int prompt_tokens, int max_new_tokens = 2) {
    auto request = std::make_unique<Request>();
    request->id = id;
    request->tokens.resize(static_cast<size_t>(prompt_tokens));
    std::iota(request->tokens.begin(), request->tokens.end(), 100);
    request->num_prompt = prompt_tokens;
    request->params.max_new_tokens = max_new_tokens;
    return request;
  }
  void submit(RequestId id, int prompt_tokens, int max_new_tokens = 2) {
    scheduler_->submit(find_request(id, prompt_tokens, max_new_tokens));
  }

  // Runs one step, in which every sampling request gets a token. Returns "id:tokens" of each scheduled
  // request, in order.
  std::string step() {
    std::string parts;
    std::vector<Request*> sampling;
    const ScheduledStep& step = scheduler_->schedule();
    scheduler_->settle_drafts();
    for (const ScheduledRequest& part : step.requests) {
      parts +=
          (parts.empty() ? "" : " ") + std::to_string(part.request->id) + ":" + std::to_string(part.num_new);
      if (part.samples()) sampling.push_back(part.request);
    }
    scheduler_->advance();
    for (Request* request : sampling) request->tokens.push_back(7);
    scheduler_->check_memory();
    return parts;
  }

  BatchLimits limits_;
  ScheduleOptions options_;
  DraftRules drafts_;
  int state_grid_pages_ = 0;  // grid of a recurrent group in pages; 0: no such group
  std::optional<EvictionPolicy> caching_;
  std::unique_ptr<ReqToTokenPool> rows_;
  std::unique_ptr<SlotAllocator> slots_;
  std::unique_ptr<RequestMemory> memory_;
  std::unique_ptr<Scheduler> scheduler_;
};

TEST_F(SchedulerTest, SchedulesNothingWithoutRequests) {
  make(2, 16, 4, 8);
  EXPECT_EQ(step(), "");
  EXPECT_TRUE(scheduler_->idle());
}

TEST_F(SchedulerTest, PrefillsSeveralPromptsInOneStepThenDecodes) {
  make(4, 64, 4, 32);
  submit(1, 5);
  submit(2, 3);
  EXPECT_EQ(step(), "1:5 2:3");
  EXPECT_EQ(scheduler_->schedule().mode, ForwardMode::kDecode);
  EXPECT_EQ(step(), "1:1 2:1");
}

// Copies of the rows on a GPU receive slots of new tokens from the steps that store them, and those of
// skipped tokens in another way.
TEST_F(SchedulerTest, SharesTheSlotsOfSkippedTokensWithCopiesOfTheRows) {
  make(2, 8, 4, 32);
  std::unique_ptr<Request> request = find_request(1, 21);
  request->num_skipped = 18;
  const Request& skipped = *request;
  scheduler_->submit(std::move(request));
  int64_t cursor = rows_->shared_cursor();
  EXPECT_EQ(step(), "1:3");
  std::vector<bool> is_copied(21, false);
  rows_->apply_shared_writes(cursor, [&](const RowRange& range) {
    EXPECT_EQ(range.row, skipped.row);
    for (int position = range.first; position < range.first + range.count; ++position)
      is_copied.at(static_cast<size_t>(position)) = true;
  });
  for (int position = 0; position < 21; ++position) EXPECT_EQ(is_copied[position], position < 18) << position;
  for (const TokenSlot slot : rows_->row(skipped.row).first(21)) EXPECT_GT(slot.value, 0);
}

TEST_F(SchedulerTest, MixesANewPromptWithRunningDecodes) {
  make(4, 64, 4, 32);
  submit(1, 5);
  step();
  submit(2, 3);
  EXPECT_EQ(scheduler_->schedule().mode, ForwardMode::kMixed);
  EXPECT_EQ(step(), "1:1 2:3");
}

TEST_F(SchedulerTest, SplitsALongPromptAtPageBoundariesAndKeepsDecoding) {
  make(4, 8, 4, 32);
  submit(1, 2);
  step();
  submit(2, 20);
  EXPECT_EQ(step(), "1:1 2:4");
  EXPECT_EQ(step(), "1:1 2:4");
  EXPECT_EQ(step(), "1:1 2:4");
  EXPECT_EQ(step(), "1:1 2:4");
  EXPECT_EQ(step(), "1:1 2:4");
  EXPECT_EQ(step(), "1:1 2:1");
}

TEST_F(SchedulerTest, SplitsPromptsOnTheGridOfACoarserCacheGroup) {
  state_grid_pages_ = 3;
  make(4, 22, 4, 32);
  submit(1, 20);
  submit(2, 40);
  const auto parts = [&] {
    std::string text;
    for (const ScheduledRequest& part : scheduler_->schedule().requests)
      text +=
          (text.empty() ? "" : " ") + std::to_string(part.request->id) + ":" + std::to_string(part.num_new);
    return text;
  };
  EXPECT_EQ(parts(), "1:20") << "2 of 22 are left, and the other prompt is split at multiples of 12";
  scheduler_->finish(1);
  EXPECT_EQ(parts(), "2:12");
}

TEST_F(SchedulerTest, AllocatesSlotsForTheChunkOnly) {
  make(4, 8, 4, 32);
  submit(1, 30);
  EXPECT_EQ(step(), "1:8");
  EXPECT_EQ(slots_->num_used_slots(), 8);
  EXPECT_EQ(step(), "1:8");
  EXPECT_EQ(slots_->num_used_slots(), 16);
}

TEST_F(SchedulerTest, FillsTheStepWithTheNextPrompt) {
  make(4, 8, 4, 64);
  submit(1, 10);
  submit(2, 9);
  submit(3, 4);
  EXPECT_EQ(step(), "1:8");
  EXPECT_EQ(step(), "1:2 2:4");
  EXPECT_EQ(step(), "1:1 2:5");
  EXPECT_EQ(step(), "1:1 2:1 3:4");
}

TEST_F(SchedulerTest, SplitsWithinAPageWhenAStepIsSmallerThanAPage) {
  make(4, 6, 16, 64);
  submit(1, 20);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(step(), "1:6");
  EXPECT_EQ(step(), "1:4") << "up to the page boundary";
  EXPECT_EQ(step(), "1:4");
}

TEST_F(SchedulerTest, AdmitsAtMostOneRequestPerRow) {
  make(2, 64, 4, 64);
  for (RequestId id = 1; id <= 3; ++id) submit(id, 4);
  EXPECT_EQ(step(), "1:4 2:4");
  EXPECT_EQ(scheduler_->num_waiting(), 1);
  scheduler_->finish(1);
  EXPECT_EQ(step(), "2:1 3:4");
}

TEST_F(SchedulerTest, AdmitsInTheOrderOfSubmission) {
  make(4, 64, 4, 6);  // 5 pages
  submit(1, 4);
  submit(2, 12);  // 3 pages, another for its answer and one to spare
  submit(3, 4);
  EXPECT_EQ(step(), "1:4");
  scheduler_->finish(1);
  EXPECT_EQ(step(), "2:12");
}

TEST_F(SchedulerTest, AdmitsRequestsWhoseOutputsFit) {
  make(4, 64, 4, 9);  // 32 slots
  submit(1, 8, 10);
  submit(2, 8, 10);
  EXPECT_EQ(step(), "1:8") << "8 + 10 and a page leave 8 of 32";
  scheduler_->finish(1);
  EXPECT_EQ(step(), "2:8");
}

TEST_F(SchedulerTest, PreemptsTheShortestAnswerWhenPagesRunOut) {
  options_.conservativeness = 0.0;  // reserves nothing for the answers of running requests
  make(2, 64, 4, 8);                // 7 pages
  submit(1, 8, 20);
  EXPECT_EQ(step(), "1:8");
  submit(2, 4, 3);
  EXPECT_EQ(step(), "1:1 2:4");
  for (int i = 0; i < 7; ++i) EXPECT_EQ(step(), "1:1 2:1");
  EXPECT_EQ(step(), "1:1") << "1 needs a fifth page, so 2 is preempted and frees its three";
  EXPECT_EQ(scheduler_->num_waiting(), 1);
  EXPECT_DOUBLE_EQ(scheduler_->new_token_ratio(), 1.0) << "later admissions reserve more";
  EXPECT_EQ(scheduler_->finish(1)->num_preemptions, 0);
  EXPECT_EQ(step(), "2:12") << "prompt and answer are computed again";
  EXPECT_EQ(scheduler_->finish(2)->num_preemptions, 1);
  EXPECT_EQ(slots_->num_used_slots(), 0);
}

TEST_F(SchedulerTest, PreemptedRequestKeepsItsQueuePosition) {
  options_.conservativeness = 0.0;
  make(2, 64, 1, 13);
  submit(1, 4, 20);
  step();
  submit(2, 2, 1);
  submit(3, 2, 1);
  std::string parts;
  while (scheduler_->num_preemptions() == 0) parts = step();
  EXPECT_EQ(parts, "1:1");
  scheduler_->finish(1);
  EXPECT_EQ(step().substr(0, 2), "2:");
}

TEST_F(SchedulerTest, DropsTheLastRequestWhenTheQueueIsFull) {
  options_.max_queued_requests = 2;
  make(1, 64, 4, 32);
  for (RequestId id = 1; id <= 3; ++id) submit(id, 4);
  const auto dropped = scheduler_->drain_dropped(Clock::now());
  ASSERT_EQ(dropped.size(), 1u);
  EXPECT_EQ(dropped[0].request->id, 3);
  EXPECT_EQ(dropped[0].reason, "the request queue is full");
  EXPECT_EQ(step(), "1:4");
}

TEST_F(SchedulerTest, CountsWaitingCompletionsAndDropsThemPerRequest) {
  options_.max_queued_requests = 2;
  make(1, 64, 4, 32);
  const auto submit_completions = [&](RequestId first, int n) {
    for (int i = 0; i < n; ++i) {
      auto request = find_request(first + i, 4);
      request->index = i;
      request->params.n = n;
      scheduler_->submit(std::move(request));
    }
  };
  submit_completions(1, 1);
  submit_completions(2, 4);  // exceeds the limit, but only one request waited before
  EXPECT_TRUE(scheduler_->drain_dropped(Clock::now()).empty());
  submit_completions(6, 3);
  const auto dropped = scheduler_->drain_dropped(Clock::now());
  ASSERT_EQ(dropped.size(), 3u);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(dropped[static_cast<size_t>(i)].request->id, 6 + i);
  EXPECT_EQ(scheduler_->num_waiting(), 5);
  EXPECT_EQ(step(), "1:4");
  for (const RequestId id : {2, 3}) ASSERT_NE(scheduler_->abort(id), nullptr);
  submit_completions(9, 1);  // two of the four still wait
  EXPECT_EQ(scheduler_->drain_dropped(Clock::now()).size(), 1u);
  ASSERT_NE(scheduler_->abort(4), nullptr);
  submit_completions(10, 1);
  EXPECT_TRUE(scheduler_->drain_dropped(Clock::now()).empty());
}

TEST_F(SchedulerTest, WithPrioritiesTheLowestIsDroppedAndTheHighestRunsFirst) {
  options_ = {.policy = SchedulePolicy::kPriority, .max_queued_requests = 2};
  make(1, 64, 4, 32);
  for (RequestId id = 1; id <= 3; ++id) {
    auto request = find_request(id, 4);
    request->priority = id == 1 ? -1 : static_cast<int>(id);
    scheduler_->submit(std::move(request));
  }
  const auto dropped = scheduler_->drain_dropped(Clock::now());
  ASSERT_EQ(dropped.size(), 1u);
  EXPECT_EQ(dropped[0].request->id, 1);
  EXPECT_EQ(step(), "3:4");
}

TEST_F(SchedulerTest, LofRunsTheLongestOutputFirstThenTheEarliestRequest) {
  options_ = {.policy = SchedulePolicy::kLof, .max_queued_requests = 3};
  make(2, 64, 4, 64);
  submit(1, 4, 8);
  submit(2, 4, 40);
  submit(3, 4, 9);
  submit(4, 4, 40);
  const auto dropped = scheduler_->drain_dropped(Clock::now());
  ASSERT_EQ(dropped.size(), 1u);
  EXPECT_EQ(dropped[0].request->id, 1) << "the last of the queue";
  EXPECT_EQ(step(), "2:4 4:4");
  EXPECT_EQ(step(), "2:1 4:1");
}

TEST_F(SchedulerTest, EndsRequestsWhoseDeadlineHasPassedWaitingOrRunning) {
  make(1, 64, 4, 32);
  const auto now = Clock::now();
  for (RequestId id = 1; id <= 3; ++id) {
    auto request = find_request(id, 4);
    if (id < 3) request->deadline = now + std::chrono::seconds(id);
    scheduler_->submit(std::move(request));
  }
  EXPECT_EQ(step(), "1:4");
  EXPECT_TRUE(scheduler_->drain_dropped(now).empty());
  const auto dropped = scheduler_->drain_dropped(now + std::chrono::seconds(2));
  ASSERT_EQ(dropped.size(), 2u);
  EXPECT_EQ(dropped[0].request->id, 1);
  EXPECT_EQ(dropped[1].request->id, 2);
  EXPECT_EQ(dropped[1].reason, "the deadline has passed");
  EXPECT_EQ(step(), "3:4");
}

TEST_F(SchedulerTest, LpmRunsTheLongestCachedPrefixFirst) {
  options_.policy = SchedulePolicy::kLpm;
  caching_ = EvictionPolicy::kLru;
  make(1, 64, 4, 32);
  submit(1, 20);
  step();
  scheduler_->finish(1);
  auto other = find_request(2, 20);
  other->tokens[4] = 5;
  scheduler_->submit(std::move(other));
  submit(3, 20);
  EXPECT_EQ(step(), "3:4") << "16 of 20 are cached";
  scheduler_->finish(3);
  EXPECT_EQ(step(), "2:16");
}

TEST_F(SchedulerTest, LpmDoesNotStarveRequestsWithoutCachedPrefix) {
  options_.policy = SchedulePolicy::kLpm;
  caching_ = EvictionPolicy::kLru;
  make(1, 64, 4, 32);
  submit(1, 20);
  step();
  scheduler_->finish(1);
  auto other = find_request(2, 20);
  other->tokens[0] = 5;
  scheduler_->submit(std::move(other));
  submit(3, 20);
  RequestId next = 4;
  for (RequestId first = 3; first != 2; ++next) {
    submit(next, 20);
    const std::string parts = step();
    first = std::stoll(parts);
    ASSERT_LT(next, 4 + 2 * WaitingQueue::kMaxOvertakes);
    scheduler_->finish(first);
  }
  EXPECT_GT(next, WaitingQueue::kMaxOvertakes) << "the longest prefix runs first until then";
  EXPECT_LE(next, 4 + WaitingQueue::kMaxOvertakes);
}

TEST_F(SchedulerTest, CountsASharedPrefixOnceInPagesAndPerRequestInKeys) {
  caching_ = EvictionPolicy::kLru;
  make(4, 64, 4, 24);
  limits_.max_kv_tokens = 1000;
  make_scheduler();
  for (RequestId id = 1; id <= 4; ++id) submit(id, 30, 1);
  // The first request computes 28 of the 30 tokens, which fill whole pages, for all requests.
  EXPECT_EQ(step(), "1:30 2:2 3:2 4:2");
  EXPECT_EQ(slots_->num_used_slots(), (7 + 4) * 4);
  EXPECT_EQ(memory_->num_held_tokens(), 120);

  make(4, 64, 4, 24);
  limits_.max_kv_tokens = 70;
  make_scheduler();
  for (RequestId id = 1; id <= 4; ++id) submit(id, 30, 1);
  EXPECT_EQ(step(), "1:30 2:2");
}

// Pages of the request's cached prefix count as evictable until they are locked.
TEST_F(SchedulerTest, LocksACachedPrefixBeforeItChecksForFreePages) {
  caching_ = EvictionPolicy::kLru;
  make(4, 64, 4, 12);  // 11 pages
  limits_.max_kv_tokens = 1000;
  make_scheduler();
  submit(1, 20);
  step();
  scheduler_->finish(1);
  auto other = find_request(2, 16);
  other->tokens[0] = 5;
  scheduler_->submit(std::move(other));
  EXPECT_EQ(step(), "2:16");
  submit(3, 24);  // 5 pages are cached; after request 2 grows, 1 is free
  EXPECT_EQ(step(), "2:1");
  scheduler_->finish(2);
  EXPECT_EQ(step(), "3:4");
}

TEST_F(SchedulerTest, ReportsReadsOfPendingKeys) {
  caching_ = EvictionPolicy::kLru;
  make(4, 64, 4, 32);
  submit(1, 20);
  EXPECT_TRUE(scheduler_->schedule().prefix_ready) << "one request";
  scheduler_->advance();
  submit(2, 20);
  EXPECT_TRUE(scheduler_->schedule().prefix_ready) << "after a prefix that an earlier step computed";
  scheduler_->advance();
  make(4, 64, 4, 32);
  for (RequestId id = 1; id <= 2; ++id) submit(id, 20);
  EXPECT_FALSE(scheduler_->schedule().prefix_ready);
}

TEST_F(SchedulerTest, PromptReusesKeysThatAnotherRequestComputed) {
  caching_ = EvictionPolicy::kLru;
  make(4, 16, 4, 32);
  submit(1, 4);
  step();
  submit(2, 40);
  EXPECT_EQ(step(), "1:1 2:12");
  scheduler_->finish(1);
  submit(3, 40);
  EXPECT_EQ(step(), "2:16");
  EXPECT_EQ(step(), "2:8 3:4") << "36 of 40 are computed";
  EXPECT_EQ(scheduler_->finish(3)->num_cached_tokens, 36);
}

TEST_F(SchedulerTest, RemovesThePagesOfAFailedStepFromTheCache) {
  caching_ = EvictionPolicy::kLru;
  make(4, 64, 4, 32);
  submit(1, 20);
  const auto& parts = scheduler_->schedule().requests;
  ASSERT_EQ(parts.size(), 1u);
  parts[0].request->finish_reason = FinishReason::kError;
  scheduler_->finish(1);
  scheduler_->fail_step();
  scheduler_->check_memory();
  EXPECT_EQ(memory_->num_cached_pages(), 0);
  submit(2, 20);
  EXPECT_EQ(step(), "2:20");
}

TEST_F(SchedulerTest, RejectsAPromptLargerThanThePool) {
  make(2, 64, 4, 3);
  try {
    submit(1, 8);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_STREQ(error.what(), "prompt of 8 tokens: the KV pool holds 8 (raise --max-total-tokens)");
  }
  submit(2, 7);
  EXPECT_EQ(step(), "2:7");
}

TEST_F(SchedulerTest, RunningRequestsHaveDisjointSlots) {
  make(4, 64, 4, 32);
  for (RequestId id = 1; id <= 4; ++id) submit(id, static_cast<int>(3 * id));
  step();
  step();
  std::set<int32_t> seen;
  int total = 0;
  for (const ScheduledRequest& part : scheduler_->schedule().requests) {
    for (int p = 0; p < part.request->num_slots; ++p) {
      const TokenSlot slot = rows_->row(part.request->row)[static_cast<size_t>(p)];
      EXPECT_GE(slot.value, 4) << "the padding page";
      EXPECT_EQ(slot.value % 4, p % 4);
      seen.insert(slot.value);
      ++total;
    }
  }
  EXPECT_EQ(static_cast<int>(seen.size()), total);
}

TEST_F(SchedulerTest, LimitsAdmissionByTheKeysOfAStep) {
  make_with_kv_limit(20);
  submit(1, 9, 0);
  submit(2, 8, 0);
  submit(3, 2, 0);
  EXPECT_EQ(step(), "1:9 2:8");
  EXPECT_EQ(step(), "1:1 2:1");
  EXPECT_EQ(scheduler_->num_waiting(), 1);
}

TEST_F(SchedulerTest, PreemptsWhenDecodesExceedTheKeysOfAStep) {
  make_with_kv_limit(20);
  submit(1, 9, 0);
  submit(2, 8, 0);
  EXPECT_EQ(step(), "1:9 2:8");
  EXPECT_EQ(step(), "1:1 2:1");
  EXPECT_EQ(step(), "2:1") << "21 keys exceed the limit: of equal answers, the longest prompt is preempted";
  EXPECT_EQ(scheduler_->num_waiting(), 1);
  scheduler_->finish(2);
  EXPECT_EQ(step(), "1:11");
}

TEST_F(SchedulerTest, RejectsAPromptLargerThanTheKeysOfAStep) {
  make_with_kv_limit(20);
  submit(1, 19);
  EXPECT_THROW(submit(2, 20), Error);
}

TEST_F(SchedulerTest, ReservesSlotsForDraftsAndFreesUnusedOnes) {
  drafts_ = {.max_tokens = 6, .max_reqs = 2};
  make(3, 64, 4, 32);
  limits_.max_draft_tokens = 12;
  make_scheduler();
  submit(1, 5, 20);
  submit(2, 5, 4);
  step();
  ScheduledStep& decode = scheduler_->schedule();
  ASSERT_EQ(decode.requests.size(), 2u);
  EXPECT_EQ(decode.requests[0].num_draft_slots, 6);
  EXPECT_EQ(decode.requests[1].num_draft_slots, 2)
      << "of 4 tokens, 1 exists and 1 is sampled after the drafts";
  EXPECT_EQ(decode.max_draft_tokens, 8);
  EXPECT_EQ(decode.num_tokens, 2);
  EXPECT_EQ(decode.mode, ForwardMode::kDecode);
  EXPECT_EQ(slots_->num_used_slots(), 12 + 8);

  decode.requests[0].request->draft.tokens = {1, 2, 3};
  scheduler_->settle_drafts();
  EXPECT_EQ(decode.requests[0].num_draft, 3);
  EXPECT_EQ(decode.requests[0].num_new, 4);
  EXPECT_EQ(decode.requests[1].num_draft, 0);
  EXPECT_EQ(decode.num_tokens, 5);
  EXPECT_EQ(decode.mode, ForwardMode::kTargetVerify);
  EXPECT_EQ(decode.requests[0].request->num_slots, 9);
  EXPECT_EQ(decode.requests[1].request->num_slots, 6);
  scheduler_->check_memory();

  decode.requests[0].num_accepted = decode.requests[0].num_kept = 1;
  scheduler_->advance();
  EXPECT_EQ(decode.requests[0].request->num_slots, 7);
  scheduler_->check_memory();
}

TEST_F(SchedulerTest, RunsAPlainDecodeStepWithoutDrafts) {
  drafts_ = {.max_tokens = 6, .max_reqs = 2};
  make(3, 64, 4, 32);
  limits_.max_draft_tokens = 12;
  make_scheduler();
  submit(1, 5, 20);
  step();
  ScheduledStep& decode = scheduler_->schedule();
  EXPECT_EQ(decode.requests[0].num_draft_slots, 6);
  scheduler_->settle_drafts();
  EXPECT_EQ(decode.mode, ForwardMode::kDecode);
  EXPECT_EQ(decode.num_tokens, 1);
  EXPECT_EQ(slots_->num_used_slots(), 8);
}

// While a prompt is computed, drafts get a quarter of the step. Each request may use all of it, but together
// they use it once.
TEST_F(SchedulerTest, DraftsOfAllRequestsShareTheTokensThatPromptsLeave) {
  drafts_ = {.max_tokens = 6, .max_reqs = 2};
  make(3, 16, 4, 32);
  limits_.max_draft_tokens = 12;
  make_scheduler();
  submit(1, 3, 20);
  submit(2, 3, 20);
  step();
  submit(3, 40);
  ScheduledStep& mixed = scheduler_->schedule();
  ASSERT_EQ(mixed.requests.size(), 3u);
  EXPECT_EQ(mixed.max_draft_tokens, 4);
  EXPECT_EQ(mixed.requests[0].num_draft_slots, 4);
  EXPECT_EQ(mixed.requests[1].num_draft_slots, 4);
  EXPECT_EQ(mixed.requests[2].num_new, 8) << "10 are left of 16, and a chunk ends at a page boundary";
  mixed.requests[0].request->draft.tokens = {1};
  mixed.requests[1].request->draft.tokens = {1, 2, 3, 4};
  scheduler_->settle_drafts();
  EXPECT_EQ(mixed.requests[0].num_draft, 1);
  EXPECT_EQ(mixed.requests[1].num_draft, 3);
  EXPECT_EQ(mixed.num_tokens, 2 + 4 + 8);
  EXPECT_EQ(mixed.mode, ForwardMode::kMixed);
  scheduler_->check_memory();
}

TEST_F(SchedulerTest, PromptsGetTheTokensThatDraftsDoNotUse) {
  drafts_ = {.max_tokens = 6, .max_reqs = 3};
  make(4, 16, 4, 32);
  limits_.max_draft_tokens = 12;
  make_scheduler();
  submit(1, 3, 20);
  submit(2, 3, 20);
  step();
  submit(3, 9);
  submit(4, 40);
  ScheduledStep& mixed = scheduler_->schedule();
  ASSERT_EQ(mixed.requests.size(), 3u) << "1 is left, less than a page of the last prompt";
  EXPECT_EQ(mixed.requests[2].num_new, 9);
  scheduler_->settle_drafts();
  ASSERT_EQ(mixed.requests.size(), 4u);
  EXPECT_EQ(mixed.requests[3].num_new, 4);
  EXPECT_EQ(mixed.num_tokens, 1 + 1 + 9 + 4);
  scheduler_->check_memory();
  scheduler_->advance();
  for (size_t i = 0; i < 3; ++i) mixed.requests[i].request->tokens.push_back(7);

  ScheduledStep& next = scheduler_->schedule();
  ASSERT_EQ(next.requests.size(), 4u);
  EXPECT_EQ(next.requests[3].num_new, 8) << "9 are left of 16";
  scheduler_->settle_drafts();
  EXPECT_EQ(next.requests[3].num_new, 12) << "13 are left without drafts";
  EXPECT_EQ(next.num_tokens, 15);
  scheduler_->check_memory();
}

TEST_F(SchedulerTest, ReservesOnlyFreeSlotsForDraftsAndPreemptsNoRequest) {
  options_.conservativeness = 0.0;
  drafts_ = {.max_tokens = 6, .max_reqs = 2};
  make(2, 64, 1, 14);  // 13 pages of one token
  limits_.max_draft_tokens = 12;
  make_scheduler();
  submit(1, 4, 20);
  EXPECT_EQ(step(), "1:4");
  submit(2, 4, 2);
  EXPECT_EQ(step(), "1:1 2:4") << "slots for drafts do not prevent its admission";
  const ScheduledStep& decode = scheduler_->schedule();
  ASSERT_EQ(decode.requests.size(), 2u);
  EXPECT_EQ(decode.requests[0].num_draft_slots, 1) << "2 of 13 are left: 6, 3 and 1 are tried";
  EXPECT_EQ(decode.requests[1].num_draft_slots, 0) << "its next token is its last";
  EXPECT_EQ(slots_->num_used_slots(), 12);
  scheduler_->settle_drafts();
  EXPECT_EQ(slots_->num_used_slots(), 11);
  EXPECT_EQ(scheduler_->num_preemptions(), 0);
}

}  // namespace
}  // namespace attend
