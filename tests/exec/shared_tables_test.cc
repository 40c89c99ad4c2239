// Executors that share rows, slots and window slots, each with its own K/V.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "attend/backends/table.h"
#include "attend/checkpoint/checkpoint.h"
#include "attend/exec/model_executor.h"
#include "attend/kv/allocator.h"
#include "attend/kv/cache_group.h"

namespace attend {
namespace {

constexpr int kPositions = 64, kPageTokens = 4, kRows = 2;

// A model in which some layers have a window of 16 tokens, with a separate pool half for them.
ExecutorConfig window_config() {
  ExecutorConfig config;
  config.checkpoint = open_checkpoint(ATTEND_SOURCE_DIR "/tests/goldens/qwen2-some-layers-slide");
  config.model = read_config(*config.checkpoint);
  const BackendEntry* const entry = find_backend(backend_table(), "cpu");
  config.resolution = {.prefill = entry, .decode = entry, .page_size = kPageTokens};
  config.backend = {.model = config.model.geometry(DType::kF32, DType::kF32),
                    .limits = {.max_reqs = kRows, .max_tokens = 32, .max_kv_tokens = 128},
                    .page_size = kPageTokens};
  config.backend.model.max_context_len = kPositions;
  config.storage = make_cache_storage_config(config.model.caches(), kPageTokens, DType::kF32, {},
                                             SwaHalf{.full_tokens_ratio = 0.5});
  config.storage.num_pages = 1 + kRows * kPositions / kPageTokens;
  return config;
}

// Row and slot tables of an engine, and its executors.
class SharedTables {
 public:
  explicit SharedTables(int num_executors) {
    const ExecutorConfig config = window_config();
    window_slots_ = make_window_slots(config.storage);
    groups_ = make_cache_groups(config.model.caches(), rows_, *slots_, {.window = window_slots_.get()});
    for (int i = 0; i < num_executors; ++i) {
      executors_.push_back(std::make_unique<ModelExecutor>(
          config, CacheTables{.rows = rows_, .window_slots = window_slots_.get()}));
      executors_.back()->load();
    }
  }

  // Allocates a row that shares the first `num_pages` pages of another row.
  RequestRow begin(RequestRow other = {}, int num_pages = 0) {
    const RequestRow row = *rows_.allocate();
    std::vector<PageId> pages;
    for (int page = 0; page < num_pages; ++page)
      pages.emplace_back(rows_.row(other)[static_cast<size_t>(page * kPageTokens)].value / kPageTokens);
    for (const auto& group : groups_) EXPECT_EQ(group->match(pages), num_pages);
    for (const auto& group : groups_) group->begin(row, 0, pages, num_pages);
    return row;
  }

  // Computes tokens [num_computed, tokens.size()) of a row on every executor, in varying order. Returns the
  // logits of the last token per executor.
  std::vector<std::vector<float>> step(RequestRow row, const std::vector<int32_t>& tokens, int num_computed) {
    const auto end = static_cast<int>(tokens.size());
    for (const auto& group : groups_)
      group->grow(row, num_computed, end, {.is_prompt = true, .prompt_end = end});
    ExecutorBatch batch;
    batch.mode = end - num_computed == 1 ? ForwardMode::kDecode : ForwardMode::kExtend;
    batch.requests = {{.row = row,
                       .num_computed = num_computed,
                       .num_new = end - num_computed,
                       .prompt_len = end,
                       .num_logit_rows = 1}};
    batch.token_ids = {tokens.begin() + num_computed, tokens.end()};
    batch.rules = {{.temperature = 0.0f}};
    std::vector<std::vector<float>> logits(executors_.size());
    for (size_t i = 0; i < executors_.size(); ++i) {
      const size_t which = (i + tokens.size()) % executors_.size();
      const View<float> row_logits = executors_[which]->launch(batch).logits.span<float>();
      logits[which].assign(row_logits.begin(), row_logits.end());
    }
    for (const auto& group : groups_) group->advance(row, end);
    return logits;
  }

 private:
  ReqToTokenPool rows_{kRows, kPositions};
  std::unique_ptr<SlotAllocator> slots_ = make_allocator(kPageTokens, 1 + kRows * kPositions / kPageTokens);
  std::unique_ptr<SwaSlots> window_slots_;
  std::vector<std::unique_ptr<CacheGroup>> groups_;
  std::vector<std::unique_ptr<ModelExecutor>> executors_;
};

TEST(SharedTables, TwoExecutorsComputeTheSameLogitsAsOne) {
  SharedTables single(1), shared(2);
  const auto expect_same_step = [&](RequestRow row, const std::vector<int32_t>& tokens, int num_computed) {
    const std::vector<float> expected = single.step(row, tokens, num_computed)[0];
    for (const std::vector<float>& logits : shared.step(row, tokens, num_computed))
      EXPECT_EQ(logits, expected);
    return static_cast<int32_t>(std::ranges::max_element(expected) - expected.begin());
  };
  std::vector<int32_t> prompt(20);
  std::iota(prompt.begin(), prompt.end(), 2);
  // Window pages are reused: the sequence is longer than three windows, and the half has room for two.
  std::vector<int32_t> tokens = prompt;
  const RequestRow row = single.begin();
  ASSERT_EQ(shared.begin(), row);
  tokens.push_back(expect_same_step(row, tokens, 0));
  // The other request continues a cached prefix with a different token.
  std::vector<int32_t> others(prompt.begin(), prompt.begin() + 3 * kPageTokens);
  others.push_back(100);
  const RequestRow other = single.begin(row, 3);
  ASSERT_EQ(shared.begin(row, 3), other);
  others.push_back(expect_same_step(other, others, 3 * kPageTokens));
  for (int i = 0; i < 35; ++i) {
    tokens.push_back(expect_same_step(row, tokens, static_cast<int>(tokens.size()) - 1));
    others.push_back(expect_same_step(other, others, static_cast<int>(others.size()) - 1));
  }
}

}  // namespace
}  // namespace attend
