#include "attend/kernels/cpu/elementwise_instances.h"
#include "attend/kernels/cpu/simd_portable.h"

namespace attend::kernels::cpu {

ElementwiseKernels elementwise_kernels_portable() { return elementwise_kernels_of<Portable>(); }

}  // namespace attend::kernels::cpu
