#include "attend/kernels/common/cpu/simd_avx512.h"
#include "attend/kernels/norm_rope/cpu/elementwise_instances.h"

namespace attend::kernels::cpu {

ElementwiseKernels elementwise_kernels_avx512() { return elementwise_kernels_of<Avx512>(); }

}  // namespace attend::kernels::cpu
