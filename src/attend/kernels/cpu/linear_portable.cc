#include "attend/kernels/cpu/linear_instances.h"
#include "attend/kernels/cpu/simd_portable.h"

namespace attend::kernels::cpu {

LinearKernel linear_kernel_portable() { return linear_kernel_of<Portable>(); }

}  // namespace attend::kernels::cpu
