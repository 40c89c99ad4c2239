#include "attend/kernels/common/cpu/row_kernels_simd.h"
#include "attend/kernels/common/cpu/simd_avx512.h"

namespace attend::kernels::cpu {

RowKernels row_kernels_avx512() { return row_kernels_of<Avx512>(); }

}  // namespace attend::kernels::cpu
