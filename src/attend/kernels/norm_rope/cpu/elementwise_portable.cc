#include "attend/kernels/common/cpu/simd_portable.h"
#include "attend/kernels/norm_rope/cpu/elementwise_instances.h"

namespace attend::kernels::cpu {

ElementwiseKernels elementwise_kernels_portable() { return elementwise_kernels_of<Portable>(); }

}  // namespace attend::kernels::cpu
