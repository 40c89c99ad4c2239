#include "attend/kernels/common/cpu/simd.h"
#include "attend/kernels/common/cpu/simd_avx2.h"
#include "tests/kernels/cpu/vector_math.h"

namespace attend::kernels::cpu {

VectorMath vector_math_avx2() {
  return {.exp_nonpositive = &apply<Avx2, &exp_nonpositive<Avx2>>, .tanh = &apply<Avx2, &tanh<Avx2>>};
}

}  // namespace attend::kernels::cpu
