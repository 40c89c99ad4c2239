// Whether a driver serves the CUDA that attend was built with.
#pragma once

#include <string_view>

namespace attend::cuda {

// Versions as CUDA counts them: 13010 is 13.1. A driver serves every runtime of its major version and older
// ones. Throws Error(kUnsupported) that begins with `what`: for a driver that is too old naming both
// versions, and for driver_version 0, which is a machine without a driver.
void require_driver(std::string_view what, int driver_version, int runtime_version);

}  // namespace attend::cuda
