#include <algorithm>

#include "attend/kernels/attention/cuda/sm90/attention.h"
#include "attend/kernels/attention/cuda/sm90/mla/mla_kernel.h"
#include "attend/kernels/common/cuda/device_attribute.h"
#include "attend/kernels/common/cuda/sm90/tensor_map.h"

namespace attend::kernels::cuda::sm90 {
namespace {

// Rows after which the TMA swizzle repeats.
constexpr int kSwizzleRows = 8;

// View of rows in panels of 64 columns for map_pages(): [panels, rows, pages, 64]. All start at multiples of
// 16 bytes.
TensorView paneled(const TensorView& rows, int64_t num_columns, int64_t num_rows, int64_t row_stride,
                   int64_t num_pages, int64_t page_stride) {
  constexpr int64_t kPanel = 64;
  TensorView view = rows;
  view.rank = 4;
  view.shape = {num_columns / kPanel, num_rows, num_pages, kPanel};
  view.strides = {kPanel, row_stride, page_stride, 1};
  return view;
}

// Returns the rows per TMA box, or 0 if TMA cannot copy the rows. Tensor maps require sizes and strides above
// 0, and this kernel whole panels. fp8 rows are converted while they are loaded.
int box_rows_for(const MlaArgs& args) {
  if (is_fp8(args.latent.dtype) || args.latent.shape[2] % 64 != 0) return 0;
  for (size_t dim = 0; dim < 2; ++dim)
    if (args.latent.shape[dim] == 0 || (args.latent.shape[dim] > 1 && args.latent.strides[dim] <= 0))
      return 0;
  if (args.index.kind == KvIndexKind::kContiguous) return kMlaKeys;
  return args.index.page_size < kSwizzleRows ? 0 : std::min(args.index.page_size, kMlaKeys);
}

// Returns the stride between rows of q if heads and tokens form one sequence of rows, otherwise 0.
int64_t query_row_stride(const TensorView& q) {
  if (q.shape[1] == 1) return q.shape[0] == 1 ? q.shape[2] : std::max<int64_t>(q.strides[0], 0);
  if (q.shape[0] > 1 && q.strides[0] != q.shape[1] * q.strides[1]) return 0;
  return std::max<int64_t>(q.strides[1], 0);
}

// Returns all rows of q as heads of one token. Requires query_row_stride() above 0.
TensorView in_sequence(const TensorView& q) {
  TensorView rows = q;
  rows.shape = {1, q.shape[0] * q.shape[1], q.shape[2]};
  rows.strides = {0, query_row_stride(q), 1};
  return rows;
}

bool strides_above_0(const TensorView& q) {
  return (q.shape[0] == 1 || q.strides[0] > 0) && (q.shape[1] == 1 || q.strides[1] > 0);
}

// Sets the boxes of queries if TMA can copy them: groups of heads that divide a work tile's rows, or all
// heads.
void map_queries(const MlaArgs& args, int group, MlaParams& mla) {
  const TensorView &q = args.q, &rope = args.q_rope;
  if (q.shape[0] == 0 || q.shape[2] != kMlaHeadDimV || rope.shape[2] != kMlaHeadDimQk - kMlaHeadDimV) return;
  if (kMlaRows % group == 0) {
    if (!strides_above_0(q) || !strides_above_0(rope)) return;
    mla.q = map_tokens(q, group, kMlaRows / group);
    mla.q_rope = map_tokens(rope, group, kMlaRows / group);
  } else {
    if (query_row_stride(q) == 0 || query_row_stride(rope) == 0) return;
    mla.q = map_tokens(in_sequence(q), kMlaRows, 1);
    mla.q_rope = map_tokens(in_sequence(rope), kMlaRows, 1);
    mla.queries_in_sequence = true;
  }
  mla.boxes_queries = true;
}

bool is_plain(const MlaParams& mla) {
  const AttentionParams& params = mla.attention;
  const BatchParams& batch = params.batch;
  const bool is_converted = params.kv_element == Element::kF8E4M3 || params.kv_element == Element::kF8E5M2;
  return (mla.box_rows > 0 || is_converted) && mla.boxes_queries && params.out_element != Element::kF32 &&
         params.logit_cap == 0.0f && batch.tree_mask == nullptr && batch.window_left < 0 &&
         batch.window_right == 0 && batch.chunk == 0;
}

}  // namespace

void mla(const MlaArgs& args, const AttentionParams& params, const DevicePlan& plan, Stream& stream) {
  MlaParams mla{};
  mla.attention = params;
  // A separate kernel merges and needs the ranges of the CTAs. If the CTAs derive the plan, prefetching is
  // disabled: the previous call's merge may still read the ranges.
  mla.attention.plan.ctas_merge = false;
  if (params.plan.inline_plan) mla.attention.prefix_ready = false;
  mla.box_rows = box_rows_for(args);
  const TensorView& latent = args.latent;
  if (mla.box_rows > 0) {
    const bool contiguous = args.index.kind == KvIndexKind::kContiguous;
    const int64_t num_rows = latent.shape[contiguous ? 0 : 1],
                  row_stride = latent.strides[contiguous ? 0 : 1];
    const TensorView rows = paneled(latent, latent.shape[2], num_rows, row_stride,
                                    contiguous ? 1 : latent.shape[0], latent.strides[0]);
    const bool is_one = mla.box_rows == kMlaKeys;
    mla.latent = map_pages(rows, mla.box_rows, is_one ? kMlaBoxPanels : 1);
    if (is_one) mla.latent_rope = map_pages(rows, mla.box_rows, 1);
  }
  map_queries(args, params.group, mla);
  mla.plain = is_plain(mla);
  const PlanView& view = plan.view();
  const int num_work_tiles = plan.num_row_tiles() * params.num_kv_heads;
  const int num_ctas = view.streamed ? view.num_ctas : std::min(view.num_ctas, num_work_tiles);
  const auto launch = params.q_element == Element::kBF16 ? launch_mla_bf16 : launch_mla_f16;
  launch(mla, num_ctas, stream.handle);
  if (view.streamed) launch_mla_merge(mla.attention, num_work_tiles, stream.handle);
}

}  // namespace attend::kernels::cuda::sm90
