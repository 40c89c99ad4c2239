#include "attend/kernels/common/cpu/simd_portable.h"
#include "attend/kernels/sampling/cpu/sampling_instances.h"

namespace attend::kernels::cpu {

SamplingKernels sampling_kernels_portable() { return sampling_kernels_of<Portable>(); }

}  // namespace attend::kernels::cpu
