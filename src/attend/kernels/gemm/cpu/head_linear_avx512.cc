#include "attend/kernels/common/cpu/simd_avx512.h"
#include "attend/kernels/gemm/cpu/head_linear_instances.h"

namespace attend::kernels::cpu {

MultiplyTransposed multiply_transposed_avx512() { return &multiply_transposed_of<Avx512>; }

}  // namespace attend::kernels::cpu
