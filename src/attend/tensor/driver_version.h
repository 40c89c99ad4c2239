// Checks that a driver supports the CUDA version of this build, and that a machine has a GPU.
#pragma once

#include <string_view>

#include "attend/tensor/device.h"

namespace attend::cuda {

// Versions use CUDA's numbers: 13010 is 13.1. A driver supports every runtime of its major version and older
// ones. Throws Error(kUnsupported) with prefix `what`: with both versions if the driver is too old, and for
// driver_version 0, which means that the machine has no driver.
void require_driver(std::string_view what, int driver_version, int runtime_version);

// Throws Error(kInvalidArgument) unless a machine with `num_gpus` GPUs, at least one, has this one. `what`:
// the flag or argument that names it.
void require_gpu(Device device, int num_gpus, std::string_view what = "device");

}  // namespace attend::cuda
