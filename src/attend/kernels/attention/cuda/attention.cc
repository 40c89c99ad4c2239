#include "attend/kernels/attention/cuda/attention.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <sstream>
#include <string>

#include "attend/base/error.h"
#include "attend/kernels/attention/cuda/common/tile_config.h"
#include "attend/kernels/attention/cuda/sm80/attention_launch.h"
#include "attend/kernels/attention/cuda/sm90/attention.h"
#include "attend/kernels/attention/cuda/sm90/prefill/prefill_shape.h"
#include "attend/kernels/common/choose_row.h"
#include "attend/kernels/common/cuda/gpu_facts.h"
#include "attend/kernels/common/cuda/view_params.h"
#include "attend/kernels/kv_store/selected_rows.h"
#include "attend_generated/sm80_instances.h"

namespace attend::kernels::cuda {
namespace {

// Returns true if every row of the last dimension begins at a multiple of `num_bytes`.
bool rows_aligned(const TensorView& view, int64_t num_bytes) {
  const auto element_bytes = static_cast<int64_t>(size_of(view.dtype));
  if (reinterpret_cast<uintptr_t>(view.data) % static_cast<uintptr_t>(num_bytes) != 0) return false;
  for (int dim = 0; dim + 1 < view.rank; ++dim) {
    const auto d = static_cast<size_t>(dim);
    if (view.shape[d] > 1 && view.strides[d] * element_bytes % num_bytes != 0) return false;
  }
  return true;
}

// Returns true if every stride is below 2^31 elements.
bool strides_fit(const TensorView& view) {
  for (int dim = 0; dim < view.rank; ++dim)
    if (std::abs(view.strides[static_cast<size_t>(dim)]) > std::numeric_limits<int32_t>::max()) return false;
  return true;
}

// Returns 2^32 / group, rounded up: the upper half of its product with x is x / group if x * group < 2^32.
uint32_t reciprocal(int32_t group) {
  return group == 1 ? 0 : static_cast<uint32_t>(((uint64_t{1} << 32) + group - 1) / group);
}

constexpr bool has_instance(Element kv, HeadDims dims) {
  return std::any_of(
      std::begin(sm80::kAttentionInstances), std::end(sm80::kAttentionInstances),
      [&](const sm80::AttentionInstance& instance) {
        return instance.kv == kv && HeadDims{instance.head_dim_qk, instance.head_dim_v} == dims;
      });
}
static_assert(sm80::kAttentionInstancesAreSampled ||
              std::all_of(kAttentionDims.begin(), kAttentionDims.end(), [](HeadDims dims) {
                return has_instance(Element::kBF16, dims) && has_instance(Element::kF16, dims) &&
                       has_instance(Element::kF8E4M3, dims) && has_instance(Element::kF8E5M2, dims);
              }));

sm80::AttentionLaunch tiles_launch(Element kv, HeadDims dims) {
  for (const sm80::AttentionInstance& instance : sm80::kAttentionInstances)
    if (instance.kv == kv && HeadDims{instance.head_dim_qk, instance.head_dim_v} == dims)
      return instance.launch;
  fail(ErrorCode::kInternal, "attention: no instance of sm80 tiles ", dims.qk, "/", dims.v);
}

// Returns true if a separate kernel merges the partial results.
bool needs_merge_kernel(const PlanView& plan) { return plan.streamed && !plan.ctas_merge; }

// Returns true if CTAs may start before the previous kernel has ended. If CTAs store the plan that they
// derive for a separate merge kernel, the merge kernel of the previous call may still read the previous plan.
bool may_start_early(bool prefix_ready, const PlanView& plan) {
  return prefix_ready && !(plan.inline_plan && needs_merge_kernel(plan));
}

// Returns the inputs of a choice that the plan and the mask determine.
AttentionProblem make_problem(const DevicePlan& plan, const AttentionMask& attention_mask) {
  return {.step = plan.step(), .causal = attention_mask.causal, .plan = plan.shape()};
}

std::string description(const AttentionProblem& problem) {
  std::ostringstream text;
  text << problem.step.num_reqs << " requests, up to " << problem.step.most_rows() << " rows each of "
       << problem.step.limits.num_kv_heads << " KV heads, head dims " << problem.head_dim_qk << "/"
       << problem.head_dim_v() << ", " << problem.q_dtype;
  if (problem.kv_dtype != problem.q_dtype) text << " with K/V in " << cache_dtype_name(problem.kv_dtype);
  return text.str();
}

HeadScaleParams head_scales(const HeadScales& scales) {
  return {scales.data, scales.request_stride, scales.head_stride};
}

// Returns the number of new keys of each request.
int32_t num_new_keys(const AttentionArgs& args) {
  return args.batch.num_reqs() == 0 ? 0
                                    : static_cast<int32_t>(args.new_keys.k.shape[0] / args.batch.num_reqs());
}

AttentionParams common_params(const QueryBatch& batch, const AttentionMask& attention_mask,
                              const ScoreRule& score, const TensorView& q, const TensorView& out,
                              const TensorView& lse) {
  AttentionParams params{};
  params.q = token_rows(q);
  params.q_element = to_element_type(q.dtype);
  params.out = out_rows(out);
  params.out_element = to_element_type(out.dtype);
  if (!lse.empty()) {
    params.lse = lse.as<float>();
    params.lse_token_stride = lse.strides[0];
    params.lse_head_stride = lse.strides[1];
  }
  params.batch = batch_params(batch, attention_mask);
  params.sinks = score.sinks.empty() ? nullptr : score.sinks.data();
  params.logit_cap = score.logit_cap;
  params.empty_lse = kEmptyLse;
  params.num_tokens = static_cast<int32_t>(q.shape[0]);
  params.num_q_heads = static_cast<int32_t>(q.shape[1]);
  params.head_dim_v = static_cast<int32_t>(out.shape[2]);
  return params;
}

// A call of attention or of MLA: the other family's arguments are null.
struct Call {
  const AttentionArgs* args;
  const MlaArgs* mla_args;
  const AttentionParams& params;
  const DevicePlan& plan;
  HeadDims dims = {};  // head dims of the chosen instance
};

void launch_prefill(const Call& call, Stream& stream) {
  sm90::prefill(*call.args, call.params, call.plan, call.dims, stream);
  if (divides_keys(call.params.plan) && needs_merge_kernel(call.params.plan))
    sm80::launch_merge_partials(call.params, stream.handle);
}

void launch_sm90_mla(const Call& call, Stream& stream) {
  sm90::mla(*call.mla_args, call.params, call.plan, stream);
}

void launch_tiles(const Call& call, Stream& stream) {
  tiles_launch(call.params.kv_element, call.dims)(call.params, call.plan.num_row_tiles(), stream.handle);
  if (needs_merge_kernel(call.params.plan)) sm80::launch_merge_partials(call.params, stream.handle);
}

void launch_single_request_decode(const Call& call, Stream& stream) {
  sm90::single_request_decode(call.params, call.dims, stream);
}

void launch_wide_decode(const Call& call, Stream& stream) {
  sm90::wide_decode(*call.args, call.params, call.plan, stream);
  if (needs_merge_kernel(call.params.plan)) sm80::launch_merge_partials(call.params, stream.handle);
}

void launch_wide_tiles(const Call& call, Stream& stream) {
  sm80::launch_wide_tiles(call.params, call.plan.num_row_tiles(), stream.handle);
  if (needs_merge_kernel(call.params.plan)) sm80::launch_merge_partials(call.params, stream.handle);
}

void launch_mla_tiles(const Call& call, Stream& stream) {
  sm80::launch_mla(call.params, call.plan.num_row_tiles(), stream.handle);
  if (needs_merge_kernel(call.params.plan)) sm80::launch_merge_partials(call.params, stream.handle);
}

void launch_scaled_mla_tiles(const Call& call, Stream& stream) {
  sm80::launch_scaled_mla(call.params, call.plan.num_row_tiles(), stream.handle);
  if (needs_merge_kernel(call.params.plan)) sm80::launch_merge_partials(call.params, stream.handle);
}

void launch_rows(const Call& call, Stream& stream) {
  const bool scaled = call.mla_args != nullptr && has_scaled_rows(call.mla_args->latent);
  (scaled ? sm80::launch_scaled_row_attention : sm80::launch_row_attention)(call.params, stream.handle);
}

// Indexed by AttentionKernel.
constexpr std::array<void (*)(const Call& call, Stream& stream), kNumAttentionKernels> kLaunches{
    launch_prefill,    launch_sm90_mla,  launch_single_request_decode, launch_wide_decode, launch_tiles,
    launch_wide_tiles, launch_mla_tiles, launch_scaled_mla_tiles,      launch_rows};

void launch(const AttentionProblem& problem, const AttentionTuning& tuning, Call call, Stream& stream) {
  const AttentionRow& row = choose(problem, gpu_facts(stream.device), tuning).row;
  report_choice(problem.mla ? "mla" : "attention", row, [&] { return description(problem); });
  call.dims = row.dims;
  kLaunches[static_cast<size_t>(row.kernel)](call, stream);
}

}  // namespace

AttentionProblem attention_problem(const AttentionArgs& args, const DevicePlan& plan) {
  AttentionProblem problem = make_problem(plan, args.attention_mask);
  problem.q_dtype = args.q.dtype;
  problem.kv_dtype = args.kv.k.dtype;
  problem.out_dtype = args.out.dtype;
  problem.head_dim_qk = static_cast<int>(args.q.shape[2]);
  problem.positive_scale = args.score.scale > 0.0f;
  problem.aligned = rows_aligned(args.q, 16) && rows_aligned(args.kv.k, 16) && rows_aligned(args.kv.v, 16) &&
                    rows_aligned(args.out, 16);
  problem.strides_fit =
      strides_fit(args.q) && strides_fit(args.kv.k) && strides_fit(args.kv.v) && strides_fit(args.out);
  problem.plain_token = args.q.shape[0] == 1 && args.new_keys.k.empty() &&
                        args.attention_mask.window_left < 0 && args.attention_mask.chunk == 0 &&
                        args.score.logit_cap == 0.0f && args.score.sinks.empty() && args.lse.empty();
  return problem;
}

AttentionProblem attention_problem(const MlaArgs& args, const DevicePlan& plan) {
  AttentionProblem problem = make_problem(plan, args.attention_mask);
  problem.mla = true;
  problem.q_dtype = args.q.dtype;
  problem.kv_dtype = args.latent.dtype;
  problem.out_dtype = args.out.dtype;
  problem.head_dim_qk = static_cast<int>(latent_width(args.latent));
  problem.positive_scale = args.score.scale > 0.0f;
  problem.aligned = rows_aligned(args.q, 16) && rows_aligned(args.q_rope, 16) &&
                    rows_aligned(args.latent, 16) && rows_aligned(args.out, 16);
  problem.strides_fit = strides_fit(args.latent);
  return problem;
}

void attention(const AttentionArgs& args, const DevicePlan& plan, Stream& stream,
               const AttentionTuning& tuning) {
  AttentionParams params =
      common_params(args.batch, args.attention_mask, args.score, args.q, args.out, args.lse);
  params.k = paged_rows(args.kv.k);
  params.v = paged_rows(args.kv.v);
  params.kv_element = to_element_type(args.kv.k.dtype);
  params.index = args.kv.index;
  params.plan = plan.view();
  params.scale = args.score.scale * args.kv.k_scale;
  params.v_scale = args.kv.v_scale;
  params.num_kv_heads = static_cast<int32_t>(args.kv.k.shape[2]);
  params.group = params.num_q_heads / params.num_kv_heads;
  params.group_reciprocal = reciprocal(params.group);
  params.head_dim_qk = static_cast<int32_t>(args.q.shape[2]);
  params.prefix_ready = may_start_early(args.prefix_ready, plan.view());
  params.q_scales = head_scales(args.q_scales);
  params.k_scales = head_scales(args.k_scales);
  params.v_scales = head_scales(args.v_scales);
  if (!args.new_keys.k.empty()) {
    params.batch.seqlen_new = num_new_keys(args);
    params.new_keys = {token_rows(args.new_keys.k), token_rows(args.new_keys.v), args.new_keys.capacity};
  }
  launch(attention_problem(args, plan), tuning, {&args, nullptr, params, plan}, stream);
}

void attention(const AttentionArgs& args, const DevicePlan& plan, Stream& stream) {
  attention(args, plan, stream, attention_tuning(gpu_facts(stream.device)));
}

// Keys of a window must begin before the new keys, so that a CTA reads, and therefore stores, all new keys.
bool stores_new_keys(const AttentionArgs& args, const DevicePlan& plan) {
  const NewKeys& added = args.new_keys;
  const DType dtype = args.kv.k.dtype;
  const GpuFacts& gpu = gpu_facts(args.q.device);
  return plan.shape().inline_plan && args.batch.tree_mask.empty() && !args.prefix_ready &&
         args.attention_mask.chunk == 0 &&
         (args.attention_mask.window_left < 0 || num_new_keys(args) <= args.attention_mask.window_left) &&
         num_new_keys(args) <= attention_tuning(gpu).max_stored_keys && size_of(dtype) == 2 &&
         added.k.dtype == dtype && added.v.dtype == dtype && rows_aligned(added.k, 16) &&
         rows_aligned(added.v, 16) && args.kv.k_scale == 1.0f && args.kv.v_scale == 1.0f &&
         choose(attention_problem(args, plan), gpu).row.kernel == AttentionKernel::kSm80Tiles;
}

bool has_head_descales(const AttentionArgs& args, const DevicePlan& plan) {
  constexpr int kMaxRows = 32;  // of sm80 tiles that support descales
  if (!is_fp8(args.kv.k.dtype)) return false;
  const AttentionKernel kernel = choose(attention_problem(args, plan), gpu_facts(args.q.device)).row.kernel;
  return kernel == AttentionKernel::kSm90Prefill ||
         (kernel == AttentionKernel::kSm80Tiles && plan.shape().tile_rows <= kMaxRows);
}

// Represents the rows as a request with `num_rows` new tokens and one head.
bool multiplies_e4m3(Device device, int64_t head_dim_qk, int64_t head_dim_v, int64_t num_rows) {
  const GpuFacts& gpu = gpu_facts(device);
  const auto num_tokens = static_cast<int>(std::min<int64_t>(num_rows, std::numeric_limits<int>::max()));
  const AttentionStep step{.limits = {.max_reqs = 1,
                                      .max_tokens = num_tokens,
                                      .num_q_heads = 1,
                                      .num_kv_heads = 1,
                                      .head_dim_v = static_cast<int>(head_dim_v),
                                      .num_workers = gpu.num_sms,
                                      .kv_dtype = DType::kF8E4M3},
                           .num_reqs = 1,
                           .max_seqlen_q = num_tokens,
                           .plans_inline = true};
  return choose({.step = step,
                 .q_dtype = DType::kF8E4M3,
                 .kv_dtype = DType::kF8E4M3,
                 .head_dim_qk = static_cast<int>(head_dim_qk)},
                gpu)
             .row.kernel == AttentionKernel::kSm90Prefill;
}

void mla(const MlaArgs& args, const DevicePlan& plan, Stream& stream) {
  AttentionParams params =
      common_params(args.batch, args.attention_mask, args.score, args.q, args.out, args.lse);
  params.q_rope = token_rows(args.q_rope);
  params.rope_dim = static_cast<int32_t>(args.q_rope.shape[2]);
  // One latent row is K of all heads, and its first part is V.
  params.k = {args.latent.data, args.latent.strides[0], args.latent.strides[1], 0};
  params.v = params.k;
  // Scaled rows have separate kernels, with strides in bytes.
  params.kv_element = has_scaled_rows(args.latent) ? Element::kF8E4M3 : to_element_type(args.latent.dtype);
  params.index = args.index;
  params.scale = args.score.scale * args.scale_kv;
  params.v_scale = args.scale_kv;
  params.num_kv_heads = plan.num_head_groups();
  params.group = params.num_q_heads / params.num_kv_heads;
  params.group_reciprocal = reciprocal(params.group);
  params.head_dim_qk = static_cast<int32_t>(latent_width(args.latent));
  params.empty_lse = args.empty_lse;
  params.prefix_ready = may_start_early(args.prefix_ready, plan.view());
  params.plan = plan.view();
  launch(attention_problem(args, plan), attention_tuning(gpu_facts(stream.device)),
         {nullptr, &args, params, plan}, stream);
}

}  // namespace attend::kernels::cuda
