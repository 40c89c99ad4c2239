#include "attend/kernels/attention/cuda/choose.h"

#include <algorithm>
#include <array>

#include "attend/kernels/attention/cuda/common/tile_config.h"
#include "attend/kernels/attention/cuda/sm80/attention_launch.h"
#include "attend/kernels/attention/cuda/sm90/prefill/prefill_shape.h"
#include "attend/kernels/common/choose_row.h"

namespace attend::kernels::cuda {
namespace {

constexpr AttentionTuning kH200AttentionTuning{
    .prefill_min_rows = 65,
    .min_work_tiles_per_sm = 1,
    .tiles_per_missing_tile = 10,
    .prefills_e4m3 = true,
    .prefills_96 = true,
    .verify_min_rows = 33,
    .verify_min_rows_on_many_sms = 17,
    .verify_max_sms_per_tile = 8,
    .tile_costs = {.start_kv_tiles = 2, .min_kv_tiles = 1},
    .cluster_costs = {.start_kv_tiles = 2, .min_kv_tiles = 2},
    .latent_costs = {.start_kv_tiles = 4, .min_kv_tiles = 2},
    .prefill_costs = {.start_kv_tiles = 5, .min_kv_tiles = 4},
    .merge_kv_tiles = 4,
    .whole_waves = 4,
    .max_heads_at_once = 8,
    .idle_clusters = 1,
    .prefill_ctas_per_idle_cta = 64,
    .clusters_per_66_ctas = 7,  // 15 clusters run on 132 SMs, 30 of two CTAs an SM
    .few_tiles_min_clusters = 2,
    .few_tiles_max_keys = 16384,
    .fixed_split_rows = 16,
    .fixed_splits_per_cta = 64,
    .max_merge_floats = 32 * 128,
    .barrier_timeout_clocks = 40'000,  // about 20 us
    .inline_plan_max_reqs = 512,
    .head_group_max_tokens = 8,
    .max_stored_keys = 64};

// Without the kernels of sm90 and without clusters. Other values are those of the H200 until Ampere is
// measured.
constexpr AttentionTuning ampere_attention_tuning() {
  AttentionTuning tuning = kH200AttentionTuning;
  tuning.prefills_e4m3 = tuning.prefills_96 = false;
  tuning.clusters_per_66_ctas = 0;
  return tuning;
}

constexpr std::array kAttentionTunings{
    GpuTuning<AttentionTuning>{"H100, H200", 9, 0, kH200AttentionTuning},
    GpuTuning<AttentionTuning>{"Ampere, others", 8, 0, ampere_attention_tuning()}};

bool always(const AttentionProblem&, const GpuFacts&, const AttentionTuning&) { return true; }

// Requirements of all tiled attention kernels on rows, for any dtype.
bool rows_fit_tiles(const AttentionProblem& problem, HeadDims dims) {
  return !problem.mla && problem.positive_scale && problem.aligned && problem.strides_fit &&
         (!is_fp8(problem.kv_dtype) || (problem.head_dim_qk % 16 == 0 && problem.head_dim_v() % 16 == 0)) &&
         problem.head_dim_qk <= dims.qk && problem.head_dim_v() <= dims.v;
}

// Requirements of tiled kernels with 16-bit products.
bool fits_tiles(const AttentionProblem& problem, HeadDims dims) {
  const DType q = problem.q_dtype, kv = problem.kv_dtype, out = problem.out_dtype;
  return (q == DType::kBF16 || q == DType::kF16) && (kv == q || is_fp8(kv)) &&
         (out == q || out == DType::kF32) && rows_fit_tiles(problem, dims);
}

bool has_fixed_splits(const AttentionProblem& problem) {
  return problem.step.limits.split_rule == SplitRule::kFixed;
}

// Requirements of the prefill kernel on a plan.
bool plan_fits_prefill(const AttentionProblem& problem, const GpuFacts& gpu) {
  return gpu.runs_sm90a() &&
         (problem.plan->tile_rows >= kPrefillRows / 2 || problem.plan->divides_prefill_keys()) &&
         !problem.has_tree_mask();
}

// Returns true if the plan is for verification with the prefill kernel: few rows, keys divided over CTAs.
bool plan_verifies(const AttentionProblem& problem) { return problem.plan->kind == PlanKind::kVerify; }

// Returns true if the prefill kernel supports fixed splits. Their bits are those of sm80's instance of the
// same head dims, and each CTA processes whole work tiles.
bool prefill_supports_fixed_splits(const AttentionProblem& problem, HeadDims dims) {
  return sm90::has_fixed_splits(dims) && problem.kv_dtype == problem.q_dtype && problem.head_dim_qk > 64 &&
         problem.plan->tile_rows == kPrefillRows;
}

// Returns true for a plan of wide values with work tiles of whole KV heads: only MLA's kernels support groups
// of the heads that read a single one.
bool is_wide_plan(const AttentionProblem& problem) {
  return problem.plan->kind == PlanKind::kLatentRows &&
         problem.plan->num_head_groups == problem.step.limits.num_kv_heads;
}

template <size_t kIdx>
bool prefill_supports(const AttentionProblem& problem, const GpuFacts& gpu) {
  constexpr HeadDims kDims = sm90::kPrefillDims[kIdx];
  constexpr auto& kFp8Dims = sm90::kFp8PrefillDims;
  constexpr bool kConvertsKv = std::find(kFp8Dims.begin(), kFp8Dims.end(), kDims) != kFp8Dims.end();
  // Narrow values have plans for every SM, not for pairs of CTAs.
  const bool pairs_fit = sm90::ctas_per_work_tile(kDims) == 1 || is_wide_plan(problem);
  return pairs_fit && plan_fits_prefill(problem, gpu) && fits_tiles(problem, kDims) &&
         (!is_fp8(problem.kv_dtype) || kConvertsKv) &&
         (plan_verifies(problem) ? may_verify(kDims.v, is_fp8(problem.kv_dtype))
                                 : !problem.plan->inline_plan) &&
         (!has_fixed_splits(problem) || prefill_supports_fixed_splits(problem, kDims));
}

// Pairs of CTAs need half as many work tiles.
bool wide_prefill_is_faster(const AttentionProblem& problem, const GpuFacts&, const AttentionTuning& tuning) {
  const AttentionStep& step = problem.step;
  if (step.most_rows() < tuning.prefill_min_rows) return false;
  return step.limits.split_rule == SplitRule::kNone ||
         prefills_whole_work_tiles(
             2 * sm90::max_prefill_work_tiles(problem.plan->num_row_tiles, step.num_reqs,
                                              problem.plan->tile_rows, problem.plan->num_head_groups),
             step, tuning);
}

template <size_t kIdx>
bool prefill_e4m3_supports(const AttentionProblem& problem, const GpuFacts& gpu) {
  return plan_fits_prefill(problem, gpu) && !has_fixed_splits(problem) && !problem.plan->inline_plan &&
         !plan_verifies(problem) && problem.q_dtype == DType::kF8E4M3 && problem.kv_dtype == DType::kF8E4M3 &&
         rows_fit_tiles(problem, sm90::kE4m3PrefillDims[kIdx]);
}

// The only later row that supports such a problem is the row kernel.
bool prefill_e4m3_is_faster(const AttentionProblem&, const GpuFacts&, const AttentionTuning& tuning) {
  return tuning.prefills_e4m3;
}

// Without splits the same kernel must run a request's rows for any other requests of the step.
bool prefill_is_faster(const AttentionProblem& problem, const GpuFacts&, const AttentionTuning& tuning) {
  const AttentionStep& step = problem.step;
  if (step.most_rows() < tuning.prefill_min_rows) return plan_verifies(problem) && !is_fp8(problem.kv_dtype);
  return problem.plan->divides_prefill_keys() || step.limits.split_rule == SplitRule::kNone ||
         prefills_whole_work_tiles(
             sm90::max_prefill_work_tiles(problem.plan->num_row_tiles, step.num_reqs, problem.plan->tile_rows,
                                          step.limits.num_kv_heads),
             step, tuning);
}

// The plan depends on the head dim of V only, so it may have tiles that an instance for wider values lacks.
// With fixed splits such an instance supports no tile of the plan, because bits must not depend on a tile's
// height.
template <size_t kIdx>
bool tiles_support(const AttentionProblem& problem, const GpuFacts& gpu) {
  constexpr HeadDims kDims = kAttentionDims[kIdx];
  return fits_tiles(problem, kDims) && has_tile_rows(kDims.v, problem.plan->tile_rows) &&
         (!has_fixed_splits(problem) || max_tile_rows(kDims.v) == max_tile_rows(problem.head_dim_v())) &&
         tile_shared_bytes<kDims.qk, kDims.v>(is_fp8(problem.kv_dtype), problem.plan->tile_rows,
                                              has_fixed_splits(problem)) <= gpu.shared_bytes;
}

// Supports exact head dims only; tiles that pad run the others.
template <size_t kIdx>
bool single_request_decode_supports(const AttentionProblem& problem, const GpuFacts& gpu) {
  constexpr HeadDims kDims = kSingleRequestDecodeDims[kIdx];
  return gpu.runs_sm90a() && problem.plain_token && problem.plan->single_cluster_per_tile &&
         problem.plan->tile_rows == kKeyMajorRows && !problem.has_tree_mask() && !has_fixed_splits(problem) &&
         problem.kv_dtype == problem.q_dtype && problem.out_dtype == problem.q_dtype &&
         fits_tiles(problem, kDims) && HeadDims{problem.head_dim_qk, problem.head_dim_v()} == kDims;
}

// Narrower values have plans with other tiles.
constexpr HeadDims kWideDims{512, 512};
bool fits_wide_tiles(const AttentionProblem& problem) {
  return is_wide_plan(problem) && problem.kv_dtype == problem.q_dtype && fits_tiles(problem, kWideDims);
}
bool wide_decode_supports(const AttentionProblem& problem, const GpuFacts& gpu) {
  return gpu.runs_sm90a() && fits_wide_tiles(problem);
}
bool wide_tiles_support(const AttentionProblem& problem, const GpuFacts& gpu) {
  return fits_wide_tiles(problem) && gpu.shared_bytes >= kMlaSharedBytes;
}

// Requirements of all MLA kernels except those on latent rows.
bool fits_mla(const AttentionProblem& problem) {
  const DType q = problem.q_dtype, out = problem.out_dtype;
  return problem.mla && (q == DType::kBF16 || q == DType::kF16) && (out == q || out == DType::kF32) &&
         problem.positive_scale && !has_fixed_splits(problem) && problem.plan->tile_rows <= 64 &&
         problem.aligned && problem.strides_fit;
}

bool mla_tiles_support(const AttentionProblem& problem, const GpuFacts& gpu) {
  return fits_mla(problem) && problem.kv_dtype == problem.q_dtype && gpu.shared_bytes >= kMlaSharedBytes;
}

// On sm90 it supports every problem that sm80's kernel supports; plans depend on that.
bool sm90_mla_supports(const AttentionProblem& problem, const GpuFacts& gpu) {
  return gpu.runs_sm90a() && fits_mla(problem) &&
         (problem.kv_dtype == problem.q_dtype || (is_fp8(problem.kv_dtype) && problem.head_dim_qk % 16 == 0));
}

bool scaled_mla_supports(const AttentionProblem& problem, const GpuFacts& gpu) {
  return fits_mla(problem) && problem.kv_dtype == DType::kU8 &&
         gpu.shared_bytes >= sm80::kScaledMlaSharedBytes;
}

bool prefill_96_is_faster(const AttentionProblem& problem, const GpuFacts& gpu,
                          const AttentionTuning& tuning) {
  return tuning.prefills_96 && prefill_is_faster(problem, gpu, tuning);
}

template <size_t kIdx>
constexpr AttentionRow prefill(std::string_view name,
                               decltype(AttentionRow::is_faster) is_faster = prefill_is_faster) {
  return {AttentionKernel::kSm90Prefill,
          sm90::kPrefillDims[kIdx],
          name,
          prefill_supports<kIdx>,
          is_faster,
          "many rows, with work tiles or key ranges for every SM"};
}

template <size_t kIdx>
constexpr AttentionRow prefill_e4m3(std::string_view name) {
  return {AttentionKernel::kSm90Prefill,
          sm90::kE4m3PrefillDims[kIdx],
          name,
          prefill_e4m3_supports<kIdx>,
          prefill_e4m3_is_faster,
          "queries, keys and values in e4m3, multiplied without conversion"};
}

template <size_t kIdx>
constexpr AttentionRow single_request_decode(std::string_view name) {
  return {AttentionKernel::kSm90SingleRequestDecode,
          kSingleRequestDecodeDims[kIdx],
          name,
          single_request_decode_supports<kIdx>,
          always,
          "one token of one request: short code, same bits as sm80 tiles"};
}

template <size_t kIdx>
constexpr AttentionRow tiles(std::string_view name) {
  return {AttentionKernel::kSm80Tiles,
          kAttentionDims[kIdx],
          name,
          tiles_support<kIdx>,
          always,
          "the smallest instance that covers the head dims"};
}

constexpr std::array kAttentionRows{
    prefill<0>("sm90 prefill 64/64"),
    prefill<1>("sm90 prefill 96/96", prefill_96_is_faster),
    prefill<2>("sm90 prefill 128/128"),
    prefill<3>("sm90 prefill 192/128"),
    prefill<4>("sm90 prefill 256/256"),
    prefill<5>("sm90 prefill 512/512", wide_prefill_is_faster),
    prefill_e4m3<0>("sm90 prefill e4m3 64/64"),
    prefill_e4m3<1>("sm90 prefill e4m3 128/128"),
    prefill_e4m3<2>("sm90 prefill e4m3 192/128"),
    single_request_decode<0>("sm90 single-request decode 64"),
    single_request_decode<1>("sm90 single-request decode 128"),
    AttentionRow{AttentionKernel::kSm90WideDecode, kWideDims, "sm90 wide decode 512/512",
                 wide_decode_supports, always, "values wider than 256, with keys as the rows of wgmma"},
    tiles<0>("sm80 tiles 64/64"),
    tiles<1>("sm80 tiles 128/128"),
    tiles<2>("sm80 tiles 192/128"),
    tiles<3>("sm80 tiles 256/256"),
    AttentionRow{AttentionKernel::kSm80WideTiles, kWideDims, "sm80 wide tiles 512/512", wide_tiles_support,
                 always, "values wider than 256, by the kernel of MLA"},
    AttentionRow{AttentionKernel::kSm90Mla,
                 {},
                 "sm90 MLA",
                 sm90_mla_supports,
                 always,
                 "absorbed MLA over 16-bit and fp8 rows, on Hopper"},
    AttentionRow{AttentionKernel::kSm80Mla,
                 {},
                 "sm80 MLA",
                 mla_tiles_support,
                 always,
                 "absorbed MLA over 16-bit rows"},
    AttentionRow{AttentionKernel::kSm80ScaledMla,
                 {},
                 "sm80 MLA of scaled rows",
                 scaled_mla_supports,
                 always,
                 "absorbed MLA over rows with inline scales"},
    AttentionRow{AttentionKernel::kRows,
                 {},
                 "rows",
                 [](const AttentionProblem&, const GpuFacts&) { return true; },
                 always,
                 "no tensor-core kernel supports the problem"}};
static_assert(sm90::kPrefillDims.size() == 6 && sm90::kE4m3PrefillDims.size() == 3 &&
                  kAttentionDims.size() == 4 && kSingleRequestDecodeDims.size() == 2,
              "the table has a row for each instance");

}  // namespace

const AttentionTuning& attention_tuning(const GpuFacts& gpu) { return find_tuning(kAttentionTunings, gpu); }

std::span<const AttentionRow> attention_rows() { return kAttentionRows; }

AttentionChoice choose(AttentionProblem problem, const GpuFacts& gpu, const AttentionTuning& tuning) {
  if (!problem.plan) problem.plan = choose_plan(problem.step, gpu, tuning);
  return {first_row("attention", attention_rows(), problem, gpu, tuning), *problem.plan};
}

}  // namespace attend::kernels::cuda
