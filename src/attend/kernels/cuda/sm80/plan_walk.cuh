// How a CTA finds its work in a plan.
#pragma once

#include "attend/kernels/cuda/attention_params.h"

namespace attend::kernels::cuda::sm80 {

// Units of a job that are computed in one go, or passed over. `slot` of the result, of the first unit's where
// splits are fixed; -1: the result is final.
struct JobPart {
  int first, count, slot;
  bool computed;
};

// `count` units of a job from `first` on, of which unit 0 is `unit` - first: what this CTA's share has left.
template <bool kFixedSplits>
__device__ JobPart part_at(const PlanView& plan, const RowTile& tile, const PlanHeader& header, int unit,
                           int first, int count) {
  const bool whole = count == tile.num_units;
  if (!kFixedSplits && !whole) {
    const int cta = static_cast<int>(blockIdx.x);
    return {first, count, first > 0 ? 2 * cta : 2 * cta + 1, true};
  }
  // Slots are only written on the way over the keys; the bank is waited for.
  const bool has_slots = kFixedSplits && plan.streamed && header.num_units <= plan.num_slots;
  if (has_slots && tile.num_units > 1) return {first, count, unit, true};
  if (whole) return {0, count, -1, true};
  return {first, tile.num_units - first, -1, first == 0};
}

// Calls compute(tile, head, part, units_per_cta) for every part of a job that this CTA computes.
template <bool kFixedSplits, class Compute>
__device__ void walk_plan(const AttentionParams& params, const Compute& compute) {
  const PlanView& plan = params.plan;
  const int cta = static_cast<int>(blockIdx.x);
  // Both loads at once; a tile that the plan does not have is not looked at.
  RowTile tile = plan.streamed ? plan.cta_first_tile[cta] : plan.row_tiles[cta];
  const PlanHeader header = *plan.header;
  int unit, unit_end;
  if (plan.streamed) {
    unit = cta * header.units_per_cta;
    unit_end = min(unit + header.units_per_cta, header.num_units);
  } else {
    unit = tile.unit_begin + static_cast<int>(blockIdx.y) * tile.num_units;
    unit_end = cta < header.num_row_tiles ? unit + tile.num_units : unit;
  }
  while (unit < unit_end) {
    const int head = (unit - tile.unit_begin) / tile.num_units;
    const int first = (unit - tile.unit_begin) % tile.num_units;
    const JobPart part =
        part_at<kFixedSplits>(plan, tile, header, unit, first, min(tile.num_units - first, unit_end - unit));
    if (part.computed) compute(tile, head, part, header.units_per_cta);
    unit += part.count;
    if (unit < unit_end) {
      if (unit == tile.unit_begin + tile.num_units * params.num_kv_heads)
        tile = plan.row_tiles[tile.index + 1];
    } else {
      const int next = tile.index + static_cast<int>(gridDim.x);
      if (plan.streamed || next >= header.num_row_tiles) return;
      tile = plan.row_tiles[next];
      unit = tile.unit_begin + static_cast<int>(blockIdx.y) * tile.num_units;
      unit_end = unit + tile.num_units;
    }
    __syncthreads();
  }
}

}  // namespace attend::kernels::cuda::sm80
