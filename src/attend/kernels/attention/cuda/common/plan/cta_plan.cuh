// A plan as a CTA sees it: read from where the plan kernel left it, or derived by the CTA itself.
#pragma once

#include "attend/kernels/attention/cuda/common/plan/plan_rules.cuh"
#include "attend/kernels/common/cuda/cta_sum.cuh"

namespace attend::kernels::cuda {

// What a CTA reads first. The tile is not looked at where the plan has none for it.
struct PlanStart {
  PlanHeader header;
  CtaStart cta;
};

// `kInlinePlan`: for plans with inline_plan. Kernels are instantiated for both: code that does not run still
// takes room in the instruction cache, which each layer of a decode step fills anew.
//
// `kDerivesAlone`: whether there is a short way to the plan of a lone request, which takes registers.
template <int kThreads, bool kInlinePlan, bool kDerivesAlone = true>
class CtaPlan {
 public:
  __device__ explicit CtaPlan(const AttentionParams& params) : params_(params), plan_(params.plan) {}

  // Where CTA `cta` begins; all threads call it, for one CTA only.
  __device__ PlanStart start(int cta) const {
    if constexpr (kInlinePlan) return derive(cta);
    // All loads at once.
    PlanStart start =
        plan_.streamed ? PlanStart{*plan_.header, plan_.cta_starts[cta]}
                       : PlanStart{*plan_.header, {plan_.row_tiles[cta], static_cast<int>(blockIdx.y), 0, 0}};
    // There is none for what lies behind the line.
    if (cta / plan_.heads_per_round * start.header.partition.cta_range >= start.header.num_partition_units)
      start.cta.length = 0;
    if (plan_.streamed) {
      if (threadIdx.x == 0) shared_partition() = start.header.partition;
      __syncthreads();
    }
    return start;
  }

  // What start() has derived, for those who come later.
  __device__ static const PlanStart& derived_start() { return derived(); }

  // The row tile behind `tile`, which there is.
  __device__ RowTile tile_after(const RowTile& tile) const {
    if constexpr (kInlinePlan) return derive_tile_after(tile);
    return plan_.row_tiles[tile.index + 1];
  }

  // Of a streamed plan, after start(). Read where it is wanted, so that it is not live in registers
  // meanwhile.
  __device__ const KvPartition& partition() const {
    if constexpr (kInlinePlan) return derived().header.partition;
    return shared_partition();
  }

 private:
  __device__ static KvPartition& shared_partition() {
    __shared__ KvPartition partition;
    return partition;
  }
  __device__ static PlanStart& derived() {
    __shared__ PlanStart start;
    return start;
  }

  // A request's only row tile, the request's number being its index; without queries it has no KV tiles.
  __device__ RowTile derive_tile(int request) const {
    RequestSpan span = request_span(params_.batch, request);
    span.seqlen_kv += params_.batch.seqlen_new;
    // Nor has it positions, which a tree mask under a window asks for.
    if (span.seqlen_q <= 0) return {.index = request};
    // Splits are not fixed: a KV tile is a key tile.
    return row_tile_of_request(params_.batch, request, span, {0, 0, span.seqlen_q - 1}, kKeyTile, request);
  }
  // What a row tile takes of the line, with a gap behind each work tile; none without KV tiles.
  // `heads_per_cta`: that a CTA goes through in it.
  __device__ static int length_of(const RowTile& tile, int heads_per_cta, const KvPartition& partition) {
    return tile.num_kv_tiles > 0 ? heads_per_cta * (tile.num_kv_tiles + partition.gap) : 0;
  }

  // KV tiles and work tiles, summed together.
  struct Counts {
    int num_kv_tiles, num_work_tiles;
    __device__ explicit Counts(int64_t packed)
        : num_kv_tiles(static_cast<int>(packed)), num_work_tiles(static_cast<int>(packed >> 32)) {}
    __device__ int length(const KvPartition& partition) const {
      return num_kv_tiles + partition.gap * num_work_tiles;
    }
  };

  // The only request, whose K/V heads CTAs beside one another read: nothing else lies on the line.
  __device__ PlanStart derive_single_request(int cta) const {
    const int cta_range = cta / plan_.heads_per_round;
    const RowTile tile = derive_tile(0);
    const KvPartition partition = partition_single_tile(plan_.partition, tile.num_kv_tiles);
    const int first = cta_range * partition.cta_range;
    const PlanStart start{.header = {.num_row_tiles = 1,
                                     .num_partition_units = tile.num_kv_tiles,
                                     .partition = partition,
                                     .num_tokens = tile.first_token + tile.seqlen_q},
                          .cta = {.tile = tile,
                                  .head = cta - cta_range * plan_.heads_per_round,
                                  .first = first,
                                  .length = min(partition.cta_range, tile.num_kv_tiles - first)}};
    if (threadIdx.x == 0) {
      derived() = start;
      store_for_merge(start, cta);
    }
    __syncthreads();
    return start;
  }

  // For the kernel that merges, where one does.
  __device__ void store_for_merge(const PlanStart& start, int cta) const {
    if (plan_.ctas_merge) return;
    plan_.cta_starts[cta] = start.cta;
    if (cta == 0) *plan_.header = start.header;
  }

  // Each thread has a few requests next to one another, whose KV tiles are summed as the plan kernel sums
  // those of row tiles. The one in whose requests the CTA range begins writes where to shared memory.
  __device__ PlanStart derive(int cta) const {
    const int num_reqs = params_.batch.num_reqs;
    if (kDerivesAlone && num_reqs == 1 && plan_.heads_per_round == params_.num_kv_heads)
      return derive_single_request(cta);
    // Divisions before the loads, whose time they take none of.
    const int cta_range = cta / plan_.heads_per_round, head_in_cta = cta - cta_range * plan_.heads_per_round;
    const int heads_per_cta = params_.num_kv_heads / plan_.heads_per_round;
    const int num_tokens = params_.batch.cu_seqlen_q[num_reqs];
    const int reqs_per_thread = (num_reqs + kThreads - 1) / kThreads;
    // The only request is every thread's.
    const bool single_request = num_reqs == 1;
    const int first = single_request ? 0 : min(static_cast<int>(threadIdx.x) * reqs_per_thread, num_reqs);
    const int end = min(first + reqs_per_thread, num_reqs);
    RowTile tile{};
    int64_t counts = 0;
    int longest = 0;
    for (int request = first; request < end; ++request) {
      tile = derive_tile(request);
      if (tile.num_kv_tiles == 0) continue;
      counts += int64_t{heads_per_cta} << 32 | tile.num_kv_tiles * heads_per_cta;
      longest = max(longest, tile.num_kv_tiles);
    }
    const CtaSum<int64_t> sum = single_request
                                    ? CtaSum<int64_t>{.before = 0, .total = counts, .largest = longest}
                                    : cta_sum<kThreads>(counts, longest);
    const Counts all(sum.total);
    const PartitionWork work{all.num_kv_tiles, all.num_work_tiles, sum.largest};
    const KvPartition partition = partition_kv_tiles(plan_.partition, work);
    const PlanHeader header{.num_row_tiles = num_reqs,
                            .num_partition_units = num_partition_units(work, partition),
                            .partition = partition,
                            .num_tokens = num_tokens};
    const int range_begin = cta_range * partition.cta_range;
    if (threadIdx.x == 0) {
      derived().header = header;
      if (range_begin >= header.num_partition_units) derived().cta.length = 0;
    }
    // What the thread's requests have of the line; a gap belongs to what lies behind it.
    const int begin = Counts(sum.before).length(partition),
              next_begin = begin + Counts(counts).length(partition);
    if (begin - partition.gap <= range_begin && range_begin < next_begin - partition.gap &&
        !(single_request && threadIdx.x > 0)) {
      // From the last request on, whose tile is at hand.
      tile.partition_offset = next_begin - length_of(tile, heads_per_cta, partition);
      while (range_begin < tile.partition_offset - partition.gap) {
        const int next_row_tile_begin = tile.partition_offset;
        tile = derive_tile(tile.index - 1);
        tile.partition_offset = next_row_tile_begin - length_of(tile, heads_per_cta, partition);
      }
      derived().cta = cta_start_at(plan_, header, tile, cta_range, head_in_cta);
    }
    __syncthreads();
    if (threadIdx.x == 0) store_for_merge(derived(), cta);
    return derived();
  }

  __device__ RowTile derive_tile_after(const RowTile& tile) const {
    RowTile next = derive_tile(tile.index + 1);
    while (next.num_kv_tiles == 0) next = derive_tile(next.index + 1);
    next.partition_offset =
        tile.partition_offset + length_of(tile, params_.num_kv_heads / plan_.heads_per_round, partition());
    return next;
  }

  const AttentionParams& params_;
  const PlanView& plan_;
};

}  // namespace attend::kernels::cuda
