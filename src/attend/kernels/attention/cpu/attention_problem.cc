#include "attend/kernels/attention/cpu/attention_problem.h"

#include "attend/kernels/kv_store/selected_rows.h"

namespace attend::kernels::cpu {
namespace {

QueryPart query_part(const TensorView& q) {
  return {.data = q.data,
          .dim = static_cast<int>(q.shape[2]),
          .token_stride = q.strides[0],
          .head_stride = q.strides[1]};
}

PagedRows paged_rows(const TensorView& rows) {
  const auto element_bytes = static_cast<int64_t>(size_of(rows.dtype));
  return {.data = static_cast<const char*>(rows.data),
          .dim = static_cast<int>(rows.shape[3]),
          .page_stride = rows.strides[0] * element_bytes,
          .token_stride = rows.strides[1] * element_bytes,
          .head_stride = rows.strides[2] * element_bytes};
}

// Fields that both families share.
template <class Args>
AttentionProblem common_problem(const Args& args, const AttentionPlan& plan) {
  AttentionProblem problem;
  problem.q[0] = query_part(args.q);
  problem.q_dtype = args.q.dtype;
  problem.out = args.out;
  problem.lse = args.lse;
  problem.batch = args.batch;
  problem.attention_mask = args.attention_mask;
  problem.num_q_heads = static_cast<int>(args.q.shape[1]);
  problem.logit_cap = args.score.logit_cap;
  problem.sinks = args.score.sinks.empty() ? nullptr : args.score.sinks.data();
  if (plan.limits().split_rule == SplitRule::kFixed) problem.split_tokens = plan.limits().split_tokens;
  problem.partial_out = plan.partial_out().template as<float>();
  problem.partial_lse = plan.partial_lse().template as<float>();
  return problem;
}

}  // namespace

AttentionProblem make_problem(const AttentionArgs& args, const AttentionPlan& plan) {
  AttentionProblem problem = common_problem(args, plan);
  problem.k = paged_rows(args.kv.k);
  problem.v = paged_rows(args.kv.v);
  problem.kv_dtype = args.kv.k.dtype;
  problem.index = args.kv.index;
  problem.num_kv_heads = static_cast<int>(args.kv.k.shape[2]);
  problem.scale = args.score.scale * args.kv.k_scale;
  problem.v_scale = args.kv.v_scale;
  return problem;
}

AttentionProblem make_problem(const MlaArgs& args, const AttentionPlan& plan) {
  AttentionProblem problem = common_problem(args, plan);
  problem.q[1] = query_part(args.q_rope);
  problem.k = paged_rows(args.latent.split(2, args.latent.shape[2]));
  problem.k.dim = problem.head_dim_qk();
  problem.v = problem.k;
  problem.v.dim = problem.q[0].dim;
  problem.scaled_rows = has_scaled_rows(args.latent);
  // Exact, because descales are powers of two.
  problem.kv_dtype = problem.scaled_rows ? DType::kBF16 : args.latent.dtype;
  problem.index = args.index;
  problem.num_kv_heads = 1;
  problem.scale = args.score.scale * args.scale_kv;
  problem.v_scale = args.scale_kv;
  problem.empty_lse = args.empty_lse;
  return problem;
}

}  // namespace attend::kernels::cpu
