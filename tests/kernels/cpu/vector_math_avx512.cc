#include "attend/kernels/common/cpu/simd.h"
#include "attend/kernels/common/cpu/simd_avx512.h"
#include "tests/kernels/cpu/vector_math.h"

namespace attend::kernels::cpu {

VectorMath vector_math_avx512() {
  return {.exp_nonpositive = &apply<Avx512, &exp_nonpositive<Avx512>>, .tanh = &apply<Avx512, &tanh<Avx512>>};
}

}  // namespace attend::kernels::cpu
