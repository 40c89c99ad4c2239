#include "attend/kernels/common/cpu/row_kernels_simd.h"
#include "attend/kernels/common/cpu/simd_portable.h"

namespace attend::kernels::cpu {

RowKernels row_kernels_portable() { return row_kernels_of<Portable>(); }

}  // namespace attend::kernels::cpu
