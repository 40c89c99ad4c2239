// How attention and MLA run on a GPU: the tables of plans and of kernels, and the choice from both. Pure: for
// any GPU, on any machine.
//
// A plan serves all layers of a step, so its shape depends on the step alone; which kernel carries it out
// depends on the layer's call too.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "attend/kernels/attention/cuda/common/plan/plan_shape.h"
#include "attend/kernels/attention/cuda/common/tile_config.h"
#include "attend/kernels/common/gpu_facts.h"
#include "attend/tensor/dtype.h"

namespace attend::kernels::cuda {

enum class AttentionKernel : uint8_t {
  kSm90Prefill,              // sm90/prefill/prefill.cuh
  kSm90Mla,                  // sm90/mla/mla.cuh
  kSm90SingleRequestDecode,  // sm90/decode/single_request_decode.cuh
  kSm80Tiles,                // sm80/attention.cuh
  kSm80Mla,                  // sm80/mla.cu
  kSm80ScaledMla,            // sm80/scaled_mla.cu
  kRows,                     // sm80/row_attention.cu
};
inline constexpr int kNumAttentionKernels = 7;

// What a choice depends on: a step, and a layer's call in it.
struct AttentionProblem {
  AttentionStep step;
  bool mla = false;
  DType q_dtype = DType::kBF16;
  DType kv_dtype = DType::kBF16;  // MLA: of the latent row; kU8: scaled rows
  DType out_dtype = DType::kBF16;
  int head_dim_qk = 0;  // MLA: of the latent row
  bool positive_scale = true;
  bool aligned = true;      // rows of q, K, V and out begin at multiples of 16 bytes
  bool strides_fit = true;  // in 32 bits, as tiles are told them
  bool causal = true;
  bool plain_token = false;  // one token, without window, chunk, cap, sinks, LSE or new keys
  // The shape of the plan that the call is given. Empty: it is chosen too.
  std::optional<PlanShape> plan = std::nullopt;

  int head_dim_v() const { return step.limits.head_dim_v; }
  bool has_tree_mask() const { return causal && step.has_tree_mask; }
};

// What the start of a work tile costs and, where CTAs share one, the fewest KV tiles of a CTA range: with
// fewer, a split costs more than it brings.
struct CtaRangeCosts {
  int start_kv_tiles, min_kv_tiles;
};

// What was timed on a GPU: the thresholds of plans and of kernels.
struct AttentionTuning {
  // Prefill on Hopper. With fewer work tiles for each SM than min_work_tiles_per_sm, CTAs divide the keys.
  // Work tiles of one request are about equally long: of those wanted 1 in missing_jobs may be missing before
  // dividing their keys, which costs a CTA a second start and a merge, is faster; 0: none may.
  int64_t prefill_min_rows;
  int64_t min_work_tiles_per_sm;
  int64_t missing_jobs;
  bool prefills_e4m3;  // queries of e4m3 are multiplied as they are where that is possible
  bool prefills_96;    // head dims above 64 and up to 96 have an instance of their own, not that of 128
  // Steps of few rows whose keys prefill's CTAs divide: from so many rows on, from fewer where there are
  // fewer work tiles than SMs, and only where a work tile has no more SMs than this: with more, what starts
  // sooner is faster.
  int64_t min_rows_of_verify, min_rows_of_verify_on_many_sms;
  int64_t max_sms_of_verify_tile;

  CtaRangeCosts tile_costs, cluster_costs, latent_costs, prefill_costs;
  // Cost of a work tile in two clusters for each of their CTAs, beyond its start: a merge through memory.
  int merge_kv_tiles;
  // A row tile and head for each CTA this many times over balances itself, and neighbors share K/V in L2.
  int64_t whole_waves;

  // A token's heads that neighboring CTAs read: 2 KB at head dim 128, which memory gives at once. For their
  // sake so many clusters may be idle, and of prefill one CTA of so many.
  int max_heads_at_once;
  int64_t idle_clusters, idle_ctas_of_prefill;

  // Clusters of 8 CTAs that fit at once among 66: SMs of a GPC that are too few for one hold none.
  int clusters_of_66_ctas;
  // Where each work tile may have so many clusters whose CTAs have an SM each, and no more keys, most of a
  // step's time is other kernels': for those, SMs keep as L1 what is not the shared memory of CTAs.
  int clusters_of_few_tiles, max_keys_of_few_tiles;

  // Fixed splits are computed at the same time for so many rows of a request at most: with more there is
  // other work to divide, and partial results would be many. With more splits for each CTA than the second,
  // there are work tiles enough to leave them whole.
  int fixed_split_rows;
  int64_t fixed_splits_of_cta;
  // Partial results of more floats are merged by a kernel of its own, with many CTAs for each work tile.
  int64_t max_merge_floats;
  int barrier_timeout_clocks;  // that CTAs wait for one another to share a merge
  // CTAs derive a plan for so many requests: with more, a kernel that does it once takes less time.
  int max_reqs_of_inline_plan;
  // MLA: tokens of a request among the rows of a row tile, where heads are in groups.
  int max_tokens_of_head_group;
  // New keys of a request that CTAs store: those with many would end later than the others.
  int max_stored_keys;
};
// The record of the GPU's compute capability, or the default.
const AttentionTuning& attention_tuning(const GpuFacts& gpu);

// A step in numbers that plans share. MLA's heads are in groups already.
struct PlanProblem {
  AttentionStep step;
  int tile_rows;
  int64_t group, num_rows;  // query heads of a KV head; rows of a request and KV head at most
  int64_t num_row_tiles;    // at most
  bool latent;              // MLA

  int64_t num_work_tiles() const { return num_row_tiles * step.limits.num_kv_heads; }
};

// What kinds of plans differ in.
struct PlanRule {
  int num_ctas, cluster_size, num_ctas_per_sm;
  int64_t max_idle;  // CTAs or clusters that may be without work for the sake of heads_per_round
  CtaRangeCosts costs;
  bool streamed, ctas_merge;
};

struct PlanRow {
  PlanKind kind;
  std::string_view name;
  // Whether plans are of this kind, rows above it aside.
  bool (*takes)(const PlanProblem& problem, const GpuFacts& gpu, const AttentionTuning& tuning);
  PlanRule (*rule)(const PlanProblem& problem, const AttentionTuning& tuning);
};

// In the order of PlanKind, which is that of preference.
std::span<const PlanRow> plan_rows();

struct AttentionRow {
  AttentionKernel kernel;
  HeadDims dims;  // of the instance; 0: it takes all
  std::string_view name;
  bool (*takes)(const AttentionProblem& problem, const GpuFacts& gpu);  // with a plan
  // Of problems that it takes: whether it is faster than what stands below it.
  bool (*is_faster)(const AttentionProblem& problem, const GpuFacts& gpu, const AttentionTuning& tuning);
  std::string_view why;  // it is chosen
};

// In the order of preference: of two instances that hold head dims, the cheaper one comes first.
std::span<const AttentionRow> attention_rows();

// The plan of a step: of the first kind that takes it, for any of a step's layers.
PlanShape choose_plan(const AttentionStep& step, const GpuFacts& gpu, const AttentionTuning& tuning);
inline PlanShape choose_plan(const AttentionStep& step, const GpuFacts& gpu) {
  return choose_plan(step, gpu, attention_tuning(gpu));
}

// Whether the plan of the step's size for short requests (kShortRequestMaxKeys) is another than for long
// ones.
bool plan_depends_on_kv_len(const AttentionStep& step, const GpuFacts& gpu);

// Memory for the plans of every step within the limits, whose split_tokens and num_workers are filled.
PlanSizes plan_sizes(const AttentionPlanLimits& limits, const GpuFacts& gpu, const AttentionTuning& tuning);
inline PlanSizes plan_sizes(const AttentionPlanLimits& limits, const GpuFacts& gpu) {
  return plan_sizes(limits, gpu, attention_tuning(gpu));
}

struct AttentionChoice {
  const AttentionRow& row;
  PlanShape plan;  // problem.plan, or what choose_plan() gives for the step
};
// The plan, and the first row that carries it out and is faster. There is one for every problem.
AttentionChoice choose(AttentionProblem problem, const GpuFacts& gpu, const AttentionTuning& tuning);
inline AttentionChoice choose(const AttentionProblem& problem, const GpuFacts& gpu) {
  return choose(problem, gpu, attention_tuning(gpu));
}

// Whether prefill's CTAs had better take whole work tiles than divide the keys of `num_jobs` of them.
bool prefills_whole_jobs(int64_t num_jobs, const AttentionStep& step, const AttentionTuning& tuning);

}  // namespace attend::kernels::cuda
