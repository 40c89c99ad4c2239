// Properties of this machine's GPUs.
#pragma once

#include "attend/kernels/common/gpu_facts.h"
#include "attend/tensor/device.h"

namespace attend::kernels::cuda {

// Returns a GPU's properties, queried from the driver once for all GPUs. Throws Error(kDevice) if the driver
// fails.
const GpuFacts& gpu_facts(Device device);

}  // namespace attend::kernels::cuda
