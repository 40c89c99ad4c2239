// GEMV for a single row of x: all of W is loaded into registers while the previous kernel finishes.
//
//   tile        8 outputs, each a row of W in two halves of K: the 16 rows of operand A of mma.m16n8k16; the
//               halves of x alternate in its 8 columns
//   warps       8, all alike: they share K-blocks of 32 inputs of each half
//   registers   84, 64 of them for W: two CTAs fit on an SM, and most of 256 fit next to the CTAs of a short
//               attention kernel
//   shared      the row of x, which TMA loads ahead of the queued loads of W, and partial sums
//   bytes       W once; x once per CTA, from L2
//   bound       reading W; after a kernel of at least that duration, the latency of loading x
#pragma once

#include "attend/kernels/common/cuda/element.cuh"
#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/common/cuda/ptx/copy.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/common/cuda/ptx/global_memory.cuh"
#include "attend/kernels/common/cuda/ptx/mbarrier.cuh"
#include "attend/kernels/common/cuda/ptx/mma.cuh"
#include "attend/kernels/common/cuda/ptx/tensor_copy.cuh"
#include "attend/kernels/gemm/cuda/sm90/gemv/gemv.h"

namespace attend::kernels::cuda::sm90 {

template <class T>
class GemvCta {
 public:
  static constexpr int kWarps = 8, kThreads = 32 * kWarps;

 private:
  // inputs of a K-block, in each half
  static constexpr int kInputs = kGemvInputUnit / 2;
  static constexpr int kMaxBlocks = kMaxGemvInputs / 2 / kInputs / kWarps;  // K-blocks per warp

 public:
  struct Shared {
    float sums[kWarps][kGemvOuts];
    uint64_t x_full;
  };

  __device__ GemvCta(const GemvParams& params, char* x, Shared& shared)
      : params_(params),
        x_(ptx::shared_address(x)),
        barrier_(ptx::shared_address(&shared.x_full)),
        sums_(shared.sums),
        first_(static_cast<int>(blockIdx.x) * kGemvOuts),
        half_(params.in_features / 2) {
    if (threadIdx.x == 0) {
      ptx::mbarrier_init(barrier_, 1);
      ptx::fence_mbarrier_init();
    }
  }

  __device__ __forceinline__ void run() {
    uint4 weights[kMaxBlocks][2];
    load_weights(weights);
    T* const out = static_cast<T*>(params_.out) + first_ + threadIdx.x;
    const bool writes = threadIdx.x < kGemvOuts;
    const DeviceVector& bias = params_.bias;
    const float added = writes && bias.data != nullptr
                            ? load_element(bias.data, first_ + static_cast<int>(threadIdx.x), bias.element)
                            : 0.0f;
    __syncthreads();  // the barrier is initialized
    ptx::griddepcontrol_wait();
    ptx::launch_dependents();
    if (threadIdx.x == 0) load_x();
    const float before = writes && params_.accumulate ? float(*out) : 0.0f;
    ptx::mbarrier_wait(barrier_, 0);
    const float sum = multiply(weights);
    if (lane() % 4 == 0) sums_[warp()][lane() / 4] = sum;
    __syncthreads();
    if (!writes) return;
    float total = 0.0f;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) total += sums_[w][threadIdx.x];
    *out = T(total + added + before);
  }

 private:
  __device__ static int warp() { return static_cast<int>(threadIdx.x) / 32; }
  __device__ static int lane() { return static_cast<int>(threadIdx.x) % 32; }
  // K-blocks warp, warp + 8, ... of each half.
  __device__ static int block(int i) { return warp() + i * kWarps; }
  __device__ bool given(int i) const { return block(i) * kInputs < half_; }

  // Loads 16 bytes of output lane / 4, of both halves.
  __device__ __forceinline__ void load_weights(uint4 (&weights)[kMaxBlocks][2]) const {
    const uint64_t policy = ptx::createpolicy_evict_first();
    const T* const row = static_cast<const T*>(params_.weight) +
                         int64_t{first_ + lane() / 4} * params_.in_features + lane() % 4 * 8;
#pragma unroll
    for (int i = 0; i < kMaxBlocks; ++i) {
      if (!given(i)) break;
#pragma unroll
      for (int half = 0; half < 2; ++half)
        weights[i][half] = ptx::ld_global_16_by_policy(row + half * half_ + block(i) * kInputs, policy);
    }
  }

  __device__ __forceinline__ void load_x() const {
    const auto num_bytes = static_cast<uint32_t>(params_.in_features * sizeof(T));
    ptx::mbarrier_arrive_expect_tx(barrier_, num_bytes);
    ptx::cp_async_bulk(x_, params_.x, num_bytes, barrier_);
  }

  // Multiplies. A lane's 8 inputs are two mma steps; the order of inputs within a K-block is the same for
  // both operands. Even columns of x hold its first half, odd ones the second. Lanes divisible by 4 return
  // output lane / 4.
  __device__ __forceinline__ float multiply(const uint4 (&weights)[kMaxBlocks][2]) const {
    const uint32_t x = x_ + static_cast<uint32_t>((lane() / 4 % 2 * half_ + lane() % 4 * 8) * sizeof(T));
    float sums[4] = {};
#pragma unroll
    for (int i = 0; i < kMaxBlocks; ++i) {
      if (!given(i)) break;
      const uint4 low = weights[i][0], high = weights[i][1];
      const uint4 inputs = ptx::ld_shared_16(x + static_cast<uint32_t>(block(i) * kInputs * sizeof(T)));
      const uint32_t even[4] = {low.x, high.x, low.y, high.y}, odd[4] = {low.z, high.z, low.w, high.w};
      ptx::mma_m16n8k16(sums, even, inputs.x, inputs.y, T{});
      ptx::mma_m16n8k16(sums, odd, inputs.z, inputs.w, T{});
    }
    return sums[0] + sums[3];
  }

  const GemvParams& params_;
  const uint32_t x_, barrier_;
  float (&sums_)[kWarps][kGemvOuts];
  const int first_, half_;
};

template <class T>
__global__ void __launch_bounds__(GemvCta<T>::kThreads, kGemvCtasPerSm)
    gemv_kernel(const __grid_constant__ GemvParams params) {
  extern __shared__ __align__(128) char x[];
  __shared__ typename GemvCta<T>::Shared shared;
  GemvCta<T>(params, x, shared).run();
}

template <class T>
void launch_gemv(const GemvParams& params, void* stream) {
  // Keeps the SM's shared-memory carveout that neighboring kernels use. It is the carveout of attention,
  // which overlaps with this kernel, not that of the following MoE kernels, for which the remaining L1 would
  // be too small for their loads in flight.
  constexpr int kSharedCarveout = 132 << 10;
  launch_dependent<GemvParams>(gemv_kernel<T>, static_cast<unsigned>(params.out_features / kGemvOuts),
                               GemvCta<T>::kThreads, params.in_features * sizeof(T), stream, params, "linear",
                               /*cluster_size=*/1, kSharedCarveout);
}

}  // namespace attend::kernels::cuda::sm90
