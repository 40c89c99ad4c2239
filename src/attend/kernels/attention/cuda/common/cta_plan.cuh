// A plan as a CTA sees it: read from where the plan kernel left it, or derived by the CTA itself.
#pragma once

#include "attend/kernels/attention/cuda/common/plan_rules.cuh"
#include "attend/kernels/common/cuda/cta_sum.cuh"

namespace attend::kernels::cuda::sm80 {

// What a CTA wants to know before anything else. A tile that the plan does not have is not looked at.
struct PlanStart {
  PlanHeader header;
  CtaStart cta;
};

// `kDerives`: for plans with ctas_plan. Kernels come in both forms: code that is not run is in the way of
// code that is, which each layer of a decode step fetches from memory anew.
template <int kThreads, bool kDerives>
class CtaPlan {
 public:
  __device__ explicit CtaPlan(const AttentionParams& params) : params_(params), plan_(params.plan) {}

  // Where CTA `cta` begins; all threads call it, for one CTA only.
  __device__ PlanStart start(int cta) const {
    if constexpr (kDerives) return derive(cta);
    // All loads at once.
    if (plan_.streamed) return {*plan_.header, plan_.cta_starts[cta]};
    return {*plan_.header, {plan_.row_tiles[cta], static_cast<int>(blockIdx.y), 0}};
  }

  // The row tile behind `tile`, which there is.
  __device__ RowTile tile_after(const RowTile& tile) const {
    if constexpr (kDerives) return derive_tile_after(tile);
    return plan_.row_tiles[tile.index + 1];
  }

  // After start(). Read anew where it is wanted: meanwhile it takes no registers.
  __device__ int units_per_cta() const {
    if constexpr (kDerives) return derived().header.units_per_cta;
    return plan_.header->units_per_cta;
  }

 private:
  __device__ static PlanStart& derived() {
    __shared__ PlanStart start;
    return start;
  }

  // A request's only row tile, the request's number being its index; without queries it has no units.
  __device__ RowTile derive_tile(int request) const {
    const RequestSpan span = request_span(params_.batch, request);
    // Nor has it positions, which a tree mask under a window asks for.
    if (span.seqlen_q <= 0) return {.index = request};
    // Splits are not fixed: a unit is a key tile.
    return row_tile_of(params_.batch, request, span, 0, 0, span.seqlen_q - 1, kKeyTile, request);
  }
  // Heads that a CTA goes through in a row tile.
  __device__ int heads_of_cta() const { return params_.num_kv_heads / plan_.heads_at_once; }

  // Each thread has a few requests next to one another, whose units are summed as the plan kernel sums those
  // of row tiles. The one in whose requests the CTA's share begins tells all where.
  __device__ PlanStart derive(int cta) const {
    const int num_reqs = params_.batch.num_reqs;
    const int num_tokens = params_.batch.cu_seqlen_q[num_reqs];
    const int reqs_of_thread = (num_reqs + kThreads - 1) / kThreads;
    const int first = min(static_cast<int>(threadIdx.x) * reqs_of_thread, num_reqs);
    const int end = min(first + reqs_of_thread, num_reqs);
    RowTile tile{};
    int num_units = 0, longest = 0;
    for (int request = first; request < end; ++request) {
      tile = derive_tile(request);
      num_units += tile.num_units * heads_of_cta();
      longest = max(longest, tile.num_units);
    }
    const CtaSum sum = cta_sum<kThreads>(num_units, longest);
    const PlanHeader header{.num_row_tiles = num_reqs,
                            .num_units = sum.total,
                            .units_per_cta = units_per_cta_for(plan_, sum.total, sum.largest),
                            .num_tokens = num_tokens};
    const int share = cta / plan_.heads_at_once, unit = share * header.units_per_cta;
    if (threadIdx.x == 0) derived().header = header;
    if (sum.before <= unit && unit < sum.before + num_units) {
      // From the last request on, whose tile is at hand.
      tile.unit_begin = sum.before + num_units - tile.num_units * heads_of_cta();
      while (unit < tile.unit_begin) {
        const int unit_end = tile.unit_begin;
        tile = derive_tile(tile.index - 1);
        tile.unit_begin = unit_end - tile.num_units * heads_of_cta();
      }
      derived().cta = cta_start_at(plan_, tile, unit - tile.unit_begin, cta - share * plan_.heads_at_once);
    }
    __syncthreads();
    if (!plan_.ctas_merge && threadIdx.x == 0) {
      plan_.cta_starts[cta] = derived().cta;
      if (cta == 0) *plan_.header = header;
    }
    return derived();
  }

  __device__ RowTile derive_tile_after(const RowTile& tile) const {
    RowTile next = derive_tile(tile.index + 1);
    while (next.num_units == 0) next = derive_tile(next.index + 1);
    next.unit_begin = tile.unit_begin + tile.num_units * heads_of_cta();
    return next;
  }

  const AttentionParams& params_;
  const PlanView& plan_;
};

}  // namespace attend::kernels::cuda::sm80
