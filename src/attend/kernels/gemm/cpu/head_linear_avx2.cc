#include "attend/kernels/common/cpu/simd_avx2.h"
#include "attend/kernels/gemm/cpu/head_linear_instances.h"

namespace attend::kernels::cpu {

MultiplyTransposed multiply_transposed_avx2() { return &multiply_transposed_of<Avx2>; }

}  // namespace attend::kernels::cpu
