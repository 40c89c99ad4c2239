// The facts of the GPUs of this machine.
#pragma once

#include "attend/kernels/common/gpu_facts.h"
#include "attend/tensor/device.h"

namespace attend::kernels::cuda {

// Asked of the driver once for all GPUs. Throws Error(kDevice) when the driver fails.
const GpuFacts& gpu_facts(Device device);

}  // namespace attend::kernels::cuda
