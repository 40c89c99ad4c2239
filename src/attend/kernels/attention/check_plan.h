// What kernel entries check beside their arguments: that the plan fits.
#pragma once

#include <string_view>

#include "attend/kernels/attention/attention_plan.h"

namespace attend::kernels {

struct HeadGeometry {
  int64_t num_q_heads = 0, num_kv_heads = 0, head_dim_v = 0;
};

// Throws Error(kInvalidArgument) unless `plan` was made for these heads, and planned for as many requests
// and for this visibility, or for one without window and chunk, whose ranges contain every other's.
void check_plan(std::string_view kernel, const AttentionPlan& plan, const QueryBatch& batch,
                const Visibility& visibility, const HeadGeometry& heads);

}  // namespace attend::kernels
