// Replaces ids by the entries of a table: columns of a draft's logits by its target's tokens.
//
//   tile        256 ids per CTA
//   warps       8, all alike: one id per thread
//   registers   few
//   shared      none
//   bytes       one id read and written, and one entry of the table
//   bound       latency
#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/sampling/cuda/map_ids_kernel.h"

namespace attend::kernels::cuda {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads) map_ids_kernel(const __grid_constant__ MapIdsParams params) {
  ptx::launch_dependents();
  ptx::griddepcontrol_wait();
  const int i = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  if (i >= params.num_ids) return;
  const int32_t id = params.ids[i];
  if (id >= 0) params.ids[i] = params.table[id];
}

}  // namespace

void launch_map_ids(const MapIdsParams& params, void* stream) {
  if (params.num_ids == 0) return;
  const auto num_ctas = static_cast<unsigned>((params.num_ids + kThreads - 1) / kThreads);
  launch_dependent<MapIdsParams>(map_ids_kernel, num_ctas, kThreads, 0, stream, params, "map_ids");
}

}  // namespace attend::kernels::cuda
