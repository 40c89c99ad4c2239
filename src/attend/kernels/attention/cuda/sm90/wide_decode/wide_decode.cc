#include <algorithm>

#include "attend/kernels/attention/cuda/sm90/attention.h"
#include "attend/kernels/attention/cuda/sm90/wide_decode/wide_decode_kernel.h"
#include "attend/kernels/common/cuda/sm90/tensor_map.h"

namespace attend::kernels::cuda::sm90 {
namespace {

// TMA starts a box in about 28 cycles: smaller boxes take longer than memory.
constexpr int kMinBoxRows = 8;

int box_rows_for(const KvView& kv) {
  if (!has_tensor_map(kv.k) || !has_tensor_map(kv.v)) return 0;
  if (kv.index.kind == KvIndexKind::kContiguous) return kWideKeys;
  return kv.index.page_size < kMinBoxRows ? 0 : std::min(kv.index.page_size, kWideKeys);
}

}  // namespace

void wide_decode(const AttentionArgs& args, const AttentionParams& params, const DevicePlan& plan,
                 Stream& stream) {
  WideDecodeParams wide{.attention = params, .k = {}, .v = {}, .box_rows = box_rows_for(args.kv)};
  if (wide.box_rows > 0) {
    const bool contiguous = params.index.kind == KvIndexKind::kContiguous;
    wide.k = map_pages(args.kv.k, contiguous ? 1 : wide.box_rows, contiguous ? wide.box_rows : 1);
    wide.v = map_pages(args.kv.v, contiguous ? 1 : wide.box_rows, contiguous ? wide.box_rows : 1);
  }
  const PlanView& view = params.plan;
  const int num_ctas =
      view.streamed ? view.num_ctas : std::min(view.num_ctas, plan.num_row_tiles() * params.num_kv_heads);
  (params.q_element == Element::kBF16 ? launch_wide_decode_bf16 : launch_wide_decode_f16)(wide, num_ctas,
                                                                                          stream.handle);
}

}  // namespace attend::kernels::cuda::sm90
