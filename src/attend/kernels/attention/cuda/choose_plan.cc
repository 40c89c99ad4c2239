// The table of plans (choose.h).
#include <algorithm>
#include <array>

#include "attend/base/error.h"
#include "attend/base/math.h"
#include "attend/kernels/attention/cuda/choose.h"
#include "attend/kernels/attention/cuda/common/plan/prefill_plan.h"
#include "attend/kernels/attention/cuda/common/tile_config.h"
#include "attend/kernels/common/choose_row.h"

namespace attend::kernels::cuda {
namespace {

constexpr int64_t kMaxCtasPerSm = 2;
static_assert(kVerifyCtasPerSm <= kMaxCtasPerSm);
constexpr int kWideTileRows = 64;  // tallest row tiles of MLA and of wide decode

// Only MLA, wide decode and prefill in pairs have tiles for values this wide.
bool is_wide(const AttentionPlanLimits& limits) { return limits.head_dim_v > 256; }

int64_t gqa_group_size(const AttentionPlanLimits& limits) { return limits.num_q_heads / limits.num_kv_heads; }

bool is_balanced(const PlanProblem& problem) {
  return problem.step.limits.split_rule == SplitRule::kBalanced;
}

// Returns the CTAs per SM of a streamed plan: the number that fits, since waves of equal CTAs end together.
int64_t ctas_per_sm(const PlanProblem& problem) {
  const AttentionPlanLimits& limits = problem.step.limits;
  const bool fills_sm = problem.tile_rows <= 16 && limits.head_dim_v > 192 && !is_fp8(limits.kv_dtype);
  return problem.wide || fills_sm ? 1 : kMaxCtasPerSm;
}

int tile_rows_for(const AttentionPlanLimits& limits, int64_t num_rows) {
  // Tiles of 8 to 32 rows share keys among warps, so their bits differ from those of the others.
  const bool fixed_splits = limits.split_rule == SplitRule::kFixed;
  if (num_rows <= 8 && !fixed_splits && !is_wide(limits)) return 8;
  if (num_rows <= 16 && !fixed_splits) return 16;
  if (num_rows <= 32 && !fixed_splits && max_tile_rows(limits.head_dim_v) == 128) return 32;
  return num_rows <= 64 ? 64 : max_tile_rows(limits.head_dim_v);
}

// Splits many heads that share a latent row into groups, each with a KV head of its own in the plan, so that
// neighboring CTAs read the same rows at the same time. A group has the heads that fill a row
// tile together with `num_tokens` tokens of every request. sm80's kernel does not support groups.
AttentionPlanLimits with_head_groups(AttentionPlanLimits limits, int num_tokens, const GpuFacts& gpu) {
  const int heads = kWideTileRows / num_tokens;
  if (is_wide(limits) && limits.num_kv_heads == 1 && limits.num_q_heads > heads &&
      limits.num_q_heads % heads == 0 && limits.split_rule != SplitRule::kFixed && gpu.runs_sm90a())
    limits.num_kv_heads = limits.num_q_heads / heads;
  return limits;
}

// Returns the number of tokens of each request in a row tile of wide values, next to its heads. If requests
// have different numbers of tokens, tiles of short requests would be mostly empty: returns 1.
int head_group_tokens(const AttentionStep& step, const AttentionTuning& tuning) {
  const int num_tokens = step.max_seqlen_q;
  const bool are_alike = step.batch_max_new_tokens() == int64_t{num_tokens} * step.num_reqs;
  return are_alike && num_tokens > 1 && num_tokens <= tuning.head_group_max_tokens &&
                 is_power_of_two(num_tokens)
             ? num_tokens
             : 1;
}

PlanProblem plan_problem(const AttentionStep& step, const GpuFacts& gpu, const AttentionTuning& tuning) {
  PlanProblem problem{};
  problem.step = step;
  problem.step.limits = with_head_groups(step.limits, head_group_tokens(step, tuning), gpu);
  const int64_t max_seqlen_q = step.batch_max_seqlen_q();
  const int64_t num_tokens = std::min(max_seqlen_q * step.num_reqs, step.batch_max_new_tokens());
  problem.group = gqa_group_size(problem.step.limits);
  problem.num_rows = max_seqlen_q * problem.group;
  problem.tile_rows = tile_rows_for(step.limits, problem.num_rows);
  problem.num_row_tiles = std::min(step.num_reqs * ceil_div<int64_t>(problem.num_rows, problem.tile_rows),
                                   num_tokens * problem.group / problem.tile_rows + step.num_reqs);
  problem.wide = is_wide(step.limits);
  return problem;
}

// CTAs of prefill divide the keys of a step of few rows. If a work tile has many SMs, a kernel that starts
// earlier is faster; if a work tile has at most one SM, tiles of 32 rows are faster too.
bool verify_plan_supports(const PlanProblem& problem, const GpuFacts& gpu, const AttentionTuning& tuning) {
  const AttentionPlanLimits& limits = problem.step.limits;
  const int64_t num_work_tiles = int64_t{problem.step.num_reqs} * limits.num_kv_heads;
  const int64_t min_rows =
      num_work_tiles < limits.num_workers ? tuning.verify_min_rows_on_many_sms : tuning.verify_min_rows;
  return gpu.runs_sm90a() && is_balanced(problem) && !problem.step.has_tree_mask &&
         may_verify(limits.head_dim_v, is_fp8(limits.kv_dtype)) && problem.num_rows <= kVerifyRows &&
         problem.num_rows >= min_rows &&
         num_work_tiles * tuning.verify_max_sms_per_tile >= limits.num_workers;
}
PlanRule verify_rule(const PlanProblem& problem, const AttentionTuning& tuning) {
  const int num_ctas = kVerifyCtasPerSm * problem.step.limits.num_workers;
  return {.num_ctas = num_ctas,
          .cluster_size = 1,
          .num_ctas_per_sm = 0,
          .max_idle = num_ctas,
          .costs = tuning.tile_costs,
          .streamed = true,
          .ctas_merge = true};
}

// Requires row tiles of prefill's height and only features that prefill supports.
bool prefill_plan_supports(const PlanProblem& problem, const GpuFacts& gpu, const AttentionTuning&) {
  return gpu.runs_sm90a() && is_balanced(problem) && !problem.step.has_tree_mask &&
         problem.tile_rows == kPrefillRows;
}
// Prefill is bound by the tensor cores.
PlanRule prefill_rule(const PlanProblem& problem, const AttentionTuning& tuning) {
  const int num_ctas = problem.step.limits.num_workers;
  return {.num_ctas = num_ctas,
          .cluster_size = 1,
          .num_ctas_per_sm = 0,
          .max_idle = num_ctas / tuning.prefill_ctas_per_idle_cta,
          .costs = tuning.prefill_costs,
          .streamed = !prefills_whole_work_tiles(problem.num_work_tiles(), problem.step, tuning),
          .ctas_merge = false};
}

bool fixed_splits_plan_supports(const PlanProblem& problem, const GpuFacts&, const AttentionTuning&) {
  return problem.step.limits.split_rule == SplitRule::kFixed;
}

bool latent_rows_plan_supports(const PlanProblem& problem, const GpuFacts&, const AttentionTuning&) {
  return problem.wide;
}

// Returns true for decode in which clusters of CTAs may share a work tile's keys.
bool is_decode(const PlanProblem& problem, const GpuFacts& gpu) {
  return problem.tile_rows <= 32 && problem.step.num_reqs > 0 && is_balanced(problem) && gpu.runs_sm90a();
}
int64_t decode_work_tiles(const PlanProblem& problem) {
  return int64_t{problem.step.num_reqs} * problem.step.limits.num_kv_heads;
}
int num_clusters(const PlanProblem& problem, int64_t num_ctas_per_sm, const AttentionTuning& tuning) {
  return static_cast<int>(num_ctas_per_sm * problem.step.limits.num_workers) * tuning.clusters_per_66_ctas /
         66;
}

// Few short work tiles: clusters merge in shared memory instead of through L2. They leave SMs idle, so long
// work tiles are faster without clusters. Work tiles of unknown length use clusters if they fill more than
// two thirds of them.
bool clusters_plan_supports(const PlanProblem& problem, const GpuFacts& gpu, const AttentionTuning& tuning) {
  const int64_t num_work_tiles = decode_work_tiles(problem);
  const int clusters = num_clusters(problem, ctas_per_sm(problem), tuning);
  const bool is_short = problem.step.max_seqlen_kv == 0 ? 3 * num_work_tiles > 2 * clusters
                                                        : problem.step.max_seqlen_kv <= kShortRequestMaxKeys;
  return is_decode(problem, gpu) && num_work_tiles <= clusters && is_short;
}
bool few_work_tiles_plan_supports(const PlanProblem& problem, const GpuFacts& gpu,
                                  const AttentionTuning& tuning) {
  return is_decode(problem, gpu) &&
         tuning.few_tiles_min_clusters * decode_work_tiles(problem) <= num_clusters(problem, 1, tuning) &&
         problem.step.max_seqlen_kv > 0 && problem.step.max_seqlen_kv <= tuning.few_tiles_max_keys;
}
bool few_clusters_plan_supports(const PlanProblem& problem, const GpuFacts& gpu,
                                const AttentionTuning& tuning) {
  return clusters_plan_supports(problem, gpu, tuning) && few_work_tiles_plan_supports(problem, gpu, tuning);
}

// Row tiles that CTAs process in the order of the plan.
PlanRule tiles_rule(const PlanProblem& problem, const AttentionTuning& tuning) {
  const auto num_ctas = static_cast<int>(ctas_per_sm(problem) * problem.step.limits.num_workers);
  return {.num_ctas = num_ctas,
          .cluster_size = 1,
          .num_ctas_per_sm = 0,
          .max_idle = num_ctas,
          .costs = tuning.tile_costs,
          .streamed = is_balanced(problem) &&
                      (problem.tile_rows <= 32 || problem.num_work_tiles() < tuning.whole_waves * num_ctas),
          .ctas_merge = problem.num_rows * problem.step.limits.head_dim_v <= tuning.max_merge_floats};
}
PlanRule few_work_tiles_rule(const PlanProblem& problem, const AttentionTuning& tuning) {
  PlanRule rule = tiles_rule(problem, tuning);
  rule.num_ctas_per_sm = static_cast<int>(ctas_per_sm(problem));
  return rule;
}
PlanRule clusters_rule(const PlanProblem& problem, const AttentionTuning& tuning) {
  PlanRule rule = tiles_rule(problem, tuning);
  rule.num_ctas = num_clusters(problem, ctas_per_sm(problem), tuning);
  rule.cluster_size = kClusterSize;
  rule.max_idle = tuning.idle_clusters;
  rule.costs = tuning.cluster_costs;
  return rule;
}
PlanRule few_clusters_rule(const PlanProblem& problem, const AttentionTuning& tuning) {
  const int64_t num_work_tiles = decode_work_tiles(problem);
  PlanRule rule = clusters_rule(problem, tuning);
  rule.num_ctas = static_cast<int>(num_clusters(problem, 1, tuning) / num_work_tiles * num_work_tiles);
  rule.num_ctas_per_sm = 1;
  return rule;
}
PlanRule latent_rows_rule(const PlanProblem& problem, const AttentionTuning& tuning) {
  PlanRule rule = tiles_rule(problem, tuning);
  rule.costs = tuning.latent_costs;
  rule.streamed = is_balanced(problem);
  rule.ctas_merge = false;
  return rule;
}
// Partial results have the indices of KV tiles, without gaps.
PlanRule fixed_splits_rule(const PlanProblem& problem, const AttentionTuning& tuning) {
  PlanRule rule = tiles_rule(problem, tuning);
  rule.costs = {.start_kv_tiles = 0, .min_kv_tiles = 1};
  rule.streamed = problem.num_rows <= tuning.fixed_split_rows;
  rule.ctas_merge = true;
  return rule;
}

constexpr std::array kPlanRows{
    PlanRow{PlanKind::kVerify, "verify (sm90)", verify_plan_supports, verify_rule},
    PlanRow{PlanKind::kPrefill, "prefill (sm90)", prefill_plan_supports, prefill_rule},
    PlanRow{PlanKind::kFixedSplits, "fixed splits", fixed_splits_plan_supports, fixed_splits_rule},
    PlanRow{PlanKind::kLatentRows, "latent rows", latent_rows_plan_supports, latent_rows_rule},
    PlanRow{PlanKind::kFewClusters, "few clusters", few_clusters_plan_supports, few_clusters_rule},
    PlanRow{PlanKind::kClusters, "clusters", clusters_plan_supports, clusters_rule},
    PlanRow{PlanKind::kFewWorkTiles, "few work tiles", few_work_tiles_plan_supports, few_work_tiles_rule},
    PlanRow{PlanKind::kTiles, "row tiles",
            [](const PlanProblem&, const GpuFacts&, const AttentionTuning&) { return true; }, tiles_rule}};
static_assert(kPlanRows.size() == kNumPlanKinds);

constexpr bool are_in_kind_order() {
  for (size_t i = 0; i < kPlanRows.size(); ++i)
    if (kPlanRows[i].kind != static_cast<PlanKind>(i)) return false;
  return true;
}
static_assert(are_in_kind_order());

// Returns the largest divisor of the number of heads that leaves at most `max_idle` CTAs without work.
int choose_heads_per_round(const PlanProblem& problem, const PlanRule& rule, const AttentionTuning& tuning) {
  for (int heads = std::min(tuning.max_heads_at_once, rule.num_ctas); heads > 1; --heads)
    if (problem.step.limits.num_kv_heads % heads == 0 && rule.num_ctas % heads <= rule.max_idle) return heads;
  return 1;
}

PlanShape make_shape(const PlanProblem& problem, PlanKind kind, const PlanRule& rule,
                     const AttentionTuning& tuning) {
  const AttentionStep& step = problem.step;
  PlanShape shape{
      .kind = kind,
      .num_row_tiles = static_cast<int>(std::max<int64_t>(1, problem.num_row_tiles)),
      .num_head_groups = step.limits.num_kv_heads,
      .tile_rows = problem.tile_rows,
      .partial_rows = kind == PlanKind::kFixedSplits ? tuning.fixed_split_rows : problem.tile_rows,
      .num_ctas = rule.num_ctas,
      .heads_per_round = choose_heads_per_round(problem, rule, tuning),
      .cluster_size = rule.cluster_size,
      .num_ctas_per_sm = rule.num_ctas_per_sm,
      .partition = {},
      .single_cluster_per_tile = false,
      .streamed = rule.streamed,
      .is_prefill_plan = kind == PlanKind::kVerify || kind == PlanKind::kPrefill,
      .ctas_merge = rule.ctas_merge,
      .inline_plan = false};
  const bool in_clusters = rule.cluster_size > 1;
  shape.partition = {.num_cta_ranges = shape.num_ctas / shape.heads_per_round,
                     .min_cta_range = rule.cluster_size * rule.costs.min_kv_tiles,
                     .start_cost = rule.cluster_size * rule.costs.start_kv_tiles,
                     .merge_cost = in_clusters ? rule.cluster_size * tuning.merge_kv_tiles : 0};
  const auto max_kv_tiles = static_cast<int32_t>(ceil_div<int64_t>(step.max_seqlen_kv, kKeyTile));
  shape.single_cluster_per_tile =
      in_clusters && step.num_reqs == 1 && max_kv_tiles > 0 &&
      partition_single_tile(shape.partition, max_kv_tiles).cta_range >= max_kv_tiles;
  // Tall tiles have no registers for an inline plan; of prefill plans, only verify plans support it.
  shape.inline_plan = step.plans_inline && is_balanced(problem) && shape.streamed &&
                      kind != PlanKind::kPrefill && shape.tile_rows <= 64 &&
                      problem.num_rows <= shape.tile_rows && step.num_reqs <= tuning.inline_plan_max_reqs;
  return shape;
}

}  // namespace

std::span<const PlanRow> plan_rows() { return kPlanRows; }

bool prefills_whole_work_tiles(int64_t num_work_tiles, const AttentionStep& step,
                               const AttentionTuning& tuning) {
  const int64_t wanted = tuning.min_work_tiles_per_sm * step.limits.num_workers;
  const int64_t missing =
      step.num_reqs == 1 && tuning.tiles_per_missing_tile > 0 ? wanted / tuning.tiles_per_missing_tile : 0;
  return num_work_tiles >= wanted - missing;
}

PlanShape choose_plan(const AttentionStep& step, const GpuFacts& gpu, const AttentionTuning& tuning) {
  const PlanProblem problem = plan_problem(step, gpu, tuning);
  for (const PlanRow& row : kPlanRows)
    if (row.supports(problem, gpu, tuning))
      return make_shape(problem, row.kind, row.rule(problem, tuning), tuning);
  fail(ErrorCode::kInternal, "attention: no plan supports the step");
}

bool plan_depends_on_kv_len(const AttentionStep& step, const GpuFacts& gpu) {
  const auto cluster_size = [&](int max_seqlen_kv) {
    AttentionStep same = step;
    same.max_seqlen_kv = max_seqlen_kv;
    return choose_plan(same, gpu).cluster_size;
  };
  return cluster_size(kShortRequestMaxKeys) != cluster_size(kShortRequestMaxKeys + 1);
}

PlanSizes plan_sizes(const AttentionPlanLimits& limits, const GpuFacts& gpu, const AttentionTuning& tuning) {
  const AttentionPlanLimits grouped = with_head_groups(limits, 1, gpu);
  const int64_t group = gqa_group_size(grouped);
  const int64_t num_ctas = (is_wide(limits) ? 1 : kMaxCtasPerSm) * grouped.num_workers;
  constexpr int64_t kMinRowTiles = 2;  // the two counters of prefill replace those of partial results
  PlanSizes sizes{.num_head_groups = grouped.num_kv_heads,
                  .num_row_tiles = std::max(kMinRowTiles, grouped.max_tokens * group / 64 + grouped.max_reqs),
                  .num_cta_starts = num_ctas + tuning.max_heads_at_once,
                  .num_partials = 0,
                  .partial_rows = 0,
                  // MLA has groups of 16 columns.
                  .partial_columns = round_up(grouped.head_dim_v, 16),
                  .num_split_accumulators = 0,
                  .accumulator_floats = split_accumulator_floats(grouped.head_dim_v),
                  .barrier_timeout_clocks = tuning.barrier_timeout_clocks};
  if (grouped.split_rule == SplitRule::kBalanced) {
    sizes.num_partials = 2 * num_ctas;
    sizes.partial_rows = tile_rows_for(grouped, grouped.max_tokens * group);
  } else if (grouped.split_rule == SplitRule::kFixed) {
    sizes.num_partials = std::min<int64_t>(
        tuning.fixed_splits_per_cta * num_ctas,
        (grouped.max_kv_tokens / grouped.split_tokens + grouped.max_reqs) * grouped.num_kv_heads);
    sizes.partial_rows = tuning.fixed_split_rows;
    sizes.num_split_accumulators = std::max<int64_t>(num_ctas, grouped.num_kv_heads);
  }
  return sizes;
}

}  // namespace attend::kernels::cuda
