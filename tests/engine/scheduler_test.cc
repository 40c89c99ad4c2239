#include "attend/engine/scheduler.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "attend/base/error.h"

namespace attend {
namespace {

// A scheduler over real pools; "computing" a step just advances its requests.
class SchedulerTest : public testing::Test {
 protected:
  void make(int max_reqs, int max_tokens, int page_size, int num_pages, int context = 64) {
    limits_ = {.max_reqs = max_reqs, .max_tokens = max_tokens, .max_kv_tokens = page_size * (num_pages - 1)};
    rows_ = std::make_unique<ReqToTokenPool>(max_reqs, context);
    slots_ = make_allocator(page_size, num_pages);
    scheduler_ = std::make_unique<Scheduler>(limits_, *rows_, *slots_);
  }

  // The same with a limit of the keys of a step below what the pool holds.
  void make_with_kv_limit(int max_kv_tokens) {
    make(4, 64, 4, 32);
    limits_.max_kv_tokens = max_kv_tokens;
    scheduler_ = std::make_unique<Scheduler>(limits_, *rows_, *slots_);
  }

  void submit(RequestId id, int prompt_tokens) {
    auto request = std::make_unique<Request>();
    request->id = id;
    request->tokens.resize(static_cast<size_t>(prompt_tokens));
    std::iota(request->tokens.begin(), request->tokens.end(), 100);
    request->num_prompt = prompt_tokens;
    scheduler_->submit(std::move(request));
  }

  // One step; every request that samples gets a token. Returns "id:tokens" of each part, in order.
  std::string step() {
    std::string parts;
    for (const ScheduledRequest& part : scheduler_->schedule().requests) {
      parts +=
          (parts.empty() ? "" : " ") + std::to_string(part.request->id) + ":" + std::to_string(part.num_new);
      const bool samples = part.samples();
      part.request->num_computed += part.num_new;
      if (samples) part.request->tokens.push_back(7);
    }
    slots_->check_conservation();
    return parts;
  }

  BatchLimits limits_;
  std::unique_ptr<ReqToTokenPool> rows_;
  std::unique_ptr<SlotAllocator> slots_;
  std::unique_ptr<Scheduler> scheduler_;
};

TEST_F(SchedulerTest, HasNothingToDoWithoutRequests) {
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

TEST_F(SchedulerTest, MixesANewPromptWithRunningDecodes) {
  make(4, 64, 4, 32);
  submit(1, 5);
  step();
  submit(2, 3);
  EXPECT_EQ(scheduler_->schedule().mode, ForwardMode::kMixed);
  EXPECT_EQ(step(), "1:1 2:3");
}

TEST_F(SchedulerTest, ComputesALongPromptInChunksAndKeepsDecoding) {
  make(4, 8, 4, 32);
  submit(1, 2);
  step();
  submit(2, 20);
  EXPECT_EQ(step(), "1:1 2:7");
  EXPECT_EQ(step(), "1:1 2:7");
  EXPECT_EQ(step(), "1:1 2:6");
  EXPECT_EQ(step(), "1:1 2:1");
}

TEST_F(SchedulerTest, AChunkedPromptLeavesATokenForEveryLaterRequest) {
  make(4, 8, 4, 64);
  submit(1, 30);
  EXPECT_EQ(step(), "1:8");
  submit(2, 4);
  // The budget is used up by the first prompt, so the second waits for its last chunk.
  EXPECT_EQ(step(), "1:8");
  EXPECT_EQ(step(), "1:8");
  EXPECT_EQ(step(), "1:6 2:2");
  EXPECT_EQ(step(), "1:1 2:2");
  EXPECT_EQ(step(), "1:1 2:1");
}

TEST_F(SchedulerTest, AdmitsNoMoreThanTheRowsThereAre) {
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
  submit(2, 16);  // needs 4 pages and one left for the first
  submit(3, 4);
  EXPECT_EQ(step(), "1:4");
  scheduler_->finish(1);
  EXPECT_EQ(step(), "2:16");
}

TEST_F(SchedulerTest, PreemptsTheRequestAdmittedLastWhenPagesRunOut) {
  make(2, 64, 4, 6);  // 5 pages
  submit(1, 8);
  submit(2, 4);  // leaves a page for each
  EXPECT_EQ(step(), "1:8 2:4");
  EXPECT_EQ(step(), "1:1 2:1");  // both take a new page: the pool is full
  for (int i = 0; i < 3; ++i) EXPECT_EQ(step(), "1:1 2:1");
  EXPECT_EQ(step(), "1:1");  // 1 needs a fourth page, so 2 gives its own back
  EXPECT_EQ(scheduler_->num_waiting(), 1);
  const auto first = scheduler_->finish(1);
  EXPECT_EQ(first->num_preemptions, 0);
  // Prompt and output are computed anew: 4 prompt tokens and 5 generated ones.
  EXPECT_EQ(step(), "2:9");
  EXPECT_EQ(scheduler_->finish(2)->num_preemptions, 1);
  EXPECT_EQ(slots_->num_used_slots(), 0);
}

TEST_F(SchedulerTest, RefusesAPromptThatThePoolCanNeverHold) {
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

TEST_F(SchedulerTest, GivesRunningRequestsDisjointSlots) {
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

TEST_F(SchedulerTest, AdmitsNoMoreThanAStepMayAttendTo) {
  make_with_kv_limit(20);
  submit(1, 9);
  submit(2, 9);
  submit(3, 2);
  // 9 and 9 fit beside a next token of the first; 2 more would not, with a next token of each.
  EXPECT_EQ(step(), "1:9 2:9");
  EXPECT_EQ(step(), "1:1 2:1");
  EXPECT_EQ(scheduler_->num_waiting(), 1);
}

TEST_F(SchedulerTest, PreemptsWhenDecodesWouldAttendToMoreThanAStepMay) {
  make_with_kv_limit(20);
  submit(1, 9);
  submit(2, 9);
  EXPECT_EQ(step(), "1:9 2:9");
  EXPECT_EQ(step(), "1:1 2:1");
  EXPECT_EQ(step(), "1:1") << "21 keys are one too many: the one admitted last gives its own back";
  EXPECT_EQ(scheduler_->num_waiting(), 1);
  scheduler_->finish(1);
  EXPECT_EQ(step(), "2:11");
}

TEST_F(SchedulerTest, RefusesAPromptThatNoStepMayAttendTo) {
  make_with_kv_limit(20);
  submit(1, 19);
  EXPECT_THROW(submit(2, 20), Error);
}

}  // namespace
}  // namespace attend
