// Bringing global memory nearer: PTX ISA, "prefetch".
#pragma once

namespace attend::kernels::cuda::ptx {

// Has a line brought to L2. "prefetch.global.L2".
__device__ inline void prefetch_l2(const void* from) {
  asm volatile("prefetch.global.L2 [%0];\n" ::"l"(from) : "memory");
}

}  // namespace attend::kernels::cuda::ptx
