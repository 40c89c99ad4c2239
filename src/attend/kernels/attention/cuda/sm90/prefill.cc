#include "attend/kernels/attention/cuda/sm90/prefill.h"

#include <algorithm>

#include "attend/kernels/common/cuda/device_attribute.h"
#include "attend/kernels/common/cuda/sm90/tensor_map.h"
#include "attend/kernels/common/cuda/view_params.h"
#include "attend_generated/prefill_instances.h"

namespace attend::kernels::cuda::sm90 {
namespace {

// Smaller pages would take more copies than the copy engine starts in the time of a tile.
constexpr int kFewestBoxRows = 8;

const PrefillInstance* find_instance(const AttentionArgs& args) {
  const Element q = element_of(args.q.dtype), kv = element_of(args.kv.k.dtype);
  for (const PrefillInstance& instance : kPrefillInstances)
    if (instance.q == q && instance.kv == kv && args.q.shape[2] <= instance.head_dim_qk &&
        args.out.shape[2] <= instance.head_dim_v)
      return &instance;
  return nullptr;
}

// Tensor maps want sizes and strides above 0.
bool has_map(const TensorView& view) {
  for (size_t dim = 0; dim + 1 < static_cast<size_t>(view.rank); ++dim)
    if (view.shape[dim] == 0 || (view.shape[dim] > 1 && view.strides[dim] <= 0)) return false;
  return true;
}

// Rows that the copy engine takes at a time; 0: it takes none, such as those that are converted on their way.
int box_rows_for(const KvView& kv, int head_dim_qk) {
  if (is_fp8(kv.k.dtype) || !has_map(kv.k) || !has_map(kv.v)) return 0;
  const int most = max_box_rows(head_dim_qk);
  if (kv.index.kind == KvIndexKind::kContiguous) return most;
  return kv.index.page_size < kFewestBoxRows ? 0 : std::min(kv.index.page_size, most);
}

// The most rows that a request and KV head have.
int64_t rows_of(const AttentionArgs& args, const DevicePlan& plan) {
  const AttentionPlanLimits& limits = plan.limits();
  return int64_t{std::min(args.batch.max_seqlen_q, limits.max_tokens)} * limits.num_q_heads /
         limits.num_kv_heads;
}

// Jobs that there are at most. Row tiles lower than a job are taken together with the next of their request.
int most_jobs(const AttentionArgs& args, const DevicePlan& plan) {
  const int tiles_of_job = kPrefillRows / plan.view().tile_rows;
  const int num_tiles = (plan.num_row_tiles() + args.batch.num_reqs() * (tiles_of_job - 1)) / tiles_of_job;
  return num_tiles * plan.limits().num_kv_heads;
}

}  // namespace

bool takes(const AttentionArgs& args, const DevicePlan& plan, const Stream& stream) {
  const PlanView& view = plan.view();
  if (rows_of(args, plan) <= kPrefillRows / 2 || view.split_bank != nullptr ||
      (args.visibility.causal && !args.batch.tree_mask.empty()) || find_instance(args) == nullptr)
    return false;
  return most_jobs(args, plan) >= plan.limits().num_workers && runs_sm90a(stream.device.index);
}

void prefill(const AttentionArgs& args, const AttentionParams& params, const DevicePlan& plan,
             Stream& stream) {
  const PrefillInstance& instance = *find_instance(args);
  PrefillParams prefill{.attention = params,
                        .k = {},
                        .v = {},
                        .box_rows = box_rows_for(args.kv, instance.head_dim_qk),
                        .progress = params.plan.partials_done};
  if (prefill.box_rows > 0) {
    const bool contiguous = params.index.kind == KvIndexKind::kContiguous;
    prefill.k = map_pages(args.kv.k, contiguous ? 1 : prefill.box_rows, contiguous ? prefill.box_rows : 1);
    prefill.v = map_pages(args.kv.v, contiguous ? 1 : prefill.box_rows, contiguous ? prefill.box_rows : 1);
  }
  instance.launch(prefill, std::min(most_jobs(args, plan), plan.limits().num_workers), stream.handle);
}

}  // namespace attend::kernels::cuda::sm90
