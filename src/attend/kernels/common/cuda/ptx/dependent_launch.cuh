// Programmatic dependent launch: PTX ISA, "griddepcontrol" (sm_90). Before sm_90 kernels start in order
// anyway.
#pragma once

namespace attend::kernels::cuda::ptx {

// The next kernel of the stream, if launched so, may start. "griddepcontrol.launch_dependents".
__device__ inline void launch_dependents() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;\n" ::: "memory");
#endif
}

// Waits until the kernel before has ended and its writes are visible. "griddepcontrol.wait".
__device__ inline void griddepcontrol_wait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;\n" ::: "memory");
#endif
}

}  // namespace attend::kernels::cuda::ptx
