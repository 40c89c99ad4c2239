// A scheduled step is converted to the batch of an executor and its arrays.
#include "attend/engine/step/step_batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "attend/exec/step_arrays.h"
#include "attend/kv/storage/device_slot_map.h"
#include "attend/kv/window/swa_slots.h"
#include "tests/support/error_message.h"

namespace attend {
namespace {

using testing::ElementsAre;

// Converts a scheduled step to the arrays of an executor.
class StepInputs {
 public:
  StepInputs(const BatchLimits& limits, const ReqToTokenPool& rows, std::span<StepColumn* const> columns = {})
      : batch_(limits), arrays_(limits, rows, rows.table(), columns) {}
  void build(const ScheduledStep& step, Stream& stream, int padded_reqs = 0) {
    build(step, stream, StepSize::decode(padded_reqs));
  }
  void build(const ScheduledStep& step, Stream& stream, const StepSize& size) {
    arrays_.build(batch_.build(step), stream, size);
  }
  const ForwardBatch& batch() const { return arrays_.batch(); }
  const ModelInput& model_input() const { return arrays_.model_input(); }
  View<const kernels::SamplingRule> rules() const { return arrays_.rules(); }
  View<const int32_t> sampling_requests() const { return batch_.sampling_requests(); }

 private:
  StepBatch batch_;
  StepArrays arrays_;
};

TEST(StepBatch, DescribesAMixedStep) {
  const BatchLimits limits{.max_reqs = 3, .max_tokens = 16, .max_kv_tokens = 64};
  ReqToTokenPool rows(3, 16);
  Request decoding, chunk;
  decoding.tokens = {10, 11, 12};
  decoding.num_prompt = 2;
  decoding.num_computed = 2;
  decoding.row = *rows.allocate();
  const TokenSlot decoding_slots[] = {TokenSlot(8), TokenSlot(9), TokenSlot(10)};
  rows.write(decoding.row, 0, decoding_slots);
  chunk.tokens = {20, 21, 22, 23, 24};
  chunk.num_prompt = 5;
  chunk.num_computed = 1;
  chunk.row = *rows.allocate();
  const TokenSlot chunk_slots[] = {TokenSlot(4), TokenSlot(5), TokenSlot(6), TokenSlot(7), TokenSlot(12)};
  rows.write(chunk.row, 0, chunk_slots);

  StepInputs inputs(limits, rows);
  Stream stream;
  ScheduledStep step{.requests = {{&decoding, 1}, {&chunk, 3}}, .num_tokens = 4, .mode = ForwardMode::kMixed};
  inputs.build(step, stream);

  const ForwardBatch& batch = inputs.batch();
  EXPECT_EQ(batch.mode, ForwardMode::kMixed);
  EXPECT_EQ(batch.num_reqs, 2);
  EXPECT_EQ(batch.num_tokens, 4);
  EXPECT_EQ(batch.max_seqlen_q, 3);
  EXPECT_EQ(batch.max_seqlen_kv, 4);
  EXPECT_THAT(batch.request_rows, ElementsAre(decoding.row, chunk.row));
  EXPECT_THAT(batch.seqlen_kv, ElementsAre(3, 4));
  EXPECT_THAT(batch.cu_seqlen_q, ElementsAre(0, 1, 4));
  EXPECT_THAT(batch.positions, ElementsAre(2, 1, 2, 3));
  EXPECT_THAT(batch.out_slots, ElementsAre(TokenSlot(10), TokenSlot(5), TokenSlot(6), TokenSlot(7)));
  EXPECT_THAT(inputs.model_input().prompt_lens, ElementsAre(2, 5));
  EXPECT_THAT(inputs.model_input().token_ids, ElementsAre(12, 21, 22, 23));
  // The chunk does not end its prompt, so only the decoding request samples.
  EXPECT_THAT(inputs.model_input().logit_rows, ElementsAre(0));
  EXPECT_THAT(inputs.sampling_requests(), ElementsAre(0));
}

TEST(StepBatch, ReportsWindowSlotsOfNewTokens) {
  const BatchLimits limits{.max_reqs = 2, .max_tokens = 8, .max_kv_tokens = 16};
  ReqToTokenPool rows(2, 8);
  SwaSlots swa(4, 6, 4);
  Request request;
  request.tokens = {1, 2};
  request.num_prompt = 1;
  request.num_computed = 1;
  request.row = *rows.allocate();
  const TokenSlot slots[] = {TokenSlot(20), TokenSlot(21)};
  rows.write(request.row, 0, slots);
  ASSERT_TRUE(swa.map(slots));
  DeviceSlotMap slot_map(swa, {});
  StepColumn* const columns[] = {&slot_map};
  StepInputs inputs(limits, rows, columns);
  Stream stream;
  ScheduledStep step{.requests = {{&request, 1}}, .num_tokens = 1, .mode = ForwardMode::kDecode};
  inputs.build(step, stream, /*padded_reqs=*/2);
  EXPECT_THAT(inputs.batch().out_slots, ElementsAre(TokenSlot(21), kNoSlot));
  EXPECT_THAT(slot_map.entries(), ElementsAre(swa.translate(TokenSlot(21)).value, -1));
}

// Column of a cache group unknown to the step arrays: the last slot of each request.
class LastSlotColumn final : public StepColumn {
 public:
  LastSlotColumn() : StepColumn(Length::kRequests) {}
  void fill(const HostStep& step, View<int32_t> entries) const override {
    for (size_t i = 0; i < entries.size(); ++i)
      entries[i] = step.request_rows[i] == kPaddingRow
                       ? -7
                       : step.out_slots[static_cast<size_t>(step.cu_seqlen_q[i + 1]) - 1].value;
  }
};

TEST(StepBatch, IncludesColumnsOfAnyCacheGroup) {
  const BatchLimits limits{.max_reqs = 3, .max_tokens = 8, .max_kv_tokens = 16};
  ReqToTokenPool rows(2, 8);
  SwaSlots swa(4, 6, 4);
  std::vector<Request> requests(2);
  const std::vector<TokenSlot> slots[] = {{TokenSlot(20), TokenSlot(21)}, {TokenSlot(9), TokenSlot(8)}};
  for (size_t i = 0; i < 2; ++i) {
    requests[i].tokens = {1, 2};
    requests[i].num_prompt = 1;
    requests[i].num_computed = 1;
    requests[i].row = *rows.allocate();
    rows.write(requests[i].row, 0, slots[i]);
    ASSERT_TRUE(swa.map(slots[i]));
  }
  DeviceSlotMap slot_map(swa, {});
  LastSlotColumn last_slots;
  StepColumn* const columns[] = {&last_slots, &slot_map};
  StepInputs inputs(limits, rows, columns);
  Stream stream;
  const ScheduledStep step{
      .requests = {{&requests[0], 1}, {&requests[1], 1}}, .num_tokens = 2, .mode = ForwardMode::kDecode};
  inputs.build(step, stream, /*padded_reqs=*/3);
  EXPECT_THAT(last_slots.entries(), ElementsAre(21, 8, -7));
  EXPECT_THAT(slot_map.entries(),
              ElementsAre(swa.translate(TokenSlot(21)).value, swa.translate(TokenSlot(8)).value, -1));
  const int32_t* const address = slot_map.entries().data();
  inputs.build({.requests = {{&requests[1], 1}}, .num_tokens = 1, .mode = ForwardMode::kDecode}, stream, 3);
  EXPECT_THAT(last_slots.entries(), ElementsAre(8, -7, -7));
  EXPECT_EQ(slot_map.entries().data(), address);
}

TEST(StepBatch, KeepsItsAddressesInStepsPaddedToTheSameSize) {
  const BatchLimits limits{.max_reqs = 3, .max_tokens = 8, .max_kv_tokens = 16};
  ReqToTokenPool rows(3, 8);
  std::vector<Request> requests(2);
  for (Request& request : requests) {
    request.tokens = {1, 2};
    request.num_prompt = 1;
    request.num_computed = 1;
    request.row = *rows.allocate();
    const TokenSlot slots[] = {TokenSlot(1), TokenSlot(2)};
    rows.write(request.row, 0, slots);
  }
  StepInputs inputs(limits, rows);
  Stream stream;
  ScheduledStep step{.requests = {{&requests[0], 1}}, .num_tokens = 1, .mode = ForwardMode::kDecode};
  inputs.build(step, stream, 3);
  const auto addresses = [&] {
    const ForwardBatch& batch = inputs.batch();
    return std::vector<const void*>{batch.request_rows.data(),
                                    batch.seqlen_kv.data(),
                                    batch.cu_seqlen_q.data(),
                                    batch.positions.data(),
                                    batch.out_slots.data(),
                                    inputs.model_input().token_ids.data(),
                                    inputs.model_input().logit_rows.data(),
                                    inputs.model_input().prompt_lens.data(),
                                    inputs.rules().data()};
  };
  const auto before = addresses();
  step.requests.push_back({&requests[1], 1});
  step.num_tokens = 2;
  inputs.build(step, stream, 3);
  EXPECT_EQ(addresses(), before);
  EXPECT_EQ(inputs.batch().num_tokens, 3);
  EXPECT_THAT(inputs.batch().seqlen_kv, ElementsAre(2, 2, 1));
  EXPECT_THAT(inputs.batch().out_slots, ElementsAre(TokenSlot(2), TokenSlot(2), kNoSlot));
}

// Attention plans and graphs are chosen by the longest request of a step.
TEST(StepBatch, BoundsKeysByTheLongestRequestWithItsDraft) {
  const BatchLimits limits{.max_reqs = 4, .max_tokens = 16, .max_kv_tokens = 64, .max_draft_tokens = 3};
  ReqToTokenPool rows(4, 16);
  const TokenSlot slots[] = {TokenSlot(1), TokenSlot(2), TokenSlot(3), TokenSlot(4), TokenSlot(5)};
  Request drafted, longest;
  drafted.tokens = {1, 2};
  drafted.num_prompt = 1;
  drafted.num_computed = 1;
  drafted.draft.tokens = {3, 4, 5};
  longest.tokens = {1, 2, 3, 4};
  longest.num_prompt = 3;
  longest.num_computed = 3;
  for (Request* request : {&drafted, &longest}) {
    request->row = *rows.allocate();
    rows.write(request->row, 0, slots);
  }
  StepInputs inputs(limits, rows);
  Stream stream;
  inputs.build({.requests = {{&drafted, 1}, {&longest, 1}}, .num_tokens = 2, .mode = ForwardMode::kDecode},
               stream, /*padded_reqs=*/4);
  EXPECT_EQ(inputs.batch().max_seqlen_kv, 4);
  inputs.build({.requests = {{.request = &drafted, .num_new = 4, .num_draft = 3}, {&longest, 1}},
                .num_tokens = 5,
                .mode = ForwardMode::kTargetVerify},
               stream);
  EXPECT_EQ(inputs.batch().max_seqlen_kv, 5);
}

// Graphs are captured with such a batch. Attention is planned for the maximum number of query rows per
// request.
TEST(StepBatch, PaddingHasOneTokenPerRequest) {
  ReqToTokenPool rows(3, 8);
  StepInputs inputs({.max_reqs = 3, .max_tokens = 8, .max_kv_tokens = 16}, rows);
  Stream stream;
  inputs.build({.requests = {}, .num_tokens = 0, .mode = ForwardMode::kDecode}, stream, 3);
  EXPECT_EQ(inputs.batch().num_reqs, 3);
  EXPECT_EQ(inputs.batch().max_seqlen_q, 1);
  EXPECT_EQ(inputs.batch().max_seqlen_kv, 1);
  EXPECT_THAT(inputs.batch().cu_seqlen_q, ElementsAre(0, 1, 2, 3));
}

// A request with drafts and one without, padded to 4 requests and 8 tokens: two pad requests of one token,
// and two pad tokens after the last request. Rows of logits of the step's own tokens come first.
TEST(StepBatch, PadsAStepWithDrafts) {
  const BatchLimits limits{
      .max_reqs = 4, .max_tokens = 16, .max_kv_tokens = 64, .max_draft_tokens = 12, .max_draft_reqs = 4};
  ReqToTokenPool rows(4, 8);
  Request drafted, other;
  int first_slot = 8;
  for (Request* request : {&drafted, &other}) {
    request->tokens = {10, 11, 12};
    request->num_prompt = 2;
    request->num_computed = 2;
    request->row = *rows.allocate();
    std::vector<TokenSlot> slots;
    for (int i = 0; i < 8; ++i) slots.emplace_back(first_slot++);
    rows.write(request->row, 0, slots);
  }
  drafted.draft.tokens = {20, 21};
  StepInputs inputs(limits, rows);
  Stream stream;
  inputs.build({.requests = {{.request = &drafted, .num_new = 3, .num_draft = 2}, {&other, 1}},
                .num_tokens = 4,
                .mode = ForwardMode::kTargetVerify},
               stream, StepSize{.num_reqs = 4, .num_tokens = 8, .max_seqlen_q = 5});
  const ForwardBatch& batch = inputs.batch();
  EXPECT_EQ(batch.num_reqs, 4);
  EXPECT_EQ(batch.num_tokens, 8);
  EXPECT_EQ(batch.max_seqlen_q, 5);
  EXPECT_THAT(batch.seqlen_kv, ElementsAre(5, 3, 1, 1));
  EXPECT_THAT(batch.cu_seqlen_q, ElementsAre(0, 3, 4, 5, 6));
  EXPECT_THAT(batch.positions, ElementsAre(2, 3, 4, 2, 0, 0, 0, 0));
  EXPECT_THAT(batch.out_slots, ElementsAre(TokenSlot(10), TokenSlot(11), TokenSlot(12), TokenSlot(18),
                                           kNoSlot, kNoSlot, kNoSlot, kNoSlot));
  EXPECT_THAT(inputs.model_input().token_ids, ElementsAre(12, 20, 21, 12, 0, 0, 0, 0));
  EXPECT_THAT(inputs.model_input().logit_rows, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_TRUE(inputs.model_input().any_logit_rows) << "a graph of this size also serves other rows";
  EXPECT_THAT(inputs.sampling_requests(), ElementsAre(0, 0, 0, 1));
  EXPECT_EQ(inputs.rules().size(), 8u);
}

TEST(StepBatch, RejectsAStepWithAWrongNumberOfTokens) {
  const BatchLimits limits{.max_reqs = 1, .max_tokens = 8, .max_kv_tokens = 16};
  ReqToTokenPool rows(1, 8);
  Request request;
  request.tokens = {1, 2};
  request.num_prompt = 2;
  request.row = *rows.allocate();
  StepInputs inputs(limits, rows);
  Stream stream;
  const std::string message = testing_support::error_message(ErrorCode::kInternal, [&] {
    inputs.build({.requests = {{&request, 2}}, .num_tokens = 3, .mode = ForwardMode::kExtend}, stream);
  });
  EXPECT_THAT(message, testing::HasSubstr("step with 3 tokens, but requests with 2"));
}

}  // namespace
}  // namespace attend
