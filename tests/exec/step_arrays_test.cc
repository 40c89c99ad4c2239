// Arrays of steps with images.
#include "attend/exec/step_arrays.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace attend {
namespace {

using testing::ElementsAre;

class StepArraysOfImages : public testing::Test {
 protected:
  StepArraysOfImages() {
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

TEST_F(StepArraysOfImages, PadTheAxesOfADecodeStep) {
  StepArrays arrays(limits_, rows_, rows_.table(), {}, /*has_prefix_info=*/true, /*has_axes=*/true);
  step_.rope_positions = {10, 11, 12, 20, 21, 22, 30, 31, 32};
  arrays.build(step_, stream_, StepSize::decode(4));
  EXPECT_THAT(arrays.model_input().rope_positions, ElementsAre(10, 11, 12, 0, 20, 21, 22, 0, 30, 31, 32, 0));
  EXPECT_THAT(arrays.batch().positions, ElementsAre(2, 2, 2, 0));
}

TEST_F(StepArraysOfImages, HaveThePositionsOfTextOnEachAxis) {
  StepArrays arrays(limits_, rows_, rows_.table(), {}, /*has_prefix_info=*/true, /*has_axes=*/true);
  arrays.build(step_, stream_, StepSize::decode(4));
  EXPECT_THAT(arrays.model_input().rope_positions, ElementsAre(2, 2, 2, 0, 2, 2, 2, 0, 2, 2, 2, 0));
  StepArrays without(limits_, rows_, rows_.table());
  without.build(step_, stream_, StepSize::decode(4));
  EXPECT_TRUE(without.model_input().rope_positions.empty());
}

TEST_F(StepArraysOfImages, HaveTheLengthsOfItems) {
  StepArrays arrays(limits_, rows_, rows_.table());
  step_.mode = ForwardMode::kMixed;
  step_.requests = {step_.requests[0], {.row = step_.requests[1].row, .num_new = 3, .prompt_len = 3}};
  step_.token_ids.resize(4);
  step_.rules.resize(1);
  step_.items = {{.request_idx = 1, .first_token = 2, .num_tokens = 2, .end = 3}};
  arrays.build(step_, stream_);
  ASSERT_EQ(arrays.batch().items.size(), 1u);
  const BidirectionalItem& item = arrays.batch().items[0];
  EXPECT_EQ(item.first_token, 2);
  EXPECT_THAT(item.cu_seqlen_q, ElementsAre(0, 2));
  EXPECT_THAT(item.seqlen_kv, ElementsAre(3));
}

}  // namespace
}  // namespace attend
