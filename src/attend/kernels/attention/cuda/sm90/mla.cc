#include "attend/kernels/attention/cuda/sm90/mla.h"

#include <algorithm>

#include "attend/kernels/attention/cuda/sm90/mla_kernel.h"
#include "attend/kernels/common/cuda/device_attribute.h"
#include "attend/kernels/common/cuda/sm90/tensor_map.h"

namespace attend::kernels::cuda::sm90 {
namespace {

// The swizzle of TMA repeats after so many rows.
constexpr int kFewestBoxRows = 8;

// Pages as [num_pages, page_size, 1, row].
TensorView with_one_head(const TensorView& latent) {
  TensorView view = latent;
  view.rank = 4;
  view.shape[2] = 1;
  view.shape[3] = latent.shape[2];
  view.strides[2] = latent.shape[2];
  view.strides[3] = 1;
  return view;
}

// Tensor maps want sizes and strides above 0.
bool has_map(const TensorView& latent) {
  for (size_t dim = 0; dim < 2; ++dim)
    if (latent.shape[dim] == 0 || (latent.shape[dim] > 1 && latent.strides[dim] <= 0)) return false;
  return true;
}

int box_rows_for(const MlaArgs& args) {
  if (!has_map(args.latent)) return 0;
  if (args.index.kind == KvIndexKind::kContiguous) return kMlaKeys;
  return args.index.page_size < kFewestBoxRows ? 0 : std::min(args.index.page_size, kMlaKeys);
}

}  // namespace

bool takes_mla(Device device) { return runs_sm90a(device.index); }

void mla(const MlaArgs& args, const AttentionParams& params, const DevicePlan& plan, Stream& stream) {
  MlaParams mla{.attention = params, .latent = {}, .box_rows = box_rows_for(args)};
  if (mla.box_rows > 0) {
    const bool contiguous = args.index.kind == KvIndexKind::kContiguous;
    mla.latent =
        map_pages(with_one_head(args.latent), contiguous ? 1 : mla.box_rows, contiguous ? mla.box_rows : 1);
  }
  const PlanView& view = plan.view();
  const int num_ctas =
      view.streamed ? view.num_ctas : std::min(view.num_ctas, plan.num_row_tiles() * params.num_kv_heads);
  launch_mla(mla, num_ctas, stream.handle);
  if (view.streamed) launch_mla_merge(params, stream.handle);
}

}  // namespace attend::kernels::cuda::sm90
