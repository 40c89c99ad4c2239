// Arrays of steps with images.
#include "attend/exec/step_arrays.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace attend {
namespace {

using testing::ElementsAre;

ExecutorRequest request(RequestRow row, int num_computed, int num_new) {
  return {.row = row, .num_computed = num_computed, .num_new = num_new, .prompt_len = num_computed + num_new};
}

TEST(FindBidirectionalItems, SeparatesImagesAndRequests) {
  // Two images of the first request follow each other; the third one begins the second request, and its last
  // key is that of the second one.
  ExecutorBatch step;
  step.requests = {request(RequestRow(1), 10, 7), request(RequestRow(2), 13, 4)};
  step.token_ids.resize(11);
  step.last_keys = {0, 13, 13, 13, 16, 16, 16, 16, 16, 16, 16};
  const std::vector<BidirectionalItem> items = find_bidirectional_items(step);
  ASSERT_EQ(items.size(), 3u);
  const auto fields = [](const BidirectionalItem& item) {
    return std::vector{item.request_idx, item.first_token, item.num_tokens, item.end};
  };
  EXPECT_THAT(fields(items[0]), ElementsAre(0, 1, 3, 14));
  EXPECT_THAT(fields(items[1]), ElementsAre(0, 4, 3, 17));
  EXPECT_THAT(fields(items[2]), ElementsAre(1, 7, 4, 17));
}

TEST(FindBidirectionalItems, SkipsTextAndImagesOfOneToken) {
  ExecutorBatch step;
  step.requests = {request(RequestRow(1), 4, 5)};
  step.token_ids.resize(5);
  step.last_keys = {0, 0, 6, 0, 0};
  EXPECT_TRUE(find_bidirectional_items(step).empty());
  step.last_keys = {};
  EXPECT_TRUE(find_bidirectional_items(step).empty());
}

class StepArraysWithAxes : public testing::Test {
 protected:
  StepArraysWithAxes() {
    for (int i = 0; i < 3; ++i) {
      const RequestRow row = *rows_.allocate();
      const TokenSlot slots[] = {TokenSlot(8 * i + 8), TokenSlot(8 * i + 9), TokenSlot(8 * i + 10)};
      rows_.write(row, 0, slots);
      step_.requests.push_back(
          {.row = row, .num_computed = 2, .num_new = 1, .prompt_len = 2, .num_logit_rows = 1});
    }
    step_.mode = ForwardMode::kDecode;
    step_.token_ids = {5, 6, 7};
    step_.rules.resize(3);
  }

  const BatchLimits limits_{.max_reqs = 4, .max_tokens = 16, .max_kv_tokens = 64};
  ReqToTokenPool rows_{4, 8};
  ExecutorBatch step_;
  Stream stream_;
};

TEST_F(StepArraysWithAxes, PadTheAxesOfADecodeStep) {
  StepArrays arrays(limits_, rows_, rows_.table(), {}, /*has_prefix_info=*/true, /*has_axes=*/true);
  step_.rope_positions = {10, 11, 12, 20, 21, 22, 30, 31, 32};
  arrays.build(step_, stream_, StepSize::decode(4));
  EXPECT_THAT(arrays.model_input().rope_positions, ElementsAre(10, 11, 12, 0, 20, 21, 22, 0, 30, 31, 32, 0));
  EXPECT_THAT(arrays.batch().positions, ElementsAre(2, 2, 2, 0));
}

TEST_F(StepArraysWithAxes, HaveThePositionsOfTextOnEachAxis) {
  StepArrays arrays(limits_, rows_, rows_.table(), {}, /*has_prefix_info=*/true, /*has_axes=*/true);
  arrays.build(step_, stream_, StepSize::decode(4));
  EXPECT_THAT(arrays.model_input().rope_positions, ElementsAre(2, 2, 2, 0, 2, 2, 2, 0, 2, 2, 2, 0));
  StepArrays without(limits_, rows_, rows_.table());
  without.build(step_, stream_, StepSize::decode(4));
  EXPECT_TRUE(without.model_input().rope_positions.empty());
}

}  // namespace
}  // namespace attend
