#include "attend/kernels/common/cpu/simd_portable.h"
#include "attend/kernels/gemm/cpu/head_linear_instances.h"

namespace attend::kernels::cpu {

MultiplyTransposed multiply_transposed_portable() { return &multiply_transposed_of<Portable>; }

}  // namespace attend::kernels::cpu
