#include "attend/kernels/common/cpu/simd_avx2.h"
#include "attend/kernels/norm_rope/cpu/elementwise_instances.h"

namespace attend::kernels::cpu {

ElementwiseKernels elementwise_kernels_avx2() { return elementwise_kernels_of<Avx2>(); }

}  // namespace attend::kernels::cpu
