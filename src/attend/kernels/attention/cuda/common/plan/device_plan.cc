#include "attend/kernels/attention/cuda/common/plan/device_plan.h"

#include <algorithm>

#include "attend/base/math.h"
#include "attend/kernels/attention/cuda/common/plan/plan_kernel.h"
#include "attend/kernels/attention/cuda/common/plan/prefill_plan.h"
#include "attend/kernels/attention/cuda/common/tile_config.h"
#include "attend/kernels/common/cuda/gpu_facts.h"
#include "attend/tensor/cuda.h"

namespace attend::kernels::cuda {
namespace {

// Latent rows: MLA's kernels alone take values as wide.
bool is_latent(const AttentionPlanLimits& limits) { return limits.head_dim_v > 256; }

// CTAs of a streamed plan for each SM: so many fit, and waves of equal CTAs end together.
int64_t ctas_per_sm(const AttentionPlanLimits& limits, int tile_rows) {
  const bool fills_sm = tile_rows <= 16 && limits.head_dim_v > 192 && !is_fp8(limits.kv_dtype);
  return is_latent(limits) || fills_sm ? 1 : 2;
}
constexpr int64_t kMaxCtasPerSm = 2;
static_assert(kVerifyCtasOfSm <= kMaxCtasPerSm);
// Rows of MLA's row tiles, and the most tokens of a request among them where heads are in groups.
constexpr int kRowsOfLatentTile = 64, kMaxTokensOfGroup = 8;
// A row tile and head for each CTA this many times over balances itself, and neighbours share K/V in L2.
constexpr int kWholeWaves = 4;
// A token's heads that CTAs beside one another read: 2 KB at head dim 128, which memory gives at once.
constexpr int kMaxHeadsAtOnce = 8;
// What the start of a work tile costs and, where CTAs share one, the fewest KV tiles of a CTA range: with
// fewer, a split costs more than it brings.
struct CtaRangeCosts {
  int start_kv_tiles, min_kv_tiles;
};
constexpr CtaRangeCosts kTileCosts{2, 1}, kClusterCosts{2, 2}, kLatentCosts{4, 2}, kPrefillCosts{5, 4};
// What a work tile in two clusters costs each of their CTAs beyond its start: a merge through memory.
constexpr int kMergeKvTiles = 4;
// Clusters of CTAs that fit at once. SMs of a GPC that are too few for one hold none: 15 run on 132 SMs, or
// 30 where two CTAs fit an SM. Of so few, one may be idle for the sake of heads beside one another.
constexpr int kClustersOf66Ctas = 7, kIdleClusters = 1;
// Where each work tile may have so many clusters whose CTAs have an SM each, and no more keys, most of a
// step's time is other kernels': for those, SMs keep as L1 what is not the shared memory of CTAs.
constexpr int kClustersOfFewTiles = 2, kMaxKeysOfFewTiles = 16384;
// Of so many CTAs of prefill one may be idle for the sake of heads that CTAs beside one another read.
constexpr int64_t kIdleCtasOfPrefill = 64;
// Fixed splits are computed at the same time for so many rows of a request at most. With more there is other
// work to divide, and partial results would be many.
constexpr int kFixedSplitRows = 16;
// Partial results of more floats are merged by a kernel of its own, with many CTAs for each work tile, unless
// splits are fixed or prefill's kernel verifies.
constexpr int64_t kMergeFloats = 32 * 128;
// That CTAs wait for one another to share a merge: some 20 us.
constexpr int kMeetingClocks = 40'000;
// CTAs derive a plan for so many requests at most: with more, a kernel that does it once takes less time.
constexpr int kMaxReqsOfInlinePlan = 512;
// Where so many splits for each CTA do not do, there are work tiles enough to leave them whole.
constexpr int kFixedSplitsPerCta = 64;
// CTAs of a work tile are counted in ten bits.
constexpr int kMaxWorkers = 1023 / kMaxCtasPerSm;
// Beyond every key, and its sum with a position is an int.
constexpr int32_t kMaxWindowRight = 1 << 30;

int group_of(const AttentionPlanLimits& limits) { return limits.num_q_heads / limits.num_kv_heads; }

// The largest divisor of the heads that does and, of several, leaves no more than `max_idle` CTAs without
// work.
int heads_at_once_for(const AttentionPlanLimits& limits, int64_t num_ctas, int64_t max_idle) {
  for (int heads = static_cast<int>(std::min<int64_t>(kMaxHeadsAtOnce, num_ctas)); heads > 1; --heads)
    if (limits.num_kv_heads % heads == 0 && num_ctas % heads <= max_idle) return heads;
  return 1;
}

int tile_rows_for(const AttentionPlanLimits& limits, int64_t max_seqlen_q) {
  const int64_t rows = max_seqlen_q * group_of(limits);
  // Tiles of 8 to 32 rows share keys among warps, so their bits differ from those of the others.
  const bool fixed_splits = limits.split_rule == SplitRule::kFixed;
  if (rows <= 8 && !fixed_splits && !is_latent(limits)) return 8;
  if (rows <= 16 && !fixed_splits) return 16;
  if (rows <= 32 && !fixed_splits && max_tile_rows(limits.head_dim_v) == 128) return 32;
  return rows <= 64 ? 64 : max_tile_rows(limits.head_dim_v);
}

// How many CTAs of a plan there are, how many CTAs each of them is, and PlanView::ctas_of_sm.
struct CtaCounts {
  int num_ctas, cluster_size, ctas_of_sm = 0;
};
// Decode of few short work tiles: clusters, which merge in shared memory what would else go through L2. They
// leave SMs idle, so long work tiles do better without. Those of unknown length are in clusters where they
// fill more than two thirds of these.
CtaCounts cta_counts_of(const AttentionPlanLimits& limits, int tile_rows, const QueryBatch& batch,
                        Device device) {
  const auto num_ctas = static_cast<int>(ctas_per_sm(limits, tile_rows) * limits.num_workers);
  const int num_clusters = num_ctas * kClustersOf66Ctas / 66;
  const int64_t num_work_tiles = int64_t{batch.num_reqs()} * limits.num_kv_heads;
  const bool is_short = batch.max_seqlen_kv == 0 ? 3 * num_work_tiles > 2 * num_clusters
                                                 : batch.max_seqlen_kv <= kMaxKeysOfShortRequest;
  const bool is_decode = tile_rows <= 32 && num_work_tiles > 0 && limits.split_rule == SplitRule::kBalanced &&
                         !is_latent(limits) && gpu_facts(device).runs_sm90a();
  const bool in_clusters = is_decode && num_work_tiles <= num_clusters && is_short;
  const int clusters_alone = limits.num_workers * kClustersOf66Ctas / 66;
  const bool few = is_decode && kClustersOfFewTiles * num_work_tiles <= clusters_alone &&
                   batch.max_seqlen_kv > 0 && batch.max_seqlen_kv <= kMaxKeysOfFewTiles;
  if (in_clusters && few)
    return {static_cast<int>(clusters_alone / num_work_tiles * num_work_tiles), kClusterSize, 1};
  if (in_clusters && num_clusters > 0) return {num_clusters, kClusterSize};
  return {num_ctas, 1, few ? static_cast<int>(ctas_per_sm(limits, tile_rows)) : 0};
}

// Row tiles of at most `num_tokens` tokens of `num_reqs` requests with at most `max_seqlen_q` each.
int64_t max_row_tiles(const AttentionPlanLimits& limits, int64_t num_tokens, int64_t num_reqs,
                      int64_t max_seqlen_q) {
  const int64_t group = group_of(limits), tile_rows = tile_rows_for(limits, max_seqlen_q);
  return std::min(num_reqs * ceil_div(max_seqlen_q * group, tile_rows),
                  num_tokens * group / tile_rows + num_reqs);
}

AttentionPlanLimits filled(AttentionPlanLimits limits, Device device) {
  if (limits.split_tokens == 0) limits.split_tokens = default_split_tokens(device);
  require(device.type == DeviceType::kCuda, "attention plan on ", device, ": expected a GPU");
  require(limits.max_reqs >= 0 && limits.max_tokens >= 0, "attention plan: max_reqs ", limits.max_reqs,
          ", max_tokens ", limits.max_tokens, ": expected none below 0");
  require(limits.num_kv_heads > 0 && limits.num_q_heads > 0 && limits.num_q_heads % limits.num_kv_heads == 0,
          "attention plan: num_q_heads ", limits.num_q_heads, ": expected a multiple of num_kv_heads ",
          limits.num_kv_heads);
  require(limits.head_dim_v > 0, "attention plan: head_dim_v ", limits.head_dim_v, ": expected above 0");
  require(limits.split_tokens > 0 && limits.split_tokens % kKeyTile == 0, "attention plan: split_tokens ",
          limits.split_tokens, ": expected a multiple of ", kKeyTile);
  require(limits.num_workers >= 0, "attention plan: num_workers ", limits.num_workers,
          ": expected above 0, or 0 for all SMs");
  if (limits.num_workers == 0) limits.num_workers = attend::cuda::device_info(device).num_sms;
  require(limits.num_workers <= kMaxWorkers, "attention plan: num_workers ", limits.num_workers,
          ": expected at most ", kMaxWorkers);
  return limits;
}

// Many heads that share a latent row are planned as groups with K/V heads of their own, so that CTAs beside
// one another read the same rows at the same time: heads that, with `num_tokens` of every request, fill a row
// tile. Where sm80's kernel takes MLA, which knows of none, there are none.
AttentionPlanLimits with_head_groups(AttentionPlanLimits limits, int num_tokens, Device device) {
  const int heads = kRowsOfLatentTile / num_tokens;
  if (is_latent(limits) && limits.num_kv_heads == 1 && limits.num_q_heads > heads &&
      limits.num_q_heads % heads == 0 && limits.split_rule != SplitRule::kFixed &&
      gpu_facts(device).runs_sm90a())
    limits.num_kv_heads = limits.num_q_heads / heads;
  return limits;
}

// Whether sm90's prefill takes the batch: row tiles of its height, and nothing that it refuses.
bool is_for_prefill(const AttentionPlanLimits& limits, const QueryBatch& batch, int tile_rows,
                    Device device) {
  return tile_rows == kPrefillRows && limits.split_rule == SplitRule::kBalanced && batch.tree_mask.empty() &&
         gpu_facts(device).runs_sm90a();
}

// Whether it takes a step of few rows a request, whose keys CTAs divide.
bool is_for_verify(const AttentionPlanLimits& limits, const QueryBatch& batch, int64_t num_rows,
                   Device device) {
  return num_rows <= kVerifyRows && may_verify(limits.head_dim_v, is_fp8(limits.kv_dtype)) &&
         limits.split_rule == SplitRule::kBalanced && batch.tree_mask.empty() &&
         gpu_facts(device).runs_sm90a() &&
         takes_verify(num_rows, int64_t{batch.num_reqs()} * limits.num_kv_heads, limits.num_workers);
}

// Floats of a row of a partial result: MLA's are in groups of 16 columns.
int64_t partial_columns(const AttentionPlanLimits& limits) { return round_up(limits.head_dim_v, 16); }

struct Sizes {
  int64_t num_row_tiles, num_ctas, num_partials, partial_rows, num_banks, bank_floats;
  int64_t num_partial_rows() const { return num_partials * partial_rows; }
};
Sizes sizes_of(const AttentionPlanLimits& limits) {
  const int64_t num_ctas = (is_latent(limits) ? 1 : kMaxCtasPerSm) * limits.num_workers;
  constexpr int64_t kMinRowTiles = 2;  // prefill has two counters where their numbers of parts are
  Sizes sizes{.num_row_tiles = std::max(kMinRowTiles,
                                        limits.max_tokens * int64_t{group_of(limits)} / 64 + limits.max_reqs),
              .num_ctas = num_ctas,
              .num_partials = 0,
              .partial_rows = 0,
              .num_banks = 0,
              .bank_floats = split_bank_floats(limits.head_dim_v)};
  if (limits.split_rule == SplitRule::kBalanced) {
    sizes.num_partials = 2 * num_ctas;
    sizes.partial_rows = tile_rows_for(limits, limits.max_tokens);
  } else if (limits.split_rule == SplitRule::kFixed) {
    sizes.num_partials = std::min<int64_t>(
        kFixedSplitsPerCta * num_ctas,
        (limits.max_kv_tokens / limits.split_tokens + limits.max_reqs) * limits.num_kv_heads);
    sizes.partial_rows = kFixedSplitRows;
    sizes.num_banks = std::max<int64_t>(num_ctas, limits.num_kv_heads);
  }
  return sizes;
}

template <class T>
int64_t bytes_of(int64_t count) {
  return count * static_cast<int64_t>(sizeof(T));
}

// New tokens of all requests.
int64_t most_tokens(const QueryBatch& batch, const AttentionPlanLimits& limits) {
  return batch.num_tokens > 0 ? std::min(batch.num_tokens, limits.max_tokens) : limits.max_tokens;
}

// Tokens of each request that a row tile of MLA has beside its heads. Where requests have different numbers
// of them, tiles of the fewest would be the emptier: one.
int tokens_of_group(const QueryBatch& batch, const AttentionPlanLimits& limits) {
  const int num_tokens = batch.max_seqlen_q;
  const bool are_alike = most_tokens(batch, limits) == int64_t{num_tokens} * batch.num_reqs();
  return are_alike && num_tokens > 1 && num_tokens <= kMaxTokensOfGroup && is_power_of_two(num_tokens)
             ? num_tokens
             : 1;
}

}  // namespace

int64_t most_seqlen_q(const QueryBatch& batch, const AttentionPlanLimits& limits) {
  return std::min<int64_t>(batch.max_seqlen_q, most_tokens(batch, limits));
}

BatchParams batch_params(const QueryBatch& batch, const Visibility& visibility) {
  return {.cu_seqlen_q = batch.cu_seqlen_q.data(),
          .seqlen_kv = batch.seqlen_kv.data(),
          .tree_mask = batch.tree_mask.empty() ? nullptr : batch.tree_mask.data(),
          .positions = batch.positions.data(),
          .num_reqs = batch.num_reqs(),
          .seqlen_new = 0,
          .tree_mask_words = batch.tree_mask_words,
          .window_left = visibility.window_left,
          .window_right = std::min(visibility.window_right, kMaxWindowRight),
          .chunk = visibility.chunk,
          .causal = visibility.causal};
}

DevicePlan::DevicePlan(const AttentionPlanLimits& limits, Device device)
    : limits_(filled(limits, device)), grouped_(with_head_groups(limits_, 1, device)) {
  const Sizes sizes = sizes_of(grouped_);
  num_head_groups_ = grouped_.num_kv_heads;
  first_row_tile_ = attend::cuda::empty({limits_.max_reqs + 1}, DType::kI32, device);
  header_ = attend::cuda::zeros({static_cast<int64_t>(sizeof(PlanHeader))}, DType::kU8, device);
  row_tiles_ = attend::cuda::empty({bytes_of<RowTile>(sizes.num_row_tiles)}, DType::kU8, device);
  cta_starts_ =
      attend::cuda::empty({bytes_of<CtaStart>(sizes.num_ctas + kMaxHeadsAtOnce)}, DType::kU8, device);
  partial_out_ =
      attend::cuda::empty({sizes.num_partial_rows(), partial_columns(limits_)}, DType::kF32, device);
  partial_state_ = attend::cuda::empty({sizes.num_partial_rows(), 2}, DType::kF32, device);
  partials_done_ = attend::cuda::zeros({sizes.num_row_tiles, grouped_.num_kv_heads}, DType::kI32, device);
  split_bank_ = attend::cuda::empty({sizes.num_banks, sizes.bank_floats}, DType::kF32, device);
  view_.header = static_cast<PlanHeader*>(header_.view().data);
  view_.row_tiles = static_cast<RowTile*>(row_tiles_.view().data);
  view_.cta_starts = static_cast<CtaStart*>(cta_starts_.view().data);
  view_.partial_out = partial_out_.as<float>();
  view_.partial_state = static_cast<float2*>(partial_state_.view().data);
  view_.partials_done = partials_done_.as<int32_t>();
  view_.num_partials = static_cast<int32_t>(sizes.num_partials);
  view_.kv_tile_keys = kKeyTile;
  view_.meeting_clocks = kMeetingClocks;
  if (limits_.split_rule == SplitRule::kFixed) {
    view_.split_bank = split_bank_.as<float>();
    view_.kv_tile_keys = limits_.split_tokens;
  }
}

size_t DevicePlan::num_bytes(const AttentionPlanLimits& limits, Device device) {
  const AttentionPlanLimits full = with_head_groups(filled(limits, device), 1, device);
  const Sizes sizes = sizes_of(full);
  const int64_t num_ints = full.max_reqs + 1 + sizes.num_row_tiles * full.num_kv_heads;
  const int64_t num_floats =
      sizes.num_partial_rows() * (partial_columns(full) + 2) + sizes.num_banks * sizes.bank_floats;
  return static_cast<size_t>((num_ints + num_floats) * int64_t{sizeof(float)} + int64_t{sizeof(PlanHeader)} +
                             bytes_of<RowTile>(sizes.num_row_tiles) +
                             bytes_of<CtaStart>(sizes.num_ctas + kMaxHeadsAtOnce));
}

DevicePlan::Shape DevicePlan::shape_for(const QueryBatch& batch) const {
  require(batch.num_reqs() <= limits_.max_reqs, "batch of ", batch.num_reqs(),
          " requests: the plan was made for at most ", limits_.max_reqs);
  PlanView view = view_;
  const Device device = header_.view().device;
  const AttentionPlanLimits grouped = with_head_groups(limits_, tokens_of_group(batch, limits_), device);
  const int64_t max_seqlen_q = most_seqlen_q(batch, grouped);
  const int64_t num_tokens = std::min(max_seqlen_q * batch.num_reqs(), most_tokens(batch, grouped));
  view.tile_rows = tile_rows_for(grouped, max_seqlen_q);
  const int64_t num_row_tiles = max_row_tiles(grouped, num_tokens, batch.num_reqs(), max_seqlen_q);
  const bool fixed_splits = grouped.split_rule == SplitRule::kFixed;
  const int64_t num_rows = max_seqlen_q * group_of(grouped);
  const bool verify = is_for_verify(grouped, batch, num_rows, device);
  const bool prefill = verify || is_for_prefill(grouped, batch, view.tile_rows, device);
  const CtaCounts ctas = verify    ? CtaCounts{kVerifyCtasOfSm * grouped.num_workers, 1}
                         : prefill ? CtaCounts{grouped.num_workers, 1}
                                   : cta_counts_of(grouped, view.tile_rows, batch, device);
  view.num_ctas = ctas.num_ctas;
  view.cluster_size = ctas.cluster_size;
  view.ctas_of_sm = ctas.ctas_of_sm;
  view.ctas_of_prefill = prefill;
  // Prefill is bound by its products.
  const int64_t max_idle = prefill && !verify      ? view.num_ctas / kIdleCtasOfPrefill
                           : view.cluster_size > 1 ? kIdleClusters
                                                   : view.num_ctas;
  view.heads_at_once = heads_at_once_for(grouped, view.num_ctas, max_idle);
  const CtaRangeCosts& costs = prefill && !verify      ? kPrefillCosts
                               : is_latent(grouped)    ? kLatentCosts
                               : view.cluster_size > 1 ? kClusterCosts
                                                       : kTileCosts;
  view.line = {.num_cta_ranges = view.num_ctas / view.heads_at_once,
               .min_cta_range = fixed_splits ? 1 : view.cluster_size * costs.min_kv_tiles,
               // Partial results are numbered as KV tiles, without gaps.
               .start_cost = fixed_splits ? 0 : view.cluster_size * costs.start_kv_tiles,
               .merge_cost = view.cluster_size > 1 ? view.cluster_size * kMergeKvTiles : 0};
  const auto most_kv_tiles = static_cast<int32_t>(ceil_div<int64_t>(batch.max_seqlen_kv, kKeyTile));
  view.lone_clusters = view.cluster_size > 1 && batch.num_reqs() == 1 && most_kv_tiles > 0 &&
                       lone_line(view.line, most_kv_tiles).cta_range >= most_kv_tiles;
  view.ctas_merge = fixed_splits || verify ||
                    (!prefill && !is_latent(grouped) && num_rows * grouped.head_dim_v <= kMergeFloats);
  view.partial_rows = fixed_splits ? kFixedSplitRows : view.tile_rows;
  if (prefill)
    view.streamed = verify || !takes_whole_work_tiles(num_row_tiles * grouped.num_kv_heads, batch.num_reqs(),
                                                      kMinPrefillJobsOfSm * grouped.num_workers);
  else if (fixed_splits)
    view.streamed = num_rows <= kFixedSplitRows;
  else
    view.streamed = grouped.split_rule == SplitRule::kBalanced &&
                    (view.tile_rows <= 32 || is_latent(grouped) ||
                     num_row_tiles * grouped.num_kv_heads < int64_t{kWholeWaves} * view.num_ctas);
  // Tall tiles have no registers for it; of prefill, those derive it that divide the keys of few rows.
  view.inline_plan = grouped.split_rule == SplitRule::kBalanced && view.streamed && (!prefill || verify) &&
                     view.tile_rows <= 64 && num_rows <= view.tile_rows &&
                     batch.num_reqs() <= kMaxReqsOfInlinePlan;
  return {view, static_cast<int>(std::max<int64_t>(1, num_row_tiles)), grouped.num_kv_heads};
}

void DevicePlan::take(const Shape& shape) {
  view_ = shape.view;
  num_row_tiles_ = shape.num_row_tiles;
  num_head_groups_ = shape.num_head_groups;
}

void DevicePlan::plan(const QueryBatch& batch, const Visibility& visibility, Stream& stream) {
  take(shape_for(batch));
  view_.inline_plan = false;
  launch(batch, visibility, stream);
}

void DevicePlan::plan_inline(const QueryBatch& batch, const Visibility& visibility, Stream& stream) {
  take(shape_for(batch));
  if (!view_.inline_plan) launch(batch, visibility, stream);
}

bool DevicePlan::try_plan_inline(const QueryBatch& batch) {
  const Shape shape = shape_for(batch);
  if (shape.view.inline_plan) take(shape);
  return shape.view.inline_plan;
}

bool DevicePlan::heeds_short_requests(int num_reqs) const {
  const View<const int32_t> seqlen_kv(static_cast<const int32_t*>(nullptr), static_cast<size_t>(num_reqs));
  const auto cluster_size = [&](int max_seqlen_kv) {
    return shape_for(
               {.cu_seqlen_q = {}, .seqlen_kv = seqlen_kv, .max_seqlen_q = 1, .max_seqlen_kv = max_seqlen_kv})
        .view.cluster_size;
  };
  return num_reqs <= limits_.max_reqs &&
         cluster_size(kMaxKeysOfShortRequest) != cluster_size(kMaxKeysOfShortRequest + 1);
}

void DevicePlan::launch(const QueryBatch& batch, const Visibility& visibility, Stream& stream) {
  launch_plan({.batch = batch_params(batch, visibility),
               .group = limits_.num_q_heads / num_head_groups_,
               .num_kv_heads = num_head_groups_,
               .plan = view_,
               .first_row_tile = first_row_tile_.as<int32_t>()},
              stream.handle);
}

}  // namespace attend::kernels::cuda
