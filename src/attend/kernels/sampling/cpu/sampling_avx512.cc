#include "attend/kernels/common/cpu/simd_avx512.h"
#include "attend/kernels/sampling/cpu/sampling_instances.h"

namespace attend::kernels::cpu {

SamplingKernels sampling_kernels_avx512() { return sampling_kernels_of<Avx512>(); }

}  // namespace attend::kernels::cpu
