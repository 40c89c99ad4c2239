// What a plan says of a batch, whoever derives it: the plan kernel, or CTAs of attention for themselves.
#pragma once

#include "attend/kernels/attention/cuda/common/visible.cuh"

namespace attend::kernels::cuda {

// Rows of a request from `row_begin` on, which are those of its queries j_first to j_last. Their place among
// others is not known yet: unit_begin is 0.
__device__ inline RowTile row_tile_of(const BatchParams& batch, int request, const RequestSpan& span,
                                      int row_begin, int j_first, int j_last, int unit_keys, int index) {
  const KeyRange keys = key_range(batch, span, j_first, j_last);
  const int first_unit = keys.begin / unit_keys;
  return {.request = request,
          .first_token = span.first_token,
          .seqlen_q = span.seqlen_q,
          .seqlen_kv = span.seqlen_kv,
          .row_begin = row_begin,
          .first_query = j_first,
          .kv_begin = keys.begin,
          .kv_end = keys.end,
          .first_unit = first_unit,
          .num_units = max(1, (keys.end + unit_keys - 1) / unit_keys - first_unit),
          .unit_begin = 0,
          .index = index};
}

// A share where jobs, which have at most `longest` units, end where shares end: what lies in one CTA alone
// needs no merge and no second start. The share itself where that would make it too large.
__device__ inline int aligned_share(int share, int longest) {
  // A CTA may get 1 / kAlignmentSlack more than its share.
  constexpr int kAlignmentSlack = 32;
  const int aligned = longest >= share ? (longest + longest / share - 1) / (longest / share)
                                       : (share + longest - 1) / longest * longest;
  return aligned <= share + share / kAlignmentSlack ? aligned : share;
}

// Of a CTA's share, where all row tiles have `num_units` units and none more than `longest`.
__device__ inline int units_per_cta_for(const PlanView& plan, int num_units, int longest) {
  const int num_shares = plan.num_ctas / plan.heads_at_once;
  return aligned_share(max(plan.min_units_per_cta, (num_units + num_shares - 1) / num_shares),
                       max(1, longest));
}

// Where a share begins that does so `unit` units into a row tile, for the CTA of `head_of_cta` <
// heads_at_once.
__device__ inline CtaStart cta_start_at(const PlanView& plan, const RowTile& tile, int unit,
                                        int head_of_cta) {
  const int step = unit / tile.num_units;
  return {
      .tile = tile, .head = step * plan.heads_at_once + head_of_cta, .first = unit - step * tile.num_units};
}

}  // namespace attend::kernels::cuda
