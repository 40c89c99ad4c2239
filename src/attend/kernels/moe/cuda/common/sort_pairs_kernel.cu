// Sorts the pairs of tokens and experts by expert. Rows of an expert are in the order of their pairs.
//
// Few pairs, one launch without communication between CTAs:
//   tile        one expert per CTA: it counts the pairs of all experts, which yields its first row, and then
//               assigns its rows
//   warps       8, all alike: a thread has runs of 8 pairs
//   shared      one count per expert
//   bytes       the experts of all pairs, twice, from L2
//   bound       latency: one sum over the CTA per 2048 pairs
//
// Many pairs (kMinCountedPairs), two launches:
//   tile        2048 pairs per CTA: the first launch counts each expert's pairs of the CTA, the second one
//   adds
//               the counts of the CTAs before it and assigns rows
//   warps       16, all alike: a warp has 128 consecutive pairs
//   shared      one count per warp and expert
//   bytes       the experts of all pairs, twice; the counts of all CTAs once per CTA, from L2
//   bound       latency
#include "attend/kernels/common/cuda/cta_sum.cuh"
#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/moe/cuda/common/moe_kernels.h"

namespace attend::kernels::cuda {
namespace {

constexpr int kThreads = 256, kMaxExperts = 512, kRun = 8;

__global__ void __launch_bounds__(kThreads)
    sort_pairs_kernel(const __grid_constant__ SortPairsParams params) {
  __shared__ int counts[kMaxExperts];
  const int expert = static_cast<int>(blockIdx.x), thread = static_cast<int>(threadIdx.x);
  for (int i = thread; i < params.num_experts; i += kThreads) counts[i] = 0;
  ptx::griddepcontrol_wait();
  ptx::launch_dependents();
  __syncthreads();
  for (int pair = thread; pair < params.num_pairs; pair += kThreads)
    atomicAdd(&counts[params.experts[pair]], 1);
  __syncthreads();

  const auto count_tiles = [&](int count) { return (count + params.tile_rows - 1) / params.tile_rows; };
  int rows_before = 0, tiles_before = 0;
  for (int i = thread; i < expert; i += kThreads) {
    rows_before += counts[i];
    tiles_before += count_tiles(counts[i]);
  }
  const int first_row = cta_sum<kThreads>(rows_before, 0).total;
  const int first_tile = cta_sum<kThreads>(tiles_before, 0).total;
  const int count = counts[expert];
  if (thread == 0) {
    params.first_row[expert] = first_row;
    params.first_tile[expert] = first_tile;
    if (expert + 1 == params.num_experts) {
      params.first_row[expert + 1] = first_row + count;
      params.first_tile[expert + 1] = first_tile + count_tiles(count);
    }
  }
  if (count == 0) return;

  int num_sorted = 0;
  for (int begin = 0; begin < params.num_pairs; begin += kThreads * kRun) {
    const int first = begin + thread * kRun;
    const auto is_own_expert = [&](int i) {
      return first + i < params.num_pairs && params.experts[first + i] == expert;
    };
    int num_own = 0;
    for (int i = 0; i < kRun; ++i) num_own += is_own_expert(i) ? 1 : 0;
    const CtaSum sum = cta_sum<kThreads>(num_own, 0);
    int row = first_row + num_sorted + sum.before;
    for (int i = 0; i < kRun; ++i) {
      if (!is_own_expert(i)) continue;
      params.pair_row[first + i] = row;
      params.row_token[row] = (first + i) / params.top_k;
      params.row_pair[row] = first + i;
      ++row;
    }
    num_sorted += sum.total;
  }
}

constexpr int kCountedThreads = 512, kCountedWarps = kCountedThreads / 32;
constexpr int kWarpPairs = 128, kCountedPairs = kCountedWarps * kWarpPairs;  // per warp, per CTA
// Below, one launch is faster. The scratch has room for the counts of kMaxExperts.
constexpr int kMinCountedPairs = 8192;
static_assert(kMaxExperts <= kCountedThreads && 4 * kMaxExperts <= kMinCountedPairs);

__global__ void __launch_bounds__(kCountedThreads)
    count_pairs_kernel(const __grid_constant__ SortPairsParams params) {
  __shared__ int counts[kMaxExperts];
  const int thread = static_cast<int>(threadIdx.x);
  counts[thread] = 0;
  ptx::griddepcontrol_wait();
  ptx::launch_dependents();
  __syncthreads();
  const int begin = static_cast<int>(blockIdx.x) * kCountedPairs;
  const int end = min(begin + kCountedPairs, params.num_pairs);
  for (int pair = begin + thread; pair < end; pair += kCountedThreads)
    atomicAdd(&counts[params.experts[pair]], 1);
  __syncthreads();
  if (thread < params.num_experts)
    params.counts[static_cast<int64_t>(blockIdx.x) * params.num_experts + thread] = counts[thread];
}

// A thread has the counts of one expert.
__global__ void __launch_bounds__(kCountedThreads)
    place_pairs_kernel(const __grid_constant__ SortPairsParams params) {
  __shared__ int next_row[kCountedWarps][kMaxExperts];  // of the warp's pairs
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const int cta = static_cast<int>(blockIdx.x), num_experts = params.num_experts;
  for (int w = 0; w < kCountedWarps; ++w) next_row[w][thread] = 0;
  ptx::griddepcontrol_wait();
  ptx::launch_dependents();
  const int first_pair = cta * kCountedPairs + warp * kWarpPairs + lane;
  constexpr int kRounds = kWarpPairs / 32;
  int experts[kRounds];
#pragma unroll
  for (int i = 0; i < kRounds; ++i)
    experts[i] = first_pair + 32 * i < params.num_pairs ? params.experts[first_pair + 32 * i] : -1;
  int total = 0, before = 0;  // pairs of this thread's expert: all, and those of the CTAs before
  if (thread < num_experts)
#pragma unroll 8
    for (int i = 0; i < static_cast<int>(gridDim.x); ++i) {
      const int count = params.counts[static_cast<int64_t>(i) * num_experts + thread];
      total += count;
      if (i < cta) before += count;
    }
  const int num_tiles = (total + params.tile_rows - 1) / params.tile_rows;
  const int first_row = cta_sum<kCountedThreads>(total, 0).before;
  const int first_tile = cta_sum<kCountedThreads>(num_tiles, 0).before;
  if (cta == 0 && thread < num_experts) {
    params.first_row[thread] = first_row;
    params.first_tile[thread] = first_tile;
    if (thread + 1 == num_experts) {
      params.first_row[num_experts] = first_row + total;
      params.first_tile[num_experts] = first_tile + num_tiles;
    }
  }
#pragma unroll
  for (int i = 0; i < kRounds; ++i)
    if (experts[i] >= 0) atomicAdd(&next_row[warp][experts[i]], 1);
  __syncthreads();
  for (int w = 0, row = first_row + before; w < kCountedWarps; ++w) {
    const int count = next_row[w][thread];
    next_row[w][thread] = row;
    row += count;
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kRounds; ++i) {
    const uint32_t same = __match_any_sync(0xffffffffu, experts[i]);
    const int rank = __popc(same & ((1u << lane) - 1));
    const int row = experts[i] >= 0 ? next_row[warp][experts[i]] + rank : 0;
    __syncwarp();
    if (experts[i] >= 0) {
      if (rank + 1 == __popc(same)) next_row[warp][experts[i]] = row + 1;
      const int pair = first_pair + 32 * i;
      params.pair_row[pair] = row;
      params.row_token[row] = pair / params.top_k;
      params.row_pair[row] = pair;
    }
    __syncwarp();
  }
}

}  // namespace

void launch_sort_pairs(const SortPairsParams& params, void* stream) {
  if (params.num_pairs >= kMinCountedPairs) {
    const dim3 grid(static_cast<unsigned>((params.num_pairs + kCountedPairs - 1) / kCountedPairs));
    for (const auto kernel : {count_pairs_kernel, place_pairs_kernel})
      launch_dependent<SortPairsParams>(kernel, grid, kCountedThreads, 0, stream, params,
                                        "moe_experts: sort");
    return;
  }
  launch_dependent<SortPairsParams>(sort_pairs_kernel, dim3(static_cast<unsigned>(params.num_experts)),
                                    kThreads, 0, stream, params, "moe_experts: sort");
}

}  // namespace attend::kernels::cuda
