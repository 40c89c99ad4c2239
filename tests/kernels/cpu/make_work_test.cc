#include "attend/kernels/attention/make_work.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <vector>

#include "attend/kernels/attention/unmasked_keys.h"

namespace attend::kernels {
namespace {

struct Batch {
  std::vector<int32_t> cu_seqlen_q, seqlen_kv;

  Batch(const std::vector<int32_t>& seqlen_q, std::vector<int32_t> kv) : seqlen_kv(std::move(kv)) {
    cu_seqlen_q.push_back(0);
    for (int32_t seqlen : seqlen_q) cu_seqlen_q.push_back(cu_seqlen_q.back() + seqlen);
  }
  QueryBatch view() const { return {.cu_seqlen_q = cu_seqlen_q, .seqlen_kv = seqlen_kv}; }
  int64_t num_kv_tokens() const {
    int64_t sum = 0;
    for (int32_t seqlen : seqlen_kv) sum += seqlen;
    return sum;
  }
};

AttentionPlanLimits limits_for(const Batch& batch, SplitRule rule, int num_workers) {
  return {.max_reqs = static_cast<int>(batch.seqlen_kv.size()),
          .max_tokens = batch.cu_seqlen_q.back(),
          .max_kv_tokens = batch.num_kv_tokens(),
          .num_q_heads = 8,
          .num_kv_heads = 2,
          .head_dim_v = 64,
          .split_rule = rule,
          .split_tokens = 128,
          .num_workers = num_workers};
}

Work make_test_work(const Batch& batch, const AttentionPlanLimits& limits,
                    const AttentionMask& attention_mask = {}, int q_tile = 16) {
  Work work;
  make_work(limits, batch.view(), attention_mask, q_tile, work);
  return work;
}

// Checks that each visible key of a token is in exactly one of its items. A token has either one final item,
// or items in consecutive partial rows that its merge references.
void expect_covers(const Batch& batch, const AttentionMask& attention_mask, const Work& work) {
  const QueryBatch view = batch.view();
  std::map<int32_t, MergeItem> merges;
  for (const MergeItem& merge : work.merges) ASSERT_TRUE(merges.emplace(merge.token, merge).second);
  std::set<int32_t> written_rows;
  for (int request = 0; request < view.num_reqs(); ++request) {
    const int32_t first_token = batch.cu_seqlen_q[static_cast<size_t>(request)];
    for (int32_t j = 0; j < batch.cu_seqlen_q[static_cast<size_t>(request) + 1] - first_token; ++j) {
      const UnmaskedKeys keys = visible_keys(view, attention_mask, request, j);
      std::vector<WorkItem> items;
      for (const WorkItem& item : work.items)
        if (item.request == request && item.q_begin <= j && j < item.q_end) items.push_back(item);
      ASSERT_FALSE(items.empty());
      std::sort(items.begin(), items.end(),
                [](const WorkItem& a, const WorkItem& b) { return a.kv_begin < b.kv_begin; });
      if (keys.begin < keys.last_end()) {
        EXPECT_LE(items.front().kv_begin, keys.begin);
        EXPECT_GE(items.back().kv_end, keys.last_end());
      }
      for (size_t i = 0; i + 1 < items.size(); ++i) EXPECT_EQ(items[i].kv_end, items[i + 1].kv_begin);
      if (items.size() == 1 && items[0].partial < 0) {
        EXPECT_FALSE(merges.contains(first_token + j));
        continue;
      }
      ASSERT_TRUE(merges.contains(first_token + j));
      const MergeItem merge = merges[first_token + j];
      ASSERT_EQ(static_cast<size_t>(merge.num_splits), items.size());
      for (int32_t split = 0; split < merge.num_splits; ++split) {
        const WorkItem& item = items[static_cast<size_t>(split)];
        const int32_t row = merge.partial + split * merge.stride;
        EXPECT_EQ(item.partial + j - item.q_begin, row);
        EXPECT_LT(row, work.num_partial_rows);
        EXPECT_TRUE(written_rows.insert(row).second) << "row " << row << " has two writers";
      }
    }
  }
}

TEST(MakeWork, SplitsQueriesIntoTilesWithTheirKeys) {
  const Batch batch({20}, {100});
  const Work work = make_test_work(batch, limits_for(batch, SplitRule::kNone, 1));
  ASSERT_EQ(work.items.size(), 2u);
  // The first tile has the highest cost: 16 queries of at most 96 keys.
  EXPECT_EQ(work.items[0].q_end, 16);
  EXPECT_EQ(work.items[0].kv_begin, 0);
  EXPECT_EQ(work.items[0].kv_end, 96);
  EXPECT_EQ(work.items[1].q_begin, 16);
  EXPECT_EQ(work.items[1].q_end, 20);
  EXPECT_EQ(work.items[1].kv_end, 100);
  EXPECT_EQ(work.items[1].partial, -1);
  EXPECT_TRUE(work.merges.empty());
}

TEST(MakeWork, SkipsKeysOutsideTheWindow) {
  const Batch batch({20}, {100});
  const Work work = make_test_work(batch, limits_for(batch, SplitRule::kNone, 1), {.window_left = 9});
  EXPECT_EQ(work.items[0].kv_begin, 80 - 9);
  EXPECT_EQ(work.items[1].kv_begin, 96 - 9);
}

TEST(MakeWork, EmptyRowHasAWorkItem) {
  const Batch batch({3, 1}, {0, 0});
  const Work work = make_test_work(batch, limits_for(batch, SplitRule::kBalanced, 4));
  ASSERT_EQ(work.items.size(), 2u);
  for (const WorkItem& item : work.items) EXPECT_EQ(item.kv_begin, item.kv_end);
}

TEST(MakeWork, SplitsADecodeOfOneRequestOverAllWorkers) {
  const Batch batch({1}, {32768});
  const Work work = make_test_work(batch, limits_for(batch, SplitRule::kBalanced, 8));
  // 4 items per worker over 2 KV heads.
  EXPECT_EQ(work.items.size(), 16u);
  for (const WorkItem& item : work.items) EXPECT_EQ(item.kv_end - item.kv_begin, 2048);
  ASSERT_EQ(work.merges.size(), 1u);
  EXPECT_EQ(work.merges[0].num_splits, 16);
}

TEST(MakeWork, DoesNotSplitIfManyRequestsKeepWorkersBusy) {
  const Batch batch(std::vector<int32_t>(64, 1), std::vector<int32_t>(64, 5000));
  const Work work = make_test_work(batch, limits_for(batch, SplitRule::kBalanced, 8));
  EXPECT_EQ(work.items.size(), 64u);
  EXPECT_TRUE(work.merges.empty());
}

TEST(MakeWork, MakesNoBalancedSplitShorterThanTheMinimum) {
  const Batch batch({1}, {1000});
  const Work work = make_test_work(batch, limits_for(batch, SplitRule::kBalanced, 64));
  EXPECT_EQ(work.items.size(), 3u);  // 1000 / 256
}

TEST(MakeWork, CutsFixedSplitsAtAbsoluteMultiples) {
  const Batch batch({1}, {1000});
  const Work work = make_test_work(batch, limits_for(batch, SplitRule::kFixed, 8), {.window_left = 700});
  for (const WorkItem& item : work.items) {
    EXPECT_TRUE(item.kv_begin % 128 == 0 || item.kv_begin == 999 - 700);
    EXPECT_TRUE(item.kv_end % 128 == 0 || item.kv_end == 1000);
  }
  EXPECT_EQ(work.items.size(), 6u);
}

TEST(MakeWork, KeepsATileWholeIfItsSplitsDoNotFit) {
  const Batch batch({16}, {4096});
  AttentionPlanLimits limits = limits_for(batch, SplitRule::kFixed, 8);
  EXPECT_EQ(work_bounds(limits, 16).num_partial_rows, 4096 / 128 + 1);  // 16 x 32 are requested
  EXPECT_EQ(make_test_work(batch, limits).items.size(), 1u);
}

TEST(MakeWork, CutsFixedSplitsAtThePlansDefaultSize) {
  const Batch batch({1}, {1000});
  AttentionPlanLimits default_size = limits_for(batch, SplitRule::kFixed, 8), explicit_size = default_size;
  default_size.split_tokens = 0;
  explicit_size.split_tokens = default_split_tokens(Device{});
  EXPECT_EQ(work_bounds(default_size, 16).num_partial_rows, work_bounds(explicit_size, 16).num_partial_rows);
  EXPECT_EQ(make_test_work(batch, default_size).items.size(),
            make_test_work(batch, explicit_size).items.size());
  EXPECT_GT(make_test_work(batch, default_size).items.size(), 1u);
}

TEST(MakeWork, CoversEveryVisibleKeyOnceWithinItsBounds) {
  std::mt19937 random(11);
  const auto upto = [&](int n) { return static_cast<int32_t>(random() % static_cast<unsigned>(n + 1)); };
  for (int round = 0; round < 600; ++round) {
    std::vector<int32_t> seqlen_q, seqlen_kv;
    for (int r = 0; r <= upto(5); ++r) {
      seqlen_q.push_back(upto(1) ? 1 : upto(70));
      seqlen_kv.push_back(upto(1) ? upto(100) : upto(5000));
    }
    const Batch batch(seqlen_q, seqlen_kv);
    const AttentionMask attention_mask{.causal = upto(3) != 0,
                                       .window_left = upto(1) ? -1 : upto(500),
                                       .chunk = upto(2) ? 0 : 1 + upto(400)};
    const auto rule = static_cast<SplitRule>(upto(2));
    const AttentionPlanLimits limits = limits_for(batch, rule, 1 + upto(15));
    const int q_tile = 1 + upto(31);
    const Work work = make_test_work(batch, limits, attention_mask, q_tile);
    expect_covers(batch, attention_mask, work);
    const WorkBounds bounds = work_bounds(limits, q_tile);
    EXPECT_LE(static_cast<int64_t>(work.items.size()), bounds.num_items);
    EXPECT_LE(static_cast<int64_t>(work.merges.size()), bounds.num_merges);
    EXPECT_LE(work.num_partial_rows, bounds.num_partial_rows);
    if (testing::Test::HasFailure()) FAIL() << "round " << round;
  }
}

}  // namespace
}  // namespace attend::kernels
