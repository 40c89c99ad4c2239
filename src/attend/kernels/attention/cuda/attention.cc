#include "attend/kernels/attention/cuda/attention.h"

#include <cstdint>
#include <cstdlib>
#include <limits>

#include "attend/kernels/attention/cuda/common/tile_config.h"
#include "attend/kernels/attention/cuda/sm80/attention_launch.h"
#include "attend/kernels/attention/cuda/sm90/mla.h"
#include "attend/kernels/attention/cuda/sm90/prefill.h"
#include "attend/kernels/common/cuda/view_params.h"
#include "attend_generated/sm80_instances.h"

namespace attend::kernels::cuda {
namespace {

// Whether every row of the last dimension begins at a multiple of `num_bytes`.
bool rows_aligned(const TensorView& view, int64_t num_bytes) {
  const auto element_bytes = static_cast<int64_t>(size_of(view.dtype));
  if (reinterpret_cast<uintptr_t>(view.data) % static_cast<uintptr_t>(num_bytes) != 0) return false;
  for (int dim = 0; dim + 1 < view.rank; ++dim) {
    const auto d = static_cast<size_t>(dim);
    if (view.shape[d] > 1 && view.strides[d] * element_bytes % num_bytes != 0) return false;
  }
  return true;
}

// Whether every stride is below 2^31 elements.
bool strides_fit(const TensorView& view) {
  for (int dim = 0; dim < view.rank; ++dim)
    if (std::abs(view.strides[static_cast<size_t>(dim)]) > std::numeric_limits<int32_t>::max()) return false;
  return true;
}

// 2^32 / group, rounded up: the product with x holds x / group in its upper half while x * group < 2^32.
uint32_t reciprocal(int32_t group) {
  return group == 1 ? 0 : static_cast<uint32_t>(((uint64_t{1} << 32) + group - 1) / group);
}

// The tiled instance for these arguments, or null.
sm80::AttentionLaunch find_instance(const AttentionArgs& args) {
  const DType q = args.q.dtype, kv = args.kv.k.dtype, out = args.out.dtype;
  const int64_t head_dim_qk = args.q.shape[2], head_dim_v = args.out.shape[2];
  if (q == DType::kF32 || (kv != q && !is_fp8(kv)) || (out != q && out != DType::kF32) ||
      !(args.score.scale > 0.0f))
    return nullptr;
  if (!rows_aligned(args.q, 16) || !rows_aligned(args.kv.k, 16) || !rows_aligned(args.kv.v, 16) ||
      !rows_aligned(args.out, 16))
    return nullptr;
  if (!strides_fit(args.q) || !strides_fit(args.kv.k) || !strides_fit(args.kv.v) || !strides_fit(args.out))
    return nullptr;
  if (is_fp8(kv) && (head_dim_qk % 16 != 0 || head_dim_v % 16 != 0)) return nullptr;
  for (const sm80::AttentionInstance& instance : sm80::kAttentionInstances)
    if (instance.kv == element_of(kv) && head_dim_qk <= instance.head_dim_qk &&
        head_dim_v <= instance.head_dim_v)
      // The plan knows the head dim of V alone.
      return sm80::max_tile_rows(instance.head_dim_v) == sm80::max_tile_rows(static_cast<int>(head_dim_v))
                 ? instance.launch
                 : nullptr;
  return nullptr;
}

// Whether parts of jobs are left for a kernel of its own to merge.
bool leaves_parts(const PlanView& plan) { return plan.streamed && !plan.ctas_merge; }

// Whether CTAs may start while the kernel before them ends. Where they leave the plan that they derive for
// the kernel that merges, that kernel of the call before may be what ends, and reads the last one.
bool may_start_early(bool old_keys_settled, const PlanView& plan) {
  return old_keys_settled && !(plan.ctas_plan && leaves_parts(plan));
}

// Whether MLA's tiled kernel takes these arguments.
bool tiles_take(const MlaArgs& args, const PlanView& plan) {
  const DType q = args.q.dtype, out = args.out.dtype;
  return (q == DType::kBF16 || q == DType::kF16) && args.latent.dtype == q &&
         (out == q || out == DType::kF32) && args.score.scale > 0.0f && plan.split_bank == nullptr &&
         plan.tile_rows <= 64 && rows_aligned(args.q, 16) && rows_aligned(args.q_rope, 16) &&
         rows_aligned(args.latent, 16) && rows_aligned(args.out, 16) && strides_fit(args.latent);
}

AttentionParams common_params(const QueryBatch& batch, const Visibility& visibility, const ScoreRule& score,
                              const TensorView& q, const TensorView& out, const TensorView& lse) {
  AttentionParams params{};
  params.q = token_rows(q);
  params.q_element = element_of(q.dtype);
  params.out = out_rows(out);
  params.out_element = element_of(out.dtype);
  if (!lse.empty()) {
    params.lse = lse.as<float>();
    params.lse_token_stride = lse.strides[0];
    params.lse_head_stride = lse.strides[1];
  }
  params.batch = batch_params(batch, visibility);
  params.sinks = score.sinks.empty() ? nullptr : score.sinks.data();
  params.logit_cap = score.logit_cap;
  params.num_tokens = static_cast<int32_t>(q.shape[0]);
  params.num_q_heads = static_cast<int32_t>(q.shape[1]);
  params.head_dim_v = static_cast<int32_t>(out.shape[2]);
  return params;
}

}  // namespace

void attention(const AttentionArgs& args, const DevicePlan& plan, Stream& stream) {
  require_on_device("q", args.q, stream);
  require_on_device("k", args.kv.k, stream);
  require_on_device("v", args.kv.v, stream);
  require_on_device("out", args.out, stream);
  require_on_device("lse", args.lse, stream);
  AttentionParams params = common_params(args.batch, args.visibility, args.score, args.q, args.out, args.lse);
  params.k = paged_rows(args.kv.k);
  params.v = paged_rows(args.kv.v);
  params.kv_element = element_of(args.kv.k.dtype);
  params.index = args.kv.index;
  params.plan = plan.view();
  params.scale = args.score.scale * args.kv.k_scale;
  params.v_scale = args.kv.v_scale;
  params.num_kv_heads = static_cast<int32_t>(args.kv.k.shape[2]);
  params.group = params.num_q_heads / params.num_kv_heads;
  params.group_reciprocal = reciprocal(params.group);
  params.head_dim_qk = static_cast<int32_t>(args.q.shape[2]);
  params.old_keys_settled = may_start_early(args.old_keys_settled, plan.view());
  const sm80::AttentionLaunch launch = find_instance(args);
  if (launch != nullptr && sm90::takes(args, plan, stream)) return sm90::prefill(args, params, plan, stream);
  if (launch == nullptr || !launch(params, plan.num_row_tiles(), stream.handle))
    return sm80::launch_row_attention(params, stream.handle);
  if (leaves_parts(params.plan)) sm80::launch_merge_jobs(params, stream.handle);
}

void mla(const MlaArgs& args, const DevicePlan& plan, Stream& stream) {
  require_on_device("q", args.q, stream);
  require_on_device("q_rope", args.q_rope, stream);
  require_on_device("latent", args.latent, stream);
  require_on_device("out", args.out, stream);
  require_on_device("lse", args.lse, stream);
  AttentionParams params = common_params(args.batch, args.visibility, args.score, args.q, args.out, args.lse);
  params.q_rope = token_rows(args.q_rope);
  params.rope_dim = static_cast<int32_t>(args.q_rope.shape[2]);
  // One latent row is K, and its first part V, of all heads.
  params.k = {args.latent.data, args.latent.strides[0], args.latent.strides[1], 0};
  params.v = params.k;
  params.kv_element = element_of(args.latent.dtype);
  params.index = args.index;
  params.scale = args.score.scale * args.scale_kv;
  params.v_scale = args.scale_kv;
  params.num_kv_heads = plan.num_head_groups();
  params.group = params.num_q_heads / params.num_kv_heads;
  params.group_reciprocal = reciprocal(params.group);
  params.head_dim_qk = static_cast<int32_t>(args.latent.shape[2]);
  params.old_keys_settled = may_start_early(args.old_keys_settled, plan.view());
  params.plan = plan.view();
  if (!tiles_take(args, plan.view()) || !sm80::device_takes_mla())
    return sm80::launch_row_attention(params, stream.handle);
  if (sm90::takes_mla(stream.device)) return sm90::mla(args, params, plan, stream);
  sm80::launch_mla(params, plan.num_row_tiles(), stream.handle);
  if (leaves_parts(params.plan)) sm80::launch_merge_jobs(params, stream.handle);
}

}  // namespace attend::kernels::cuda
