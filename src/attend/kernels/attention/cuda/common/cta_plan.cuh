// A plan as a CTA sees it: read from where the plan kernel left it, or derived by the CTA itself.
#pragma once

#include "attend/kernels/attention/cuda/common/plan_rules.cuh"
#include "attend/kernels/common/cuda/cta_sum.cuh"

namespace attend::kernels::cuda::sm80 {

// What a CTA reads first. The tile is not looked at where the plan has none for it.
struct PlanStart {
  PlanHeader header;
  CtaStart cta;
};

// `kInlinePlan`: for plans with inline_plan. Kernels are instantiated for both: code that does not run still
// takes room in the instruction cache, which each layer of a decode step fills anew.
template <int kThreads, bool kInlinePlan>
class CtaPlan {
 public:
  __device__ explicit CtaPlan(const AttentionParams& params) : params_(params), plan_(params.plan) {}

  // Where CTA `cta` begins; all threads call it, for one CTA only.
  __device__ PlanStart start(int cta) const {
    if constexpr (kInlinePlan) return derive(cta);
    // All loads at once.
    if (plan_.streamed) return {*plan_.header, plan_.cta_starts[cta]};
    return {*plan_.header, {plan_.row_tiles[cta], static_cast<int>(blockIdx.y), 0}};
  }

  // The row tile behind `tile`, which there is.
  __device__ RowTile tile_after(const RowTile& tile) const {
    if constexpr (kInlinePlan) return derive_tile_after(tile);
    return plan_.row_tiles[tile.index + 1];
  }

  // After start(). Read again where it is wanted, so that it is not live in registers meanwhile.
  __device__ int kv_tiles_per_cta() const {
    if constexpr (kInlinePlan) return derived().header.kv_tiles_per_cta;
    return plan_.header->kv_tiles_per_cta;
  }

 private:
  __device__ static PlanStart& derived() {
    __shared__ PlanStart start;
    return start;
  }

  // A request's only row tile, the request's number being its index; without queries it has no KV tiles.
  __device__ RowTile derive_tile(int request) const {
    const RequestSpan span = request_span(params_.batch, request);
    // Nor has it positions, which a tree mask under a window asks for.
    if (span.seqlen_q <= 0) return {.index = request};
    // Splits are not fixed: a KV tile is a key tile.
    return row_tile_of(params_.batch, request, span, {0, 0, span.seqlen_q - 1}, kKeyTile, request);
  }
  // Heads that a CTA goes through in a row tile.
  __device__ int heads_of_cta() const { return params_.num_kv_heads / plan_.heads_at_once; }

  // Each thread has a few requests next to one another, whose KV tiles are summed as the plan kernel sums
  // those of row tiles. The one in whose requests the CTA range begins writes where to shared memory.
  __device__ PlanStart derive(int cta) const {
    const int num_reqs = params_.batch.num_reqs;
    const int num_tokens = params_.batch.cu_seqlen_q[num_reqs];
    const int reqs_of_thread = (num_reqs + kThreads - 1) / kThreads;
    const int first = min(static_cast<int>(threadIdx.x) * reqs_of_thread, num_reqs);
    const int end = min(first + reqs_of_thread, num_reqs);
    RowTile tile{};
    int num_kv_tiles = 0, longest = 0;
    for (int request = first; request < end; ++request) {
      tile = derive_tile(request);
      num_kv_tiles += tile.num_kv_tiles * heads_of_cta();
      longest = max(longest, tile.num_kv_tiles);
    }
    const CtaSum sum = cta_sum<kThreads>(num_kv_tiles, longest);
    const PlanHeader header{.num_row_tiles = num_reqs,
                            .num_kv_tiles = sum.total,
                            .kv_tiles_per_cta = kv_tiles_per_cta_for(plan_, sum.total, sum.largest),
                            .num_tokens = num_tokens};
    const int cta_range = cta / plan_.heads_at_once, kv_tile = cta_range * header.kv_tiles_per_cta;
    if (threadIdx.x == 0) derived().header = header;
    if (sum.before <= kv_tile && kv_tile < sum.before + num_kv_tiles) {
      // From the last request on, whose tile is at hand.
      tile.kv_tile_begin = sum.before + num_kv_tiles - tile.num_kv_tiles * heads_of_cta();
      while (kv_tile < tile.kv_tile_begin) {
        const int kv_tile_end = tile.kv_tile_begin;
        tile = derive_tile(tile.index - 1);
        tile.kv_tile_begin = kv_tile_end - tile.num_kv_tiles * heads_of_cta();
      }
      derived().cta =
          cta_start_at(plan_, tile, kv_tile - tile.kv_tile_begin, cta - cta_range * plan_.heads_at_once);
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
    while (next.num_kv_tiles == 0) next = derive_tile(next.index + 1);
    next.kv_tile_begin = tile.kv_tile_begin + tile.num_kv_tiles * heads_of_cta();
    return next;
  }

  const AttentionParams& params_;
  const PlanView& plan_;
};

}  // namespace attend::kernels::cuda::sm80
