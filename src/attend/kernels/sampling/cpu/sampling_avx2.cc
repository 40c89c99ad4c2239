#include "attend/kernels/common/cpu/simd_avx2.h"
#include "attend/kernels/sampling/cpu/sampling_instances.h"

namespace attend::kernels::cpu {

SamplingKernels sampling_kernels_avx2() { return sampling_kernels_of<Avx2>(); }

}  // namespace attend::kernels::cpu
