// Selection of plans and kernels of attention and MLA on a GPU: the tables of both, and the choice from them.
// The functions are pure, so the choice for any GPU can be computed on any machine.
//
// All layers of a step share a plan, so its shape depends only on the step. The kernel that runs it also
// depends on the layer's call.
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
  kSm90WideDecode,           // sm90/wide_decode/wide_decode.cuh
  kSm80Tiles,                // sm80/attention.cuh
  kSm80WideTiles,            // sm80/wide_tiles.cu
  kSm80Mla,                  // sm80/mla.cu
  kSm80ScaledMla,            // sm80/scaled_mla.cu
  kRows,                     // sm80/row_attention.cu
};
inline constexpr int kNumAttentionKernels = 9;

// Inputs of a choice: a step, and a layer's call in it.
struct AttentionProblem {
  AttentionStep step;
  bool mla = false;
  DType q_dtype = DType::kBF16;
  DType kv_dtype = DType::kBF16;  // MLA: of the latent row; kU8: scaled rows
  DType out_dtype = DType::kBF16;
  int head_dim_qk = 0;  // MLA: of the latent row
  bool positive_scale = true;
  bool aligned = true;      // rows of q, K, V and out begin at multiples of 16 bytes
  bool strides_fit = true;  // in 32 bits, the type of strides in tiled kernels
  bool causal = true;
  bool plain_token = false;  // one token, without window, chunk, cap, sinks, LSE or new keys
  // Shape of the plan that is passed to the call. Empty: the plan is chosen too.
  std::optional<PlanShape> plan = std::nullopt;

  int head_dim_v() const { return step.limits.head_dim_v; }
  bool has_tree_mask() const { return causal && step.has_tree_mask; }
};

// Cost of the start of a work tile, in KV tiles, and, if CTAs share a work tile, the smallest number of KV
// tiles of a CTA range: a smaller range costs more than it saves.
struct CtaRangeCosts {
  int start_kv_tiles, min_kv_tiles;
};

// Thresholds of plans and kernels, measured on a GPU.
struct AttentionTuning {
  // Prefill on Hopper. With fewer than min_work_tiles_per_sm work tiles per SM, CTAs divide the keys. The
  // work tiles of one request have about equal length. Dividing their keys costs a CTA a second start and a
  // merge, so it is faster only if more than 1 in tiles_per_missing_tile of the required work tiles is
  // missing; 0: if any is missing.
  int64_t prefill_min_rows;
  int64_t min_work_tiles_per_sm;
  int64_t tiles_per_missing_tile;
  bool prefills_e4m3;  // queries of e4m3 are multiplied in e4m3 if a kernel supports it
  bool prefills_96;    // head dims above 64 and up to 96 have an instance of their own, not that of 128
  // Steps of few rows in which CTAs of the prefill kernel divide the keys: the smallest number of rows, a
  // smaller one if there are fewer work tiles than SMs, and the largest number of SMs per work tile. With
  // more SMs, a kernel that starts earlier is faster.
  int64_t verify_min_rows, verify_min_rows_on_many_sms;
  int64_t verify_max_sms_per_tile;

  CtaRangeCosts tile_costs, cluster_costs, latent_costs, prefill_costs;
  // Cost of a work tile in two clusters for each of their CTAs, beyond its start: a merge through memory.
  int merge_kv_tiles;
  // Waves of CTAs with one row tile and head each from which the load is balanced without splits. Neighboring
  // CTAs then share K/V in L2.
  int64_t whole_waves;

  // Heads of a token that neighboring CTAs read: 2 KB at head dim 128, which memory delivers at once. To read
  // them together, up to idle_clusters clusters may be idle, and in prefill one CTA of
  // prefill_ctas_per_idle_cta.
  int max_heads_at_once;
  int64_t idle_clusters, prefill_ctas_per_idle_cta;

  // Clusters of 8 CTAs that fit at once among 66: SMs of a GPC that are too few for one hold none.
  int clusters_per_66_ctas;
  // If each work tile can have at least this many clusters with one SM per CTA, and at most this many keys,
  // other kernels need most of a step's time. For those, SMs keep the memory that CTAs do not use as L1.
  int few_tiles_min_clusters, few_tiles_max_keys;

  // Largest number of rows of a request for which fixed splits run in parallel: with more rows there is other
  // work to distribute, and there would be many partial results. With more than fixed_splits_per_cta splits
  // per CTA there are enough work tiles to process each as a whole.
  int fixed_split_rows;
  int64_t fixed_splits_per_cta;
  // Larger partial results, in floats, are merged by a separate kernel with many CTAs per work tile.
  int64_t max_merge_floats;
  int barrier_timeout_clocks;  // longest wait of CTAs for one another to share a merge
  // Largest number of requests for which each CTA derives the plan. With more, a separate kernel is faster.
  int inline_plan_max_reqs;
  // MLA: largest number of tokens of a request in a row tile if heads are in groups.
  int head_group_max_tokens;
  // Largest number of new keys per request that CTAs store. CTAs with more of them would end later than
  // others.
  int max_stored_keys;
};
// Returns the record of the GPU's compute capability, or the default.
const AttentionTuning& attention_tuning(const GpuFacts& gpu);

// Sizes of a step that all plans use. MLA's heads are already in groups.
struct PlanProblem {
  AttentionStep step;
  int tile_rows;
  int64_t group, num_rows;  // query heads of a KV head; rows of a request and KV head at most
  int64_t num_row_tiles;    // at most
  bool wide;                // MLA, and attention with values wider than 256

  int64_t num_work_tiles() const { return num_row_tiles * step.limits.num_kv_heads; }
};

// Parameters that differ between kinds of plans.
struct PlanRule {
  int num_ctas, cluster_size, num_ctas_per_sm;
  int64_t max_idle;  // CTAs or clusters that may be idle in favor of heads_per_round
  CtaRangeCosts costs;
  bool streamed, ctas_merge;
};

struct PlanRow {
  PlanKind kind;
  std::string_view name;
  // Returns true if a plan can be of this kind, without regard to preceding rows.
  bool (*supports)(const PlanProblem& problem, const GpuFacts& gpu, const AttentionTuning& tuning);
  PlanRule (*rule)(const PlanProblem& problem, const AttentionTuning& tuning);
};

// Returns the rows in the order of PlanKind, the order of preference.
std::span<const PlanRow> plan_rows();

struct AttentionRow {
  AttentionKernel kernel;
  HeadDims dims;  // of the instance; 0: supports all
  std::string_view name;
  bool (*supports)(const AttentionProblem& problem, const GpuFacts& gpu);  // with a plan
  // Returns true if the kernel is faster than those of later rows, for a problem that it supports.
  bool (*is_faster)(const AttentionProblem& problem, const GpuFacts& gpu, const AttentionTuning& tuning);
  std::string_view why;  // reason of the choice, for display
};

// Returns the rows in the order of preference: if two instances support the same head dims, the cheaper is
// first.
std::span<const AttentionRow> attention_rows();

// Returns the plan of a step, of the first kind that supports it, for all layers of the step.
PlanShape choose_plan(const AttentionStep& step, const GpuFacts& gpu, const AttentionTuning& tuning);
inline PlanShape choose_plan(const AttentionStep& step, const GpuFacts& gpu) {
  return choose_plan(step, gpu, attention_tuning(gpu));
}

// Returns true if a step of this size has different plans for short (kShortRequestMaxKeys) and long requests.
bool plan_depends_on_kv_len(const AttentionStep& step, const GpuFacts& gpu);

// Returns the memory for plans of any step within the limits. split_tokens and num_workers must not be 0.
PlanSizes plan_sizes(const AttentionPlanLimits& limits, const GpuFacts& gpu, const AttentionTuning& tuning);
inline PlanSizes plan_sizes(const AttentionPlanLimits& limits, const GpuFacts& gpu) {
  return plan_sizes(limits, gpu, attention_tuning(gpu));
}

struct AttentionChoice {
  const AttentionRow& row;
  PlanShape plan;  // problem.plan, or the result of choose_plan() for the step
};
// Returns the plan, and the first row that supports it and is faster. Every problem has such a row.
AttentionChoice choose(AttentionProblem problem, const GpuFacts& gpu, const AttentionTuning& tuning);
inline AttentionChoice choose(const AttentionProblem& problem, const GpuFacts& gpu) {
  return choose(problem, gpu, attention_tuning(gpu));
}

// Returns true if CTAs of the prefill kernel are faster with whole work tiles than with divided keys of
// `num_work_tiles` work tiles.
bool prefills_whole_work_tiles(int64_t num_work_tiles, const AttentionStep& step,
                               const AttentionTuning& tuning);

}  // namespace attend::kernels::cuda
