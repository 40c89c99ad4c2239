#include "attend/kernels/cpu/elementwise_instances.h"
#include "attend/kernels/cpu/simd_avx512.h"

namespace attend::kernels::cpu {

ElementwiseKernels elementwise_kernels_avx512() { return elementwise_kernels_of<Avx512>(); }

}  // namespace attend::kernels::cpu
