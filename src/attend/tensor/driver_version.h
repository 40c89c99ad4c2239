// Whether a driver serves the CUDA that attend was built with.
#pragma once

#include "attend/tensor/device.h"

namespace attend::cuda {

// Versions as CUDA counts them: 13010 is 13.1. A driver serves every runtime of its major version and older
// ones. Throws Error(kUnsupported) naming both versions for a driver that is too old; 0 (no driver) passes.
void require_driver(Device device, int driver_version, int runtime_version);

}  // namespace attend::cuda
