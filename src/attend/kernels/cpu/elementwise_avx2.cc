#include "attend/kernels/cpu/elementwise_instances.h"
#include "attend/kernels/cpu/simd_avx2.h"

namespace attend::kernels::cpu {

ElementwiseKernels elementwise_kernels_avx2() { return elementwise_kernels_of<Avx2>(); }

}  // namespace attend::kernels::cpu
