// PlanKey: properties that layers must share to use the same plan, and the limits of such plans.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "attend/attention/attention_layer.h"
#include "attend/attention/backend.h"
#include "attend/backends/table.h"
#include "attend/kernels/attention/attention_plan.h"

namespace attend {

struct PlanKey {
  kernels::AttentionMask attention_mask;
  int num_q_heads = 0, num_kv_heads = 0, head_dim_v = 0;
  bool operator==(const PlanKey&) const = default;
};

inline PlanKey plan_key(const AttentionLayer& layer) {
  return {.attention_mask = layer.attention_mask(),
          .num_q_heads = layer.num_q_heads,
          .num_kv_heads = layer.num_kv_heads,
          .head_dim_v = layer.head_dim_v};
}

inline std::vector<PlanKey> distinct_plans(const std::vector<AttentionLayer>& layers) {
  std::vector<PlanKey> found;
  for (const AttentionLayer& layer : layers)
    if (std::ranges::find(found, plan_key(layer)) == found.end()) found.push_back(plan_key(layer));
  return found;
}

// Returns an upper bound of the keys that the new tokens of one request with at most max_seqlen_kv keys see;
// 0: unknown. In layers with a small window every request is short. Keys after a token's position are new
// tokens.
inline int max_unmasked_keys(const kernels::AttentionMask& attention_mask, int max_seqlen_q,
                             int max_seqlen_kv) {
  constexpr int64_t kUnknown = std::numeric_limits<int64_t>::max();
  int64_t most = max_seqlen_kv > 0 ? max_seqlen_kv : kUnknown;
  if (attention_mask.window_left >= 0)
    most = std::min(most, int64_t{max_seqlen_q} + attention_mask.window_left);
  if (attention_mask.chunk > 0) most = std::min(most, int64_t{max_seqlen_q} - 1 + attention_mask.chunk);
  if (most == kUnknown) return 0;
  return static_cast<int>(std::min<int64_t>(most, std::numeric_limits<int>::max()));
}

inline kernels::AttentionPlanLimits plan_limits(const BackendSpec& spec, const BackendConfig& config,
                                                const PlanKey& key) {
  return {.max_reqs = config.limits.max_reqs,
          .max_tokens = config.limits.max_tokens,
          .max_kv_tokens = config.limits.max_kv_tokens,
          .num_q_heads = key.num_q_heads,
          .num_kv_heads = key.num_kv_heads,
          .head_dim_v = key.head_dim_v,
          .split_rule = config.deterministic ? kernels::SplitRule::kFixed : spec.split_rule,
          .split_tokens = spec.split_tokens,
          .num_workers = 0,
          .kv_dtype = config.model.kv_dtype};
}

}  // namespace attend
