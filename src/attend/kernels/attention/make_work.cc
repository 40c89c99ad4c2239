#include "attend/kernels/attention/make_work.h"

#include <algorithm>
#include <tuple>

#include "attend/base/math.h"
#include "attend/kernels/attention/unmasked_keys.h"

namespace attend::kernels {
namespace {

// Cost of reading and converting a key, in rows that are multiplied by it.
constexpr int64_t kRowsPerKeyRead = 8;
// Smallest number of items per worker, so that the last items to finish are short.
constexpr int64_t kItemsPerWorker = 4;
// Splits begin at multiples of this, like the kernels' tiles of keys.
constexpr int32_t kSplitAlignment = 64;

// A query tile and the keys that any of its queries may see.
struct Tile {
  int32_t request, q_begin, q_end;
  int32_t kv_begin, kv_end;

  int64_t num_tokens() const { return q_end - q_begin; }
  int64_t num_keys() const { return kv_end - kv_begin; }
};

Tile make_tile(const QueryBatch& batch, const AttentionMask& attention_mask, int32_t request, int32_t q_begin,
               int32_t q_end) {
  Tile tile{request, q_begin, q_end, 0, 0};
  for (int32_t j = q_begin; j < q_end; ++j) {
    const UnmaskedKeys keys = visible_keys(batch, attention_mask, request, j);
    if (keys.begin >= keys.last_end()) continue;
    tile.kv_begin = tile.kv_end == 0 ? keys.begin : std::min(tile.kv_begin, keys.begin);
    tile.kv_end = std::max(tile.kv_end, keys.last_end());
  }
  return tile;
}

// Calls fn(tile) for every query tile. The last tiles of a request are first: they see the most keys.
template <class Fn>
void for_each_tile(const QueryBatch& batch, const AttentionMask& attention_mask, int q_tile, const Fn& fn) {
  for (int32_t request = 0; request < batch.num_reqs(); ++request) {
    const auto r = static_cast<size_t>(request);
    const int32_t seqlen_q = batch.cu_seqlen_q[r + 1] - batch.cu_seqlen_q[r];
    for (int32_t tile = ceil_div(seqlen_q, q_tile) - 1; tile >= 0; --tile)
      fn(make_tile(batch, attention_mask, request, tile * q_tile, std::min(seqlen_q, (tile + 1) * q_tile)));
  }
}

// Cuts of a tile: begin + i * step, multiples of step or of kSplitAlignment.
struct Cuts {
  int32_t first = 0;
  int32_t step = 0;
  int32_t num_splits = 1;
};

Cuts whole(const Tile& tile) { return {tile.kv_begin, std::max<int32_t>(tile.kv_end - tile.kv_begin, 1), 1}; }

Cuts balanced_cuts(const Tile& tile, int64_t target_splits) {
  const auto most = std::max<int64_t>(1, tile.num_keys() / kMinSplitTokens);
  const auto splits = static_cast<int32_t>(std::min(target_splits, most));
  const int32_t first = tile.kv_begin / kSplitAlignment * kSplitAlignment;
  const int32_t step = round_up(ceil_div(tile.kv_end - first, splits), kSplitAlignment);
  return {first, step, ceil_div(tile.kv_end - first, step)};
}

int32_t choose_split_tokens(const AttentionPlanLimits& limits) {
  return limits.split_tokens > 0 ? limits.split_tokens : default_split_tokens(Device{});
}

Cuts fixed_cuts(const Tile& tile, int32_t split_tokens) {
  const int32_t first = tile.kv_begin / split_tokens * split_tokens;
  return {first, split_tokens, ceil_div(tile.kv_end - first, split_tokens)};
}

class WorkMaker {
 public:
  WorkMaker(const AttentionPlanLimits& limits, int q_tile, Work& work)
      : limits_(limits), max_partial_rows_(work_bounds(limits, q_tile).num_partial_rows), work_(work) {}

  int64_t cost(const Tile& tile) const {
    const int64_t group = limits_.num_q_heads / limits_.num_kv_heads;
    return tile.num_keys() * (tile.num_tokens() * group + kRowsPerKeyRead);
  }

  // `target_cost`: largest cost of an item, approximately.
  void add(const QueryBatch& batch, const Tile& tile, int64_t target_cost) {
    Cuts cuts = whole(tile);
    if (cost(tile) > target_cost) {
      if (limits_.split_rule == SplitRule::kBalanced)
        cuts = balanced_cuts(tile, ceil_div(cost(tile), target_cost));
      if (limits_.split_rule == SplitRule::kFixed) cuts = fixed_cuts(tile, choose_split_tokens(limits_));
    }
    const int64_t num_rows = cuts.num_splits * tile.num_tokens();
    if (cuts.num_splits == 1 || work_.num_partial_rows + num_rows > max_partial_rows_)
      add_unsplit(tile);
    else
      add_splits(batch, tile, cuts);
  }

 private:
  void add_unsplit(const Tile& tile) {
    work_.items.push_back({.request = tile.request,
                           .q_begin = tile.q_begin,
                           .q_end = tile.q_end,
                           .kv_begin = tile.kv_begin,
                           .kv_end = tile.kv_end,
                           .partial = -1});
  }

  void add_splits(const QueryBatch& batch, const Tile& tile, const Cuts& cuts) {
    const auto num_tokens = static_cast<int32_t>(tile.num_tokens());
    const auto first_row = static_cast<int32_t>(work_.num_partial_rows);
    for (int32_t split = 0; split < cuts.num_splits; ++split) {
      const int32_t begin = cuts.first + split * cuts.step;
      work_.items.push_back({.request = tile.request,
                             .q_begin = tile.q_begin,
                             .q_end = tile.q_end,
                             .kv_begin = std::max(tile.kv_begin, begin),
                             .kv_end = std::min(tile.kv_end, begin + cuts.step),
                             .partial = first_row + split * num_tokens});
    }
    const int32_t first_token = batch.cu_seqlen_q[static_cast<size_t>(tile.request)] + tile.q_begin;
    for (int32_t j = 0; j < num_tokens; ++j)
      work_.merges.push_back({.token = first_token + j,
                              .partial = first_row + j,
                              .stride = num_tokens,
                              .num_splits = cuts.num_splits});
    work_.num_partial_rows += static_cast<int64_t>(cuts.num_splits) * num_tokens;
  }

  const AttentionPlanLimits& limits_;
  const int64_t max_partial_rows_;
  Work& work_;
};

}  // namespace

WorkBounds work_bounds(const AttentionPlanLimits& limits, int q_tile) {
  const int64_t num_tiles = limits.max_tokens / q_tile + limits.max_reqs;
  // A split tile costs more than the target, so there are at most `pieces` split tiles. The number of splits
  // of a tile is at most one more than the ratio of its cost to the target.
  const int64_t pieces =
      ceil_div<int64_t>(kItemsPerWorker * std::max(1, limits.num_workers), limits.num_kv_heads);
  const int64_t tile_tokens = std::min(q_tile, limits.max_tokens);
  WorkBounds bounds{.num_items = num_tiles, .num_merges = 0, .num_partial_rows = 0};
  if (limits.split_rule == SplitRule::kNone) return bounds;
  // kFixed: enough for one new token of every request.
  bounds.num_partial_rows = limits.split_rule == SplitRule::kBalanced
                                ? 2 * pieces * tile_tokens
                                : limits.max_kv_tokens / choose_split_tokens(limits) + limits.max_reqs;
  bounds.num_items += bounds.num_partial_rows;
  bounds.num_merges = std::min<int64_t>(limits.max_tokens, bounds.num_partial_rows);
  return bounds;
}

void make_work(const AttentionPlanLimits& limits, const QueryBatch& batch,
               const AttentionMask& attention_mask, int q_tile, Work& work) {
  work.items.clear();
  work.merges.clear();
  work.num_partial_rows = 0;
  WorkMaker maker(limits, q_tile, work);
  int64_t total_cost = 0;
  for_each_tile(batch, attention_mask, q_tile, [&](const Tile& tile) { total_cost += maker.cost(tile); });
  const int64_t num_pieces = kItemsPerWorker * std::max(1, limits.num_workers);
  const int64_t target_cost = std::max<int64_t>(1, ceil_div(total_cost * limits.num_kv_heads, num_pieces));
  for_each_tile(batch, attention_mask, q_tile,
                [&](const Tile& tile) { maker.add(batch, tile, target_cost); });
  // The longest items are first, so that workers end together. The order of equal costs is fixed.
  std::sort(work.items.begin(), work.items.end(), [](const WorkItem& a, const WorkItem& b) {
    const auto cost = [](const WorkItem& item) {
      return static_cast<int64_t>(item.kv_end - item.kv_begin) * (item.q_end - item.q_begin);
    };
    return std::tuple(-cost(a), a.request, a.q_begin, a.kv_begin) <
           std::tuple(-cost(b), b.request, b.q_begin, b.kv_begin);
  });
}

}  // namespace attend::kernels
