// Work items of a step for CPU workers.
#pragma once

#include "attend/kernels/attention/attention_batch.h"
#include "attend/kernels/attention/attention_plan.h"

namespace attend::kernels {

// Computes the work items of a batch. A pure function, so that tests can compare plans. Query tiles have at
// most `q_tile` tokens; splits depend on limits.split_rule. KV ranges that no query of a tile sees are
// skipped; a tile without keys still has an item, which writes its empty rows. Refills `work`, which keeps
// its capacity.
//
// A tile is split if it is more than a quarter of a worker's share. kBalanced cuts it into equal parts of at
// least kMinSplitTokens keys. kFixed cuts it at the multiples of split_tokens. If the partial results would
// exceed WorkBounds, it is not split: the kernel then merges at the same multiples from left to right, so the
// bits of a row are the same.
void make_work(const AttentionPlanLimits& limits, const QueryBatch& batch,
               const AttentionMask& attention_mask, int q_tile, Work& work);

inline constexpr int kMinSplitTokens = 256;

// Upper bounds of make_work()'s results for any batch within the limits.
struct WorkBounds {
  int64_t num_items = 0, num_merges = 0, num_partial_rows = 0;
};
WorkBounds work_bounds(const AttentionPlanLimits& limits, int q_tile);

}  // namespace attend::kernels
