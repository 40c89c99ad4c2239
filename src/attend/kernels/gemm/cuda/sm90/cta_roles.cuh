// Code shared by GEMMs on sm_90a: stages with mbarriers, CTA start, and warp roles.
#pragma once

#include <cstdint>

#include "attend/kernels/common/cuda/ptx/cluster.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/common/cuda/ptx/mbarrier.cuh"
#include "attend/kernels/common/cuda/ptx/warpgroup.cuh"
#include "attend/kernels/common/cuda/sm90/pipeline_state.cuh"

namespace attend::kernels::cuda::sm90 {

// Stages of a CTA: a K-block of x and one of W each. They are followed by a `full` mbarrier per stage, on
// which consumers wait, and an `empty` mbarrier per stage, on which producers wait.
template <int kStages, int kXBytes, int kWeightBytes>
struct KBlockStages {
  static constexpr int kStageBytes = kXBytes + kWeightBytes;

  uint32_t shared;  // start in the shared window

  __device__ __forceinline__ uint32_t x_at(int stage) const { return shared + stage * kStageBytes; }
  __device__ __forceinline__ uint32_t weights_at(int stage) const { return x_at(stage) + kXBytes; }
  __device__ __forceinline__ uint32_t full(int stage) const {
    return shared + kStages * kStageBytes + 8 * stage;
  }
  __device__ __forceinline__ uint32_t empty(int stage) const { return full(kStages + stage); }

  // Called by one thread. Arrivals at each stage, by producers and by consumers.
  __device__ __forceinline__ void init_barriers(int num_producers, int num_consumers) const {
    for (int stage = 0; stage < kStages; ++stage) {
      ptx::mbarrier_init(full(stage), num_producers);
      ptx::mbarrier_init(empty(stage), num_consumers);
    }
    ptx::fence_mbarrier_init();
  }
};

// Calls init() in one thread before any thread of the CTA, or of its cluster, continues.
template <bool kCluster, class Init>
__device__ __forceinline__ void begin_cta(const Init& init) {
  if (threadIdx.x == 0) init();
  __syncthreads();
  if constexpr (kCluster) {
    // No CTA may signal a CTA with uninitialized mbarriers.
    ptx::cluster_arrive_relaxed();
    ptx::cluster_wait();
  }
}

// Waits for the previous kernel, then allows the next one to start. Not earlier, since the next kernel may
// read data early that a kernel before this one wrote.
__device__ __forceinline__ void wait_for_inputs() {
  ptx::griddepcontrol_wait();
  ptx::launch_dependents();
}

// Calls consume(warpgroup) in Config::kConsumerWarps warps, which get registers of the following producer
// warpgroup, and each of `produce` in one thread of a warp of the producer warpgroup.
template <class Config, class Consume, class... Produce>
__device__ __forceinline__ void run_roles(const Consume& consume, const Produce&... produce) {
  const int warp = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 32, 0);
  if (warp < Config::kConsumerWarps) {
    ptx::setmaxnreg_inc<Config::kConsumerRegisters>();
    consume(warp / 4);
  } else {
    ptx::setmaxnreg_dec<Config::kProducerRegisters>();
    if (threadIdx.x % 32 != 0) return;
    int producer = Config::kConsumerWarps;
    ((warp == producer++ ? produce() : void()), ...);
  }
}

}  // namespace attend::kernels::cuda::sm90
