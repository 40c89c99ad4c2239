#include <algorithm>

#include "attend/kernels/cuda/sm90/tall_ring.cuh"
#include "attend/tensor/cuda_check.h"

namespace attend::kernels::cuda::sm90 {
namespace {

__global__ void fill_an_sm() {}

}  // namespace

int shared_bytes(const TallParams& params, int token_groups) {
  // Warpgroups read all of their 64 rows of x, though a slot may hold fewer.
  const int last_read = (params.token_slots - 1) * token_slot_bytes(params) +
                        token_groups * kWarpgroupTokens * kRowBytes;
  return std::max(rings_bytes(params) + norm_bytes(params) + kBarrierBytes, last_read);
}

int max_clusters(int cluster_size) {
  attend::cuda::check(
      cudaFuncSetAttribute(fill_an_sm, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes),
      "linear: shared memory");
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {static_cast<unsigned>(cluster_size), 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(cluster_size));
  config.blockDim = dim3(128);
  config.dynamicSmemBytes = kSharedBytes;
  config.attrs = &attribute;
  config.numAttrs = 1;
  int num_clusters = 0;
  attend::cuda::check(cudaOccupancyMaxActiveClusters(&num_clusters, fill_an_sm, &config), "linear: clusters");
  return num_clusters;
}

}  // namespace attend::kernels::cuda::sm90
