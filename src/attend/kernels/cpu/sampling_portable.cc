#include "attend/kernels/cpu/sampling_instances.h"
#include "attend/kernels/cpu/simd_portable.h"

namespace attend::kernels::cpu {

SamplingKernels sampling_kernels_portable() { return sampling_kernels_of<Portable>(); }

}  // namespace attend::kernels::cpu
