#include "attend/kernels/common/cpu/simd_portable.h"
#include "attend/kernels/gemm/cpu/linear_instances.h"

namespace attend::kernels::cpu {

LinearKernel linear_kernel_portable() { return linear_kernel_of<Portable>(); }

}  // namespace attend::kernels::cpu
