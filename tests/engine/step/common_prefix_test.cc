#include "attend/engine/step/common_prefix.h"

#include <gtest/gtest.h>

#include <vector>

namespace attend {
namespace {

constexpr int kPageSize = 4, kContextLen = 32;

class CommonPrefixTest : public testing::Test {
 protected:
  // Adds a request with these pages, of which all tokens except the last are computed.
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

  // Shared prefix of a step with all requests in the order of add().
  SharedPrefix arrange(ForwardMode mode = ForwardMode::kDecode) { return arrange(common_, mode); }
  SharedPrefix arrange(CommonPrefix& common, ForwardMode mode) {
    step_.mode = mode;
    step_.requests.clear();
    for (const auto& request : requests_) step_.requests.push_back({request.get(), 1});
    step_.num_tokens = static_cast<int>(requests_.size());
    return common.arrange(step_);
  }
  // Shared prefix with a minimum number of saved reads of keys.
  SharedPrefix saving(int64_t min_saved_keys) {
    CommonPrefix common(rows_, kPageSize, min_saved_keys);
    return arrange(common, ForwardMode::kDecode);
  }
  // Order of the requests in the step after arrange().
  std::vector<RequestId> order() const {
    std::vector<RequestId> ids;
    for (const ScheduledRequest& part : step_.requests) ids.push_back(part.request->id);
    return ids;
  }

  ReqToTokenPool rows_{8, kContextLen};
  std::vector<std::unique_ptr<Request>> requests_;
  CommonPrefix common_{rows_, kPageSize, 1};
  ScheduledStep step_;
};

TEST_F(CommonPrefixTest, CountsWholePagesOfAllRequests) {
  add({1, 2, 3, 4}, 14);
  add({1, 2, 5}, 12);
  add({1, 2, 6, 7}, 16);
  EXPECT_EQ(arrange(), (SharedPrefix{2 * kPageSize, 3}));
  EXPECT_EQ(order(), (std::vector<RequestId>{1, 2, 3}));
}

TEST_F(CommonPrefixTest, PutsSharingRequestsFirst) {
  add({9, 2, 3}, 10);
  add({1, 2, 5}, 12);
  add({8, 2, 3}, 10);
  add({1, 2, 6}, 10);
  EXPECT_EQ(arrange(), (SharedPrefix{2 * kPageSize, 2}));
  EXPECT_EQ(order(), (std::vector<RequestId>{2, 4, 1, 3}));
  EXPECT_EQ(arrange(), (SharedPrefix{2 * kPageSize, 2})) << "the same requests in the next step";
  EXPECT_EQ(order(), (std::vector<RequestId>{2, 4, 1, 3}));
}

TEST_F(CommonPrefixTest, ChoosesTheSubsetThatSavesMost) {
  add({1, 2, 3, 4, 5}, 20);
  add({1, 2, 3, 4, 6}, 20);
  add({1, 7}, 8);
  add({1, 8}, 8);
  EXPECT_EQ(arrange(), (SharedPrefix{4 * kPageSize, 2})) << "4 pages once save more than 1 page three times";
  add({1, 9}, 8);
  add({1, 10}, 8);
  EXPECT_EQ(arrange(), (SharedPrefix{kPageSize, 6}));
}

TEST_F(CommonPrefixTest, ExcludesTheNewTokenOfEveryRequest) {
  add({1, 2, 3}, 9);  // the new token begins the third page
  add({1, 2}, 8);     // the new token ends the second page
  EXPECT_EQ(arrange().num_keys, kPageSize);
}

TEST_F(CommonPrefixTest, IsEmptyWithoutACommonPrefix) {
  add({1, 2, 3}, 10);
  add({4, 2, 3}, 10);
  EXPECT_EQ(arrange().num_keys, 0);
}

TEST_F(CommonPrefixTest, RequiresADecodeStepOfSeveralRequests) {
  add({1, 2, 3}, 10);
  EXPECT_EQ(arrange().num_keys, 0);
  add({1, 2, 4}, 10);
  EXPECT_EQ(arrange(ForwardMode::kMixed).num_keys, 0);
  EXPECT_EQ(arrange().num_keys, 2 * kPageSize);
}

TEST_F(CommonPrefixTest, RecomputesForOtherRequests) {
  add({1, 2, 3}, 10);
  add({1, 2, 4}, 10);
  EXPECT_EQ(arrange().num_keys, 2 * kPageSize);
  add({1, 5, 6}, 10);
  EXPECT_EQ(arrange().num_keys, kPageSize);
  requests_.pop_back();
  EXPECT_EQ(arrange().num_keys, 2 * kPageSize);
}

TEST_F(CommonPrefixTest, RecomputesAfterReordering) {
  add({1, 2, 3}, 10);
  Request& second = add({1, 2, 4}, 10);
  EXPECT_EQ(arrange().num_keys, 2 * kPageSize);
  write(second, {1, 7, 4});  // after preemption, computed again
  EXPECT_EQ(arrange(ForwardMode::kMixed).num_keys, 0);
  EXPECT_EQ(arrange().num_keys, kPageSize);
}

TEST_F(CommonPrefixTest, HonorsMinSavedKeys) {
  add({1, 2, 3}, 10);
  add({1, 2, 4}, 10);
  EXPECT_EQ(saving(8).num_keys, 8);
  EXPECT_EQ(saving(9).num_keys, 0);
  EXPECT_EQ(saving(0).num_keys, 0);
}

}  // namespace
}  // namespace attend
