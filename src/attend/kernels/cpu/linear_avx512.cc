#include "attend/kernels/cpu/linear_instances.h"
#include "attend/kernels/cpu/simd_avx512.h"

namespace attend::kernels::cpu {

LinearKernel linear_kernel_avx512() { return linear_kernel_of<Avx512>(); }

}  // namespace attend::kernels::cpu
