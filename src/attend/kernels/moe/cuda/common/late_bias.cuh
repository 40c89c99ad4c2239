// Bias of an output, loaded long before it is added.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

#include "attend/kernels/common/cuda/params.h"
#include "attend/kernels/common/cuda/ptx/global_memory.cuh"

namespace attend::kernels::cuda {

// Holds the raw bits: using a loaded value would wait for the load, so conversion is deferred.
class LateBias {
 public:
  // Issues the load; f32, bf16 or f16.
  __device__ __forceinline__ void ask(const DeviceVector& bias, int64_t row) {
    if (bias.data == nullptr) return;
    bits_ = bias.element == Element::kF32 ? __ldg(static_cast<const uint32_t*>(bias.data) + row)
                                          : uint32_t{__ldg(static_cast<const uint16_t*>(bias.data) + row)};
  }
  // Returns the bias as float, 0 if there is none.
  __device__ __forceinline__ float number(const DeviceVector& bias) const {
    if (bias.element == Element::kF32) return __uint_as_float(bits_);
    return bias.element == Element::kBF16 ? __uint_as_float(bits_ << 16)
                                          : __half2float(__ushort_as_half(static_cast<uint16_t>(bits_)));
  }

  // Prefetches the bias to L2.
  __device__ __forceinline__ static void prefetch(const DeviceVector& bias, int64_t row) {
    ptx::prefetch_l2(static_cast<const char*>(bias.data) + row * (bias.element == Element::kF32 ? 4 : 2));
  }

 private:
  uint32_t bits_ = 0;
};

}  // namespace attend::kernels::cuda
