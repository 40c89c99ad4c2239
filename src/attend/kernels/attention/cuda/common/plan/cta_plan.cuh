// Access of a CTA to a plan: loaded from the output of the plan kernel, or derived by the CTA itself.
#pragma once

#include "attend/kernels/attention/cuda/common/plan/plan_rules.cuh"
#include "attend/kernels/common/cuda/cta_sum.cuh"

namespace attend::kernels::cuda {

// Data that a CTA reads first. The tile is undefined if the plan has none for the CTA.
struct PlanStart {
  PlanHeader header;
  CtaStart cta;
};

// `kInlinePlan`: for plans with inline_plan. Kernels have separate instances, since unused code still
// occupies the instruction cache, which each layer of a decode step fills again.
//
// `kDerivesAlone`: enables the fast path for the plan of a single request, which needs registers.
template <int kThreads, bool kInlinePlan, bool kDerivesAlone = true>
class CtaPlan {
 public:
  __device__ explicit CtaPlan(const AttentionParams& params) : params_(params), plan_(params.plan) {}

  // Returns the start of CTA `cta`. Called by all threads, for one CTA only.
  __device__ PlanStart start(int cta) const {
    if constexpr (kInlinePlan) return derive(cta);
    // Issues all loads together.
    PlanStart start =
        plan_.streamed ? PlanStart{*plan_.header, plan_.cta_starts[cta]}
                       : PlanStart{*plan_.header, {plan_.row_tiles[cta], static_cast<int>(blockIdx.y), 0, 0}};
    // CTA ranges past the end of the partition have no start.
    if (cta / plan_.heads_per_round * start.header.partition.cta_range >= start.header.num_partition_units)
      start.cta.length = 0;
    if (plan_.streamed) {
      if (threadIdx.x == 0) shared_partition() = start.header.partition;
      __syncthreads();
    }
    return start;
  }

  // Returns the result of start() to code that runs later.
  __device__ static const PlanStart& derived_start() { return derived(); }

  // Returns the row tile after `tile`, which must exist.
  __device__ RowTile tile_after(const RowTile& tile) const {
    if constexpr (kInlinePlan) return derive_tile_after(tile);
    return plan_.row_tiles[tile.index + 1];
  }

  // Returns the partition of a streamed plan, after start(). Read at its use, so that it does not occupy
  // registers in between.
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

  // Derives a request's only row tile, with the request's index; without queries it has no KV tiles.
  __device__ RowTile derive_tile(int request) const {
    RequestSpan span = request_span(params_.batch, request);
    span.seqlen_kv += params_.batch.seqlen_new;
    // Neither does it have positions, which a tree mask with a window would read.
    if (span.seqlen_q <= 0) return {.index = request};
    // Splits are not fixed, so a KV tile is a key tile.
    return find_row_tile(params_.batch, request, span, {0, 0, span.seqlen_q - 1}, kKeyTile, request);
  }
  // Returns the partition units of a row tile, with a gap after each work tile; 0 without KV tiles.
  // `heads_per_cta`: heads of the row tile that a CTA processes.
  __device__ static int partition_length(const RowTile& tile, int heads_per_cta,
                                         const KvPartition& partition) {
    return tile.num_kv_tiles > 0 ? heads_per_cta * (tile.num_kv_tiles + partition.gap) : 0;
  }

  // KV tiles and work tiles, summed in one integer.
  struct Counts {
    int num_kv_tiles, num_work_tiles;
    __device__ explicit Counts(int64_t packed)
        : num_kv_tiles(static_cast<int>(packed)), num_work_tiles(static_cast<int>(packed >> 32)) {}
    __device__ int length(const KvPartition& partition) const {
      return num_kv_tiles + partition.gap * num_work_tiles;
    }
  };

  // Derives the start for a single request if neighboring CTAs read its KV heads: the partition has only its
  // work tiles.
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

  // Stores the start for a separate merge kernel, if there is one.
  __device__ void store_for_merge(const PlanStart& start, int cta) const {
    if (plan_.ctas_merge) return;
    plan_.cta_starts[cta] = start.cta;
    if (cta == 0) *plan_.header = start.header;
  }

  // Derives the start of a CTA. Each thread has several consecutive requests, and their KV tiles are summed
  // like those of row tiles in the plan kernel. The thread with the request in which the CTA range starts
  // writes the start to shared memory.
  __device__ PlanStart derive(int cta) const {
    const int num_reqs = params_.batch.num_reqs;
    if (kDerivesAlone && num_reqs == 1 && plan_.heads_per_round == params_.num_kv_heads)
      return derive_single_request(cta);
    // Divisions come before the loads, so that they overlap with earlier latency.
    const int cta_range = cta / plan_.heads_per_round, head_in_cta = cta - cta_range * plan_.heads_per_round;
    const int heads_per_cta = params_.num_kv_heads / plan_.heads_per_round;
    const int num_tokens = params_.batch.cu_seqlen_q[num_reqs];
    const int reqs_per_thread = (num_reqs + kThreads - 1) / kThreads;
    // With a single request, every thread holds it.
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
    // Partition units of the thread's requests; a gap belongs to the following work tile.
    const int begin = Counts(sum.before).length(partition),
              next_begin = begin + Counts(counts).length(partition);
    if (begin - partition.gap <= range_begin && range_begin < next_begin - partition.gap &&
        !(single_request && threadIdx.x > 0)) {
      // Iterates backward from the last request: its tile is in registers.
      tile.partition_offset = next_begin - partition_length(tile, heads_per_cta, partition);
      while (range_begin < tile.partition_offset - partition.gap) {
        const int next_row_tile_begin = tile.partition_offset;
        tile = derive_tile(tile.index - 1);
        tile.partition_offset = next_row_tile_begin - partition_length(tile, heads_per_cta, partition);
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
    next.partition_offset = tile.partition_offset +
                            partition_length(tile, params_.num_kv_heads / plan_.heads_per_round, partition());
    return next;
  }

  const AttentionParams& params_;
  const PlanView& plan_;
};

}  // namespace attend::kernels::cuda
