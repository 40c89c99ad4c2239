#include <algorithm>

#include "attend/kernels/gemm/cuda/sm90/dense_kernel.cuh"

namespace attend::kernels::cuda::sm90 {

int weight_slots_in(int shared_bytes, int token_slots, const DenseShape& shape) {
  return visit_dense_shape(shape, [&](auto warpgroups, auto tokens) {
    using Ring = DenseRing<warpgroups(), tokens()>;
    return std::min((shared_bytes - Ring::shared_bytes(0, 0, token_slots)) / (shape.tile_pairs * kPairBytes),
                    kMaxWeightSlots);
  });
}

// Of the largest instance: others may fit more than once on an SM, which they do not need.
int max_clusters(int cluster_size) {
  constexpr auto kKernel = dense_kernel<__nv_bfloat16, 2, kMaxTokens>;
  allow_shared_memory<kKernel>(kSharedBytes, "linear: shared memory");
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {static_cast<unsigned>(cluster_size), 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(cluster_size));
  config.blockDim = dim3(kDenseThreads<2, kMaxTokens>);
  config.dynamicSmemBytes = kSharedBytes;
  config.attrs = &attribute;
  config.numAttrs = 1;
  int num_clusters = 0;
  attend::cuda::check(cudaOccupancyMaxActiveClusters(&num_clusters, kKernel, &config), "linear: clusters");
  return num_clusters;
}

void launch_dense_bf16(const DenseParams& params, const DenseShape& shape, void* stream) {
  launch_dense<__nv_bfloat16>(params, shape, stream);
}

}  // namespace attend::kernels::cuda::sm90
