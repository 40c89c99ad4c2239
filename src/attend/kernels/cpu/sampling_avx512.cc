#include "attend/kernels/cpu/sampling_instances.h"
#include "attend/kernels/cpu/simd_avx512.h"

namespace attend::kernels::cpu {

SamplingKernels sampling_kernels_avx512() { return sampling_kernels_of<Avx512>(); }

}  // namespace attend::kernels::cpu
