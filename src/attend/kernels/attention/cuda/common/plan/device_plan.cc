#include "attend/kernels/attention/cuda/common/plan/device_plan.h"

#include <algorithm>

#include "attend/kernels/attention/cuda/common/plan/plan_kernel.h"
#include "attend/tensor/cuda.h"

namespace attend::kernels::cuda {
namespace {

// Larger than any key position; its sum with a position fits in an int.
constexpr int32_t kMaxWindowRight = 1 << 30;

template <class T>
int64_t aligned_bytes(int64_t count) {
  return count * static_cast<int64_t>(sizeof(T));
}

}  // namespace

BatchParams batch_params(const QueryBatch& batch, const AttentionMask& attention_mask) {
  return {.cu_seqlen_q = batch.cu_seqlen_q.data(),
          .seqlen_kv = batch.seqlen_kv.data(),
          .tree_mask = batch.tree_mask.empty() ? nullptr : batch.tree_mask.data(),
          .positions = batch.positions.data(),
          .num_reqs = batch.num_reqs(),
          .seqlen_new = 0,
          .tree_mask_words = batch.tree_mask_words,
          .window_left = attention_mask.window_left,
          .window_right = std::min(attention_mask.window_right, kMaxWindowRight),
          .chunk = attention_mask.chunk,
          .causal = attention_mask.causal};
}

DevicePlan::DevicePlan(const AttentionPlanLimits& limits, const PlanSizes& sizes, Device device)
    : limits_(limits) {
  shape_.num_head_groups = sizes.num_head_groups;
  first_row_tile_ = attend::cuda::empty({limits_.max_reqs + 1}, DType::kI32, device);
  header_ = attend::cuda::zeros({static_cast<int64_t>(sizeof(PlanHeader))}, DType::kU8, device);
  row_tiles_ = attend::cuda::empty({aligned_bytes<RowTile>(sizes.num_row_tiles)}, DType::kU8, device);
  cta_starts_ = attend::cuda::empty({aligned_bytes<CtaStart>(sizes.num_cta_starts)}, DType::kU8, device);
  partial_out_ = attend::cuda::empty({sizes.num_partial_rows(), sizes.partial_columns}, DType::kF32, device);
  partial_state_ = attend::cuda::empty({sizes.num_partial_rows(), 2}, DType::kF32, device);
  partials_done_ = attend::cuda::zeros({sizes.num_row_tiles, sizes.num_head_groups}, DType::kI32, device);
  split_accumulators_ =
      attend::cuda::empty({sizes.num_split_accumulators, sizes.accumulator_floats}, DType::kF32, device);
  view_.header = static_cast<PlanHeader*>(header_.view().data);
  view_.row_tiles = static_cast<RowTile*>(row_tiles_.view().data);
  view_.cta_starts = static_cast<CtaStart*>(cta_starts_.view().data);
  view_.partial_out = partial_out_.as<float>();
  view_.partial_state = static_cast<float2*>(partial_state_.view().data);
  view_.partials_done = partials_done_.as<int32_t>();
  view_.num_partials = static_cast<int32_t>(sizes.num_partials);
  view_.kv_tile_keys = kKeyTile;
  view_.barrier_timeout_clocks = sizes.barrier_timeout_clocks;
  if (limits_.split_rule == SplitRule::kFixed) {
    view_.split_accumulators = split_accumulators_.as<float>();
    view_.kv_tile_keys = limits_.split_tokens;
  }
}

size_t DevicePlan::num_bytes(const AttentionPlanLimits& limits, const PlanSizes& sizes) {
  const int64_t num_ints = limits.max_reqs + 1 + sizes.num_row_tiles * sizes.num_head_groups;
  const int64_t num_floats = sizes.num_partial_rows() * (sizes.partial_columns + 2) +
                             sizes.num_split_accumulators * sizes.accumulator_floats;
  return static_cast<size_t>((num_ints + num_floats) * int64_t{sizeof(float)} + int64_t{sizeof(PlanHeader)} +
                             aligned_bytes<RowTile>(sizes.num_row_tiles) +
                             aligned_bytes<CtaStart>(sizes.num_cta_starts));
}

void DevicePlan::take(const AttentionStep& step, const PlanShape& shape) {
  step_ = step;
  shape_ = shape;
  view_.tile_rows = shape.tile_rows;
  view_.partial_rows = shape.partial_rows;
  view_.num_ctas = shape.num_ctas;
  view_.heads_per_round = shape.heads_per_round;
  view_.cluster_size = shape.cluster_size;
  view_.single_cluster_per_tile = shape.single_cluster_per_tile;
  view_.num_ctas_per_sm = shape.num_ctas_per_sm;
  view_.partition = shape.partition;
  view_.streamed = shape.streamed;
  view_.is_prefill_plan = shape.is_prefill_plan;
  view_.ctas_merge = shape.ctas_merge;
  view_.inline_plan = shape.inline_plan;
}

void DevicePlan::launch(const QueryBatch& batch, const AttentionMask& attention_mask, Stream& stream) const {
  launch_plan({.batch = batch_params(batch, attention_mask),
               .group = limits_.num_q_heads / shape_.num_head_groups,
               .num_kv_heads = shape_.num_head_groups,
               .plan = view_,
               .first_row_tile = first_row_tile_.as<int32_t>()},
              stream.handle);
}

}  // namespace attend::kernels::cuda
