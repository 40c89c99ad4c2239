#include <algorithm>

#include "attend/base/error.h"
#include "attend/kernels/attention/cuda/common/attention_params.h"
#include "attend/kernels/attention/cuda/sm90/attention.h"
#include "attend/kernels/common/cuda/sm90/tensor_map.h"
#include "attend/kernels/common/cuda/view_params.h"
#include "attend_generated/sm90_instances.h"

namespace attend::kernels::cuda::sm90 {
namespace {

constexpr int kConsumerRows = kPrefillRows / 2;  // rows of a consumer warpgroup

// TMA starts a box in about 28 cycles, so boxes with fewer rows take longer than rows that are copied one by
// one. Boxes may be smaller in verify, which memory bounds, and for fp8 that is converted to 16 bits, which
// loads half the bytes in the time of a tile.
int min_box_rows(DType q, DType kv, int head_dim_qk, bool verifies) {
  if (kv != q) return 4;
  return size_of(kv) == 2 && head_dim_qk > 96 && !verifies ? 16 : 8;
}

constexpr const PrefillInstance* find_instance(Element q, Element kv, HeadDims dims) {
  for (const PrefillInstance& instance : kPrefillInstances)
    if (instance.q == q && instance.kv == kv && HeadDims{instance.head_dim_qk, instance.head_dim_v} == dims)
      return &instance;
  return nullptr;
}
static_assert(kInstancesAreSampled ||
              std::all_of(kPrefillDims.begin(), kPrefillDims.end(), [](HeadDims dims) {
                return find_instance(Element::kBF16, Element::kBF16, dims) != nullptr &&
                       find_instance(Element::kF16, Element::kF16, dims) != nullptr;
              }));
static_assert(kInstancesAreSampled ||
              std::all_of(kFp8PrefillDims.begin(), kFp8PrefillDims.end(), [](HeadDims dims) {
                for (const Element q : {Element::kBF16, Element::kF16})
                  for (const Element kv : {Element::kF8E4M3, Element::kF8E5M2})
                    if (find_instance(q, kv, dims) == nullptr) return false;
                return true;
              }));

static_assert(kInstancesAreSampled ||
              std::all_of(kE4m3PrefillDims.begin(), kE4m3PrefillDims.end(), [](HeadDims dims) {
                return find_instance(Element::kF8E4M3, Element::kF8E4M3, dims) != nullptr;
              }));

// Returns the number of rows of a TMA box; 0: TMA is not used.
int box_rows_for(DType q, const KvView& kv, int head_dim_qk, bool verifies) {
  if (!has_tensor_map(kv.k) || !has_tensor_map(kv.v)) return 0;
  const int max_rows = is_fp8(kv.k.dtype) ? kMaxFp8BoxRows : max_box_rows(head_dim_qk, verifies);
  if (kv.index.kind == KvIndexKind::kContiguous) return max_rows;
  return kv.index.page_size < min_box_rows(q, kv.k.dtype, head_dim_qk, verifies)
             ? 0
             : std::min(kv.index.page_size, max_rows);
}

// Returns the number of tokens that have exactly the rows of a consumer, over the heads of a group; 0 if no
// number fits or TMA does not support such queries.
int box_tokens_for(const TensorView& q, int group) {
  return kConsumerRows % group == 0 && has_tensor_map(q) ? kConsumerRows / group : 0;
}

int max_work_tiles(const AttentionArgs& args, const DevicePlan& plan) {
  return static_cast<int>(max_prefill_work_tiles(plan.num_row_tiles(), args.batch.num_reqs(),
                                                 plan.view().tile_rows, plan.num_head_groups()));
}

}  // namespace

void prefill(const AttentionArgs& args, const AttentionParams& params, const DevicePlan& plan, HeadDims dims,
             Stream& stream) {
  const PrefillInstance* const found = find_instance(params.q_element, params.kv_element, dims);
  ensure(found != nullptr, "prefill: no instance of head dims ", dims.qk, "/", dims.v);
  const PrefillInstance& instance = *found;
  PrefillParams prefill{
      .attention = params,
      .k = {},
      .v = {},
      .q = {},
      .out = {},
      .box_rows = box_rows_for(args.q.dtype, args.kv, instance.head_dim_qk, verifies(params.plan)),
      .box_tokens = box_tokens_for(args.q, params.group),
      .stores_boxes = false,
      .softmax_scale_log2 = get_softmax_scale_log2(params),
      .progress = params.plan.partials_done,
      .key_rows = {},
      .value_rows = {}};
  if (prefill.box_rows > 0) {
    const bool contiguous = params.index.kind == KvIndexKind::kContiguous;
    prefill.k = map_pages(args.kv.k, contiguous ? 1 : prefill.box_rows, contiguous ? prefill.box_rows : 1);
    prefill.v = map_pages(args.kv.v, contiguous ? 1 : prefill.box_rows, contiguous ? prefill.box_rows : 1);
  }
  if (prefill.box_rows == 0 && size_of(args.kv.k.dtype) == 2) {
    prefill.key_rows = paged_row_strides("k", args.kv.k);
    prefill.value_rows = paged_row_strides("v", args.kv.v);
  }
  if (prefill.box_tokens > 0) {
    prefill.q = map_tokens(args.q, params.group, prefill.box_tokens);
    prefill.stores_boxes = size_of(args.out.dtype) == 2 && has_tensor_map(args.out);
    if (prefill.stores_boxes) prefill.out = map_tokens(args.out, params.group, prefill.box_tokens);
  }
  // CTAs, or pairs of them.
  const int max_ctas = plan.limits().num_workers / ctas_per_work_tile(dims);
  instance.launch(prefill,
                  divides_keys(params.plan) ? params.plan.num_ctas
                                            : std::min(max_work_tiles(args, plan), std::max(1, max_ctas)),
                  stream.handle);
}

}  // namespace attend::kernels::cuda::sm90
