#include "attend/kernels/common/cpu/simd.h"
#include "attend/kernels/common/cpu/simd_portable.h"
#include "tests/kernels/cpu/vector_math.h"

namespace attend::kernels::cpu {

VectorMath vector_math_portable() {
  return {.exp_nonpositive = &apply<Portable, &exp_nonpositive<Portable>>,
          .tanh = &apply<Portable, &tanh<Portable>>};
}

}  // namespace attend::kernels::cpu
