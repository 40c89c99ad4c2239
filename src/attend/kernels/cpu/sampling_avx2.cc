#include "attend/kernels/cpu/sampling_instances.h"
#include "attend/kernels/cpu/simd_avx2.h"

namespace attend::kernels::cpu {

SamplingKernels sampling_kernels_avx2() { return sampling_kernels_of<Avx2>(); }

}  // namespace attend::kernels::cpu
