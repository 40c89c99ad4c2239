// Plans of attention on a GPU, as AttentionPlan (attention_plan.h) has them: choose_plan() decides,
// DevicePlan carries out.
#pragma once

#include "attend/kernels/attention/cuda/common/plan/device_plan.h"

namespace attend::kernels::cuda {

// Throws Error(kInvalidArgument) for limits that no plan has. Reads the SM count from the device where
// limits.num_workers is 0.
DevicePlan make_plan(const AttentionPlanLimits& limits, Device device);
size_t plan_bytes(const AttentionPlanLimits& limits, Device device);

// As the members of AttentionPlan. Throw Error(kInvalidArgument) when the batch has more requests than the
// limits.
void plan(DevicePlan& plan, const QueryBatch& batch, const AttentionMask& attention_mask, Stream& stream);
void plan_inline(DevicePlan& plan, const QueryBatch& batch, const AttentionMask& attention_mask,
                 Stream& stream);
bool try_plan_inline(DevicePlan& plan, const QueryBatch& batch);
bool plan_depends_on_kv_len(const DevicePlan& plan, int num_reqs);

}  // namespace attend::kernels::cuda
