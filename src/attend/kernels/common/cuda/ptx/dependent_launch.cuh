// Programmatic dependent launch: PTX ISA, "griddepcontrol" (sm_90). Before sm_90 kernels run in order.
#pragma once

namespace attend::kernels::cuda::ptx {

// Allows the next kernel of the stream to start if it was launched with this attribute.
// "griddepcontrol.launch_dependents".
__device__ inline void launch_dependents() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;\n" ::: "memory");
#endif
}

// Waits until the previous kernel has finished and its writes are visible. "griddepcontrol.wait".
__device__ inline void griddepcontrol_wait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;\n" ::: "memory");
#endif
}

}  // namespace attend::kernels::cuda::ptx
