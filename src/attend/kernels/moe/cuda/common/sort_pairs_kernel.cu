// Sorts the pairs of tokens and experts by expert.
//
//   tile        one expert per CTA: it counts the pairs of all experts, which yields its first row, and then
//               assigns its rows
//   warps       8, all alike: a thread has runs of 8 pairs
//   shared      one count per expert
//   bytes       the experts of all pairs, twice, from L2
//   bound       latency: one sum over the CTA per 2048 pairs
//
// CTAs do not communicate, so one launch is enough, and the result does not depend on their order.
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

}  // namespace

void launch_sort_pairs(const SortPairsParams& params, void* stream) {
  launch_dependent<SortPairsParams>(sort_pairs_kernel, dim3(static_cast<unsigned>(params.num_experts)),
                                    kThreads, 0, stream, params, "moe_experts: sort");
}

}  // namespace attend::kernels::cuda
