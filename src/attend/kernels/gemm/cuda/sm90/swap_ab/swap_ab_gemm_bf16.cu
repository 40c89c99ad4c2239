#include <algorithm>

#include "attend/kernels/gemm/cuda/sm90/swap_ab/swap_ab_gemm.cuh"

namespace attend::kernels::cuda::sm90 {

int max_weight_stages(int shared_bytes, int token_stages, const SwapAbGemmShape& shape) {
  return visit_instance(shape, [&](auto warpgroups, auto tokens) {
    using Pipeline = SwapAbPipeline<warpgroups(), tokens()>;
    return std::min(
        (shared_bytes - Pipeline::shared_bytes(0, 0, token_stages)) / (shape.tile_pairs * kPairBytes),
        kMaxWeightStages);
  });
}

// Computed for the largest instance. Smaller instances could fit more than once on an SM, but do not need to.
int max_clusters(int cluster_size) {
  constexpr auto kKernel = swap_ab_gemm_kernel<__nv_bfloat16, 2, kMaxTokens>;
  allow_shared_memory<kKernel>(kSharedBytes, "linear: shared memory");
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {static_cast<unsigned>(cluster_size), 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(cluster_size));
  config.blockDim = dim3(kSwapAbThreads<2, kMaxTokens>);
  config.dynamicSmemBytes = kSharedBytes;
  config.attrs = &attribute;
  config.numAttrs = 1;
  int num_clusters = 0;
  attend::cuda::check(cudaOccupancyMaxActiveClusters(&num_clusters, kKernel, &config), "linear: clusters");
  return num_clusters;
}

void launch_swap_ab_gemm_bf16(const SwapAbGemmParams& params, const SwapAbGemmShape& shape, void* stream) {
  launch_swap_ab_gemm<__nv_bfloat16>(params, shape, stream);
}

}  // namespace attend::kernels::cuda::sm90
