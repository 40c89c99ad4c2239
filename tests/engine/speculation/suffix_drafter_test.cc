// SuffixDrafter: drafts from a request's own text and from other outputs, with bounded memory.
#include "attend/engine/speculation/suffix_drafter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace attend {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class DraftedRequest {
 public:
  DraftedRequest(RequestId id, std::vector<int32_t> prompt, std::vector<int32_t> output = {}) {
    request.id = id;
    request.num_prompt = static_cast<int>(prompt.size());
    request.tokens = std::move(prompt);
    request.tokens.insert(request.tokens.end(), output.begin(), output.end());
  }

  std::vector<int32_t> draft(SuffixDrafter& drafter, int num_slots = 8) {
    request.draft.tokens.clear();
    ScheduledStep step;
    step.requests = {{.request = &request, .num_new = 1, .num_draft_slots = num_slots}};
    step.max_draft_tokens = num_slots;
    drafter.draft(step);
    return request.draft.tokens;
  }

  Request request;
};

TEST(SuffixDrafter, DraftsFromTheRequestsOwnText) {
  SuffixDrafter drafter({});
  DraftedRequest request(1, {1, 2, 3, 4, 5, 6}, {1, 2, 3});
  EXPECT_THAT(request.draft(drafter), ElementsAre(4, 5, 6)) << "one token per matched one";
  EXPECT_THAT(request.draft(drafter, 2), ElementsAre(4, 5));
  request.request.tokens.push_back(9);
  EXPECT_THAT(request.draft(drafter), IsEmpty());
}

TEST(SuffixDrafter, DraftsFromOutputsOfRunningAndPastRequests) {
  SuffixDrafter drafter({.max_spec_factor = 2.0});
  DraftedRequest past(1, {1}, {10, 11, 12, 13, 14}), running(2, {1}, {20, 21, 22, 23});
  drafter.end(past.request);
  running.draft(drafter);
  DraftedRequest other(3, {5, 6}, {10, 11});
  EXPECT_THAT(other.draft(drafter), ElementsAre(12, 13, 14));
  other.request.tokens = {5, 6, 21};
  EXPECT_THAT(other.draft(drafter), ElementsAre(22, 23));
  other.request.tokens = {5, 6, 1};
  EXPECT_THAT(other.draft(drafter), IsEmpty()) << "prompts of other requests are not used";
}

TEST(SuffixDrafter, KeepsOutputsOfALimitedNumberOfRequests) {
  SuffixDrafter drafter({.max_cached_requests = 2});
  for (int id = 1; id <= 5; ++id)
    drafter.end(DraftedRequest(id, {1}, {10 * id, 10 * id + 1, 10 * id + 2}).request);
  EXPECT_EQ(drafter.shared().num_sequences(), 2);
  EXPECT_THAT(DraftedRequest(6, {30}).draft(drafter), IsEmpty());
  EXPECT_THAT(DraftedRequest(7, {40}).draft(drafter), ElementsAre(41));
  SuffixDrafter own_only({.max_cached_requests = 0});
  own_only.end(DraftedRequest(1, {1}, {10, 11}).request);
  EXPECT_EQ(own_only.shared().num_tokens(), 0);
}

// Requests that run for long, and whose outputs are removed meanwhile, go on with a new sequence.
TEST(SuffixDrafter, BoundsItsMemory) {
  const SuffixDrafter::Limits limits{
      .shared_tokens = 500, .own_tokens = 800, .prompt_tokens = 100, .added_per_step = 64};
  SuffixDrafter drafter({.max_tree_depth = 12}, limits);
  std::mt19937 random(1);
  std::vector<DraftedRequest> running;
  for (int id = 0; id < 12; ++id)
    running.emplace_back(id, std::vector<int32_t>(random() % 300, static_cast<int32_t>(id)));
  int64_t num_drafted = 0;
  size_t most_bytes = 0;
  for (int step = 0; step < 2000; ++step) {
    DraftedRequest& request = running[random() % running.size()];
    for (int i = 0; i < 5; ++i) {
      const std::vector<int32_t>& tokens = request.request.tokens;
      request.request.tokens.push_back(tokens.size() > 9 && random() % 4 > 0
                                           ? tokens[tokens.size() - 9]
                                           : static_cast<int32_t>(random() % 50));
    }
    num_drafted += std::ssize(request.draft(drafter));
    ASSERT_LE(drafter.shared().num_tokens(), limits.shared_tokens);
    ASSERT_LE(drafter.num_own_tokens(), limits.own_tokens);
    most_bytes = std::max(most_bytes, drafter.shared().num_bytes());
    if (step % 100 < 99) continue;
    const RequestId id = 1000 + step;
    drafter.end(request.request);
    request = DraftedRequest(id, std::vector<int32_t>(random() % 300, 7));
  }
  EXPECT_GT(num_drafted, 1000) << "the test checks too little";
  // Arrays double, so up to half of their memory is unused.
  EXPECT_LE(most_bytes, 2u * SuffixDrafter::kBytesPerToken * 500u + 8192u);
  for (DraftedRequest& request : running) drafter.end(request.request);
  EXPECT_EQ(drafter.num_requests(), 0);
  EXPECT_EQ(drafter.num_own_tokens(), 0);
}

// A long prompt is added over several steps, with drafts from what has been added.
TEST(SuffixDrafter, AddsALongPromptOverSeveralSteps) {
  std::vector<int32_t> prompt;
  for (int i = 0; i < 200; ++i) prompt.push_back(i);
  SuffixDrafter drafter({}, {.prompt_tokens = 150, .added_per_step = 50});
  DraftedRequest request(1, prompt, {60});
  EXPECT_THAT(request.draft(drafter), ElementsAre(61)) << "tokens 50 to 99";
  request.request.tokens.back() = 170;
  EXPECT_THAT(request.draft(drafter), IsEmpty());
  EXPECT_THAT(request.draft(drafter), ElementsAre(171));
  request.request.tokens.back() = 20;
  EXPECT_THAT(request.draft(drafter), IsEmpty()) << "before the last 150 tokens of the prompt";
}

TEST(SuffixDrafter, SharesTheLimitOfAStep) {
  SuffixDrafter drafter({});
  DraftedRequest first(1, {1, 2, 3, 4, 1, 2}), second(2, {5, 6, 7, 8, 5, 6});
  ScheduledStep step;
  step.requests = {{.request = &first.request, .num_new = 1, .num_draft_slots = 4},
                   {.request = &second.request, .num_new = 1, .num_draft_slots = 4}};
  step.max_draft_tokens = 3;
  drafter.draft(step);
  EXPECT_THAT(first.request.draft.tokens, ElementsAre(3, 4));
  EXPECT_THAT(second.request.draft.tokens, ElementsAre(7));
}

}  // namespace
}  // namespace attend
