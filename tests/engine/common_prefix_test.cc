#include "attend/engine/common_prefix.h"

#include <gtest/gtest.h>

#include <vector>

namespace attend {
namespace {

constexpr int kPageSize = 4, kContextLen = 32;

class CommonPrefixTest : public testing::Test {
 protected:
  // A request whose pages are these, with all of its tokens but the last computed.
  Request& add(const std::vector<int>& pages, int num_tokens) {
    Request& request = *requests_.emplace_back(std::make_unique<Request>());
    request.id = static_cast<RequestId>(requests_.size());
    request.tokens.assign(static_cast<size_t>(num_tokens), 7);
    request.num_computed = num_tokens - 1;
    request.row = *rows_.allocate();
    write(request, pages);
    return request;
  }

  void write(Request& request, const std::vector<int>& pages) {
    std::vector<TokenSlot> slots;
    for (const int page : pages)
      for (int i = 0; i < kPageSize; ++i) slots.push_back(TokenSlot(page * kPageSize + i));
    rows_.write(request.row, 0, slots);
  }

  ScheduledStep step(ForwardMode mode = ForwardMode::kDecode) {
    ScheduledStep step;
    step.mode = mode;
    for (const auto& request : requests_) step.requests.push_back({request.get(), 1});
    step.num_tokens = static_cast<int>(requests_.size());
    return step;
  }

  ReqToTokenPool rows_{8, kContextLen};
  std::vector<std::unique_ptr<Request>> requests_;
  CommonPrefix common_{rows_, kPageSize, 1};
};

TEST_F(CommonPrefixTest, CountsWholePagesThatAllRequestsHave) {
  add({1, 2, 3, 4}, 14);
  add({1, 2, 5}, 12);
  add({1, 2, 3, 6}, 16);
  EXPECT_EQ(common_.num_keys(step()), 2 * kPageSize);
}

TEST_F(CommonPrefixTest, LeavesEveryRequestItsNewToken) {
  add({1, 2, 3}, 9);  // the new token begins the third page
  add({1, 2}, 8);     // the new token ends the second page
  EXPECT_EQ(common_.num_keys(step()), kPageSize);
}

TEST_F(CommonPrefixTest, IsNoneWhereOneRequestBeginsOtherwise) {
  add({1, 2, 3}, 10);
  add({4, 2, 3}, 10);
  EXPECT_EQ(common_.num_keys(step()), 0);
}

TEST_F(CommonPrefixTest, IsOfDecodeStepsOfSeveralRequests) {
  add({1, 2, 3}, 10);
  EXPECT_EQ(common_.num_keys(step()), 0);
  add({1, 2, 4}, 10);
  EXPECT_EQ(common_.num_keys(step(ForwardMode::kMixed)), 0);
  EXPECT_EQ(common_.num_keys(step()), 2 * kPageSize);
}

TEST_F(CommonPrefixTest, LooksAgainWhenOtherRequestsDecode) {
  add({1, 2, 3}, 10);
  add({1, 2, 4}, 10);
  EXPECT_EQ(common_.num_keys(step()), 2 * kPageSize);
  add({1, 5, 6}, 10);
  EXPECT_EQ(common_.num_keys(step()), kPageSize);
  requests_.pop_back();
  EXPECT_EQ(common_.num_keys(step()), 2 * kPageSize);
}

TEST_F(CommonPrefixTest, LooksAgainAfterAStepThatMovedRequests) {
  add({1, 2, 3}, 10);
  Request& second = add({1, 2, 4}, 10);
  EXPECT_EQ(common_.num_keys(step()), 2 * kPageSize);
  write(second, {1, 7, 4});  // preempted, and computed anew
  EXPECT_EQ(common_.num_keys(step(ForwardMode::kMixed)), 0);
  EXPECT_EQ(common_.num_keys(step()), kPageSize);
}

TEST_F(CommonPrefixTest, CountsFromTheReadsOnThatItMustSave) {
  add({1, 2, 3}, 10);
  add({1, 2, 4}, 10);
  EXPECT_EQ(CommonPrefix(rows_, kPageSize, 8).num_keys(step()), 8);
  EXPECT_EQ(CommonPrefix(rows_, kPageSize, 9).num_keys(step()), 0);
  EXPECT_EQ(CommonPrefix(rows_, kPageSize, 0).num_keys(step()), 0);
}

}  // namespace
}  // namespace attend
