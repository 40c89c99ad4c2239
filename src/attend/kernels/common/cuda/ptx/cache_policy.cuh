// What L2 keeps: PTX ISA, "createpolicy" (sm_80).
#pragma once

#include <cstdint>

namespace attend::kernels::cuda::ptx {

// What is read once leaves L2 first. "createpolicy.fractional.L2::evict_first".
__device__ inline uint64_t createpolicy_evict_first() {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;\n" : "=l"(policy));
  return policy;
}
// What other CTAs read too stays. "createpolicy.fractional.L2::evict_last".
__device__ inline uint64_t createpolicy_evict_last() {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;\n" : "=l"(policy));
  return policy;
}

}  // namespace attend::kernels::cuda::ptx
