// Each executor of an engine is resolved independently; their pools are sized together.
#include "attend/engine/resolve/resolve_executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "attend/engine/resolve/resolve_engine.h"
#include "tests/support/error_message.h"

namespace attend {
namespace {

using testing::ContainsRegex;
using testing::SizeIs;
using testing_support::error_message;

class ResolveExecutor : public testing::Test {
 protected:
  ResolveExecutor() : checkpoint_(open_checkpoint(ATTEND_SOURCE_DIR "/models/attend-tiny")) {
    model_ = read_config(*checkpoint_);
    config_.model_path = checkpoint_->path();
    config_.max_total_tokens = 640;
    info_.context_length = 128;
    info_.limits = {.max_reqs = 4, .max_tokens = 64};
  }

  ResolvedExecutor resolve(const ModelSpec& model, std::optional<int> page_size = {}) const {
    return resolve_executor(
        config_, model, checkpoint_,
        {.limits = info_.limits, .context_length = info_.context_length, .page_size = page_size});
  }
  ResolvedEngine sized(int num_executors) const {
    return set_sizes(config_, info_, std::vector(static_cast<size_t>(num_executors), resolve(model_)));
  }

  std::shared_ptr<const Checkpoint> checkpoint_;
  ModelSpec model_;
  EngineConfig config_;
  EngineInfo info_;
};

TEST_F(ResolveExecutor, ChoosesThePageSizeOnlyIfNoneIsGiven) {
  const ResolvedExecutor target = resolve(model_);
  const int chosen = target.info.resolution.page_size;
  ASSERT_NE(chosen, 8);
  const ResolvedExecutor second = resolve(model_, 8);
  EXPECT_EQ(second.info.resolution.page_size, 8);
  EXPECT_EQ(second.config.backend.page_size, 8);
}

TEST_F(ResolveExecutor, ReportsTheSizesOfItsOwnModel) {
  ModelSpec half = model_;
  half.layers.resize(model_.layers.size() / 2);
  const ResolvedExecutor target = resolve(model_), second = resolve(half, 16);
  EXPECT_EQ(second.info.model, model_.architecture);
  EXPECT_EQ(2 * second.info.kv_token_bytes, target.info.kv_token_bytes);
  EXPECT_EQ(second.config.model.num_layers(), half.num_layers());
  EXPECT_EQ(second.config.backend.model.layers.size(), half.layers.size());
}

TEST_F(ResolveExecutor, AssignsTheSameNumberOfPagesToAllPools) {
  const ResolvedEngine one = sized(1), two = sized(2);
  EXPECT_EQ(two.num_pages, one.num_pages);
  EXPECT_EQ(two.info.pool_slots, 640);
  EXPECT_EQ(two.info.limits.max_kv_tokens, 640);
  ASSERT_THAT(two.info.executors, SizeIs(2));
  ASSERT_THAT(two.executors, SizeIs(2));
  for (const ExecutorInfo& info : two.info.executors) {
    EXPECT_EQ(info.pool_bytes, one.info.target().pool_bytes);
    EXPECT_EQ(info.workspace_bytes, one.info.target().workspace_bytes);
  }
  for (const ExecutorConfig& config : two.executors) EXPECT_EQ(config.backend.limits.max_kv_tokens, 640);
  EXPECT_EQ(two.info.pool_bytes(), 2 * one.info.pool_bytes());
}

// The requests could use more than the available memory. The bound is loose since other processes may
// allocate memory between the two calls.
TEST_F(ResolveExecutor, DividesTheMemoryAmongPoolsWithoutAGivenSize) {
  config_.max_total_tokens = 0;
  config_.max_kv_tokens = 1024;
  info_.limits.max_reqs = 1 << 14;
  info_.context_length = 4096;
  EXPECT_LT(sized(2).num_pages, 0.75 * sized(1).num_pages);
}

TEST_F(ResolveExecutor, AddsTheBytesOfAllExecutorsInTheMemoryCheck) {
  config_.max_total_tokens = 2'000'000'000;
  const auto needed = [&](int num_executors) {
    const std::string message = error_message(ErrorCode::kOutOfMemory, [&] { sized(num_executors); });
    EXPECT_THAT(message, ContainsRegex("KV pool of 2000000000 tokens: needed [0-9]+ bytes"));
    return std::stoull(message.substr(message.find("needed ") + 7));
  };
  EXPECT_EQ(needed(2), 2 * needed(1));
}

}  // namespace
}  // namespace attend
