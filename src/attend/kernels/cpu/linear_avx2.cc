#include "attend/kernels/cpu/linear_instances.h"
#include "attend/kernels/cpu/simd_avx2.h"

namespace attend::kernels::cpu {

LinearKernel linear_kernel_avx2() { return linear_kernel_of<Avx2>(); }

}  // namespace attend::kernels::cpu
