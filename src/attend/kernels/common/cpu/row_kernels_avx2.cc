#include "attend/kernels/common/cpu/row_kernels_simd.h"
#include "attend/kernels/common/cpu/simd_avx2.h"

namespace attend::kernels::cpu {

RowKernels row_kernels_avx2() { return row_kernels_of<Avx2>(); }

}  // namespace attend::kernels::cpu
