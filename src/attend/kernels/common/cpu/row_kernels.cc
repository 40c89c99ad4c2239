#include "attend/kernels/common/cpu/row_kernels.h"

namespace attend::kernels::cpu {

RowKernels row_kernels(Isa isa) {
  if constexpr (kX86Kernels) {
    if (isa >= Isa::kAvx512) return row_kernels_avx512();
    if (isa == Isa::kAvx2) return row_kernels_avx2();
  }
  return row_kernels_portable();
}

}  // namespace attend::kernels::cpu
