#include "attend/kernels/attention/check_plan.h"

namespace attend::kernels {

void check_plan(std::string_view kernel, const AttentionPlan& plan, const QueryBatch& batch,
                const Visibility& visibility, const HeadGeometry& heads) {
  const AttentionPlanLimits& limits = plan.limits();
  require(heads.num_q_heads == limits.num_q_heads && heads.num_kv_heads == limits.num_kv_heads &&
              heads.head_dim_v == limits.head_dim_v,
          kernel, ": ", heads.num_q_heads, " query heads, ", heads.num_kv_heads, " KV heads, head_dim_v ",
          heads.head_dim_v, ": the plan was made for ", limits.num_q_heads, ", ", limits.num_kv_heads,
          " and ", limits.head_dim_v);
  const Visibility unrestricted{.causal = visibility.causal, .window_right = visibility.window_right};
  require(plan.visibility() == visibility || plan.visibility() == unrestricted, kernel, ": window_left ",
          visibility.window_left, ", chunk ", visibility.chunk, ", causal ", visibility.causal,
          ", window_right ", visibility.window_right, ": the plan was made for ",
          plan.visibility().window_left, ", ", plan.visibility().chunk, ", ", plan.visibility().causal,
          " and ", plan.visibility().window_right);
  require(batch.num_reqs() == plan.num_reqs(), kernel, ": ", batch.num_reqs(),
          " requests: the plan was made for ", plan.num_reqs());
}

}  // namespace attend::kernels
