// Plans of attention on a GPU, for AttentionPlan (attention_plan.h): choose_plan() selects, DevicePlan
// implements.
#pragma once

#include "attend/kernels/attention/cuda/common/plan/device_plan.h"

namespace attend::kernels::cuda {

// Throws Error(kInvalidArgument) for limits that no plan supports. If limits.num_workers is 0, uses the
// device's SM count.
DevicePlan make_plan(const AttentionPlanLimits& limits, Device device);
size_t plan_bytes(const AttentionPlanLimits& limits, Device device);

// See the members of AttentionPlan. Throw Error(kInvalidArgument) if the batch has more requests than the
// limits.
void plan(DevicePlan& plan, const QueryBatch& batch, const AttentionMask& attention_mask, Stream& stream);
void plan_inline(DevicePlan& plan, const QueryBatch& batch, const AttentionMask& attention_mask,
                 Stream& stream);
bool try_plan_inline(DevicePlan& plan, const QueryBatch& batch);
bool plan_depends_on_kv_len(const DevicePlan& plan, int num_reqs);

}  // namespace attend::kernels::cuda
