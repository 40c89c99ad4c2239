// A step's work items for CPU workers.
#pragma once

#include "attend/kernels/attention/attention_batch.h"
#include "attend/kernels/attention/attention_plan.h"

namespace attend::kernels {

// The work items of a batch: a pure function, so that a plan is a value to test. Query tiles of at most
// `q_tile` tokens; splits by limits.split_rule. KV ranges that no query of a tile can see are left out; a
// tile that sees nothing still has an item, which writes its empty rows. Refills `work`, which keeps its
// capacity.
//
// A tile is split when it is more than a quarter of what one worker has to do. kBalanced cuts it into equal
// parts of at least kMinSplitTokens keys. kFixed cuts it at the multiples of split_tokens, or leaves it whole
// (then the kernel merges at the same multiples, left to right, so a row's bits are the same); it stays whole
// when the partial results would exceed WorkBounds.
void make_work(const AttentionPlanLimits& limits, const QueryBatch& batch,
               const AttentionMask& attention_mask, int q_tile, Work& work);

inline constexpr int kMinSplitTokens = 256;

// Upper bounds of make_work()'s results for any batch within the limits.
struct WorkBounds {
  int64_t num_items = 0, num_merges = 0, num_partial_rows = 0;
};
WorkBounds work_bounds(const AttentionPlanLimits& limits, int q_tile);

}  // namespace attend::kernels
