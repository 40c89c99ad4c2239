// Executors: two models on the CPU that share rows and slots.
#include "attend/exec/executors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/exec/tiny_executor.h"
#include "tests/support/test_files.h"

namespace attend {
namespace {

using test::tiny_config;
using testing::ElementsAre;
using testing::Gt;
using testing::IsEmpty;

class ExecutorsTest : public testing::Test {
 protected:
  ExecutorsTest() : rows_(test::kMaxReqs, test::kContextLen), row_(*rows_.allocate()) {
    std::vector<TokenSlot> slots;
    for (int i = 0; i < test::kContextLen; ++i) slots.emplace_back(test::kPageSize + i);
    rows_.write(row_, 0, slots);
  }

  // The bundled model, and a second one of the same shape with dummy weights.
  std::unique_ptr<Executors> make_two() {
    ExecutorConfig dummy = tiny_config();
    dummy.checkpoint = nullptr;
    std::vector<std::unique_ptr<ModelExecutor>> executors;
    executors.push_back(std::make_unique<ModelExecutor>(tiny_config(), CacheTables{rows_}));
    executors.push_back(std::make_unique<ModelExecutor>(std::move(dummy), CacheTables{rows_}));
    return std::make_unique<Executors>(std::move(executors));
  }
  std::vector<float> logits_of_prompt(Executor& executor) {
    ExecutorBatch batch;
    batch.mode = ForwardMode::kExtend;
    batch.requests = {{.row = row_, .num_computed = 0, .num_new = 3, .prompt_len = 3, .num_logit_rows = 1}};
    batch.token_ids = {5, 6, 7};
    batch.rules = {{.temperature = 0.0f}};
    const TensorView logits = executor.launch(batch).logits;
    return {logits.as<const float>(), logits.as<const float>() + logits.num_elements()};
  }

  ReqToTokenPool rows_;
  RequestRow row_;
};

TEST_F(ExecutorsTest, LoadsEachExecutorAndReportsItsBytes) {
  const std::unique_ptr<Executors> executors = make_two();
  std::vector<ExecutorInfo> infos(2);
  executors->complete(infos);
  EXPECT_EQ(infos[0].weight_bytes + infos[1].weight_bytes, 0u) << "no weights are loaded";
  std::vector<size_t> totals;
  executors->load([&](size_t done, size_t total) {
    if (done == total) totals.push_back(total);
  });
  EXPECT_GE(totals.size(), 2u);
  executors->complete(infos);
  for (const ExecutorInfo& info : infos) {
    EXPECT_GT(info.weight_bytes, 1'000'000u);
    EXPECT_THAT(info.graph_sizes, IsEmpty());
    EXPECT_FALSE(info.has_kv_scales);
  }
  EXPECT_NO_THROW(executors->check_weights());
  test::expect_error(ErrorCode::kInternal, {"1 infos for 2 executors"},
                     [&] { executors->complete(std::span(infos).first(1)); });
}

TEST_F(ExecutorsTest, ComputesStepsWithTheFirstExecutor) {
  ModelExecutor same(tiny_config(), {rows_});
  same.load();
  const std::unique_ptr<Executors> executors = make_two();
  executors->load();
  EXPECT_EQ(logits_of_prompt(executors->target()), logits_of_prompt(same));
}

TEST_F(ExecutorsTest, RecordsNoGraphsWithoutDecodeSizes) {
  const std::unique_ptr<Executors> executors = make_two();
  executors->load();
  EXPECT_NO_THROW(executors->record_graphs());
}

TEST_F(ExecutorsTest, ReportsModifiedFilesOfAnyExecutor) {
  const test::TempDir copy;
  std::filesystem::copy(ATTEND_SOURCE_DIR "/models/attend-tiny", copy.path());
  ExecutorConfig second = tiny_config();
  second.checkpoint = open_checkpoint(copy.path());
  std::vector<std::unique_ptr<ModelExecutor>> each;
  each.push_back(std::make_unique<ModelExecutor>(tiny_config(), CacheTables{rows_}));
  each.push_back(std::make_unique<ModelExecutor>(second, CacheTables{rows_}));
  Executors executors(std::move(each));
  executors.load();
  EXPECT_NO_THROW(executors.check_weights());
  std::filesystem::last_write_time(copy.path() / "model.safetensors",
                                   std::filesystem::file_time_type::clock::now() + std::chrono::seconds(5));
  test::expect_error(ErrorCode::kCorruptFile, {"model.safetensors"}, [&] { executors.check_weights(); });
}

}  // namespace
}  // namespace attend
