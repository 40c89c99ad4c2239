// The GPU kernels of a build without CUDA: there are none.
#include "attend/kernels/attention/cuda/attention.h"
#include "attend/kernels/attention/cuda/plan.h"
#include "attend/kernels/common/refuse_gpu.h"

namespace attend::kernels::cuda {

DevicePlan make_plan(const AttentionPlanLimits&, Device) { refuse("attention plan"); }
size_t plan_bytes(const AttentionPlanLimits&, Device) { refuse("attention plan"); }
void plan(DevicePlan&, const QueryBatch&, const Visibility&, Stream&) { refuse("attention plan"); }
void plan_inline(DevicePlan&, const QueryBatch&, const Visibility&, Stream&) { refuse("attention plan"); }
bool try_plan_inline(DevicePlan&, const QueryBatch&) { refuse("attention plan"); }
bool heeds_short_requests(const DevicePlan&, int) { refuse("attention plan"); }

void attention(const AttentionArgs&, const DevicePlan&, Stream&) { refuse("attention"); }
void attention(const AttentionArgs&, const DevicePlan&, Stream&, const AttentionTuning&) {
  refuse("attention");
}
bool stores_new_keys(const AttentionArgs&, const DevicePlan&) { return false; }
bool takes_descales(const AttentionArgs&, const DevicePlan&) { return false; }
bool multiplies_e4m3(Device, int64_t, int64_t, int64_t) { return false; }
void mla(const MlaArgs&, const DevicePlan&, Stream&) { refuse("mla"); }
void merge(const MergeArgs&, Stream&) { refuse("merge"); }
void merge_splits(const MergeSplitsArgs&, Stream&) { refuse("merge_splits"); }

}  // namespace attend::kernels::cuda
