#include "attend/kernels/common/cpu/simd_avx2.h"
#include "attend/kernels/gemm/cpu/codes/codes_avx2.h"
#include "attend/kernels/gemm/cpu/linear_instances.h"

namespace attend::kernels::cpu {

LinearKernel linear_kernel_avx2() { return linear_kernel_of<Avx2>(); }

}  // namespace attend::kernels::cpu
