// Checks that a driver supports the CUDA version of this build.
#pragma once

#include <string_view>

namespace attend::cuda {

// Versions use CUDA's numbers: 13010 is 13.1. A driver supports every runtime of its major version and older
// ones. Throws Error(kUnsupported) with prefix `what`: with both versions if the driver is too old, and for
// driver_version 0, which means that the machine has no driver.
void require_driver(std::string_view what, int driver_version, int runtime_version);

}  // namespace attend::cuda
