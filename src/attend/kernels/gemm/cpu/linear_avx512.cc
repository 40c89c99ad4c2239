#include "attend/kernels/common/cpu/simd_avx512.h"
#include "attend/kernels/gemm/cpu/codes/codes_avx512.h"
#include "attend/kernels/gemm/cpu/linear_instances.h"

namespace attend::kernels::cpu {

LinearKernel linear_kernel_avx512() { return linear_kernel_of<Avx512>(); }

}  // namespace attend::kernels::cpu
