#include "attend/kernels/cuda/sm90/prefill.h"

#include <algorithm>

#include "attend/kernels/cuda/sm90/tensor_map.h"
#include "attend/tensor/cuda.h"
#include "attend_generated/prefill_instances.h"

namespace attend::kernels::cuda::sm90 {
namespace {

// Smaller pages would take more copies than the copy engine starts in the time of a tile.
constexpr int kFewestBoxRows = 8;

const PrefillInstance* find_instance(const AttentionArgs& args) {
  const Element element = args.q.dtype == DType::kBF16 ? Element::kBF16 : Element::kF16;
  for (const PrefillInstance& instance : kPrefillInstances)
    if (instance.element == element && args.q.shape[2] <= instance.head_dim_qk &&
        args.out.shape[2] <= instance.head_dim_v)
      return &instance;
  return nullptr;
}

int box_rows_for(const KvIndex& index, int head_dim_qk) {
  const int most = most_box_rows(head_dim_qk);
  if (index.kind == KvIndexKind::kContiguous) return most;
  return index.page_size < kFewestBoxRows ? 0 : std::min(index.page_size, most);
}

}  // namespace

bool takes(const AttentionArgs& args, const DevicePlan& plan, const Stream& stream) {
  const PlanView& view = plan.view();
  if (view.tile_rows != kPrefillRows || view.split_bank != nullptr || args.kv.k.dtype != args.q.dtype ||
      (args.visibility.causal && !args.batch.tree_mask.empty()) || find_instance(args) == nullptr)
    return false;
  if (plan.num_row_tiles() * args.kv.k.shape[2] < plan.limits().num_workers) return false;
  const attend::cuda::DeviceInfo info = attend::cuda::device_info(stream.device);
  return info.major == 9 && info.minor == 0;
}

void prefill(const AttentionArgs& args, const AttentionParams& params, const DevicePlan& plan,
             Stream& stream) {
  const PrefillInstance& instance = *find_instance(args);
  PrefillParams prefill{.attention = params,
                        .k = {},
                        .v = {},
                        .box_rows = box_rows_for(params.index, instance.head_dim_qk),
                        .progress = params.plan.parts_done};
  if (prefill.box_rows > 0) {
    const bool contiguous = params.index.kind == KvIndexKind::kContiguous;
    prefill.k = map_pages(args.kv.k, contiguous ? 1 : prefill.box_rows, contiguous ? prefill.box_rows : 1);
    prefill.v = map_pages(args.kv.v, contiguous ? 1 : prefill.box_rows, contiguous ? prefill.box_rows : 1);
  }
  const int num_jobs = plan.num_row_tiles() * params.num_kv_heads;
  instance.launch(prefill, std::min(num_jobs, plan.limits().num_workers), stream.handle);
}

}  // namespace attend::kernels::cuda::sm90
