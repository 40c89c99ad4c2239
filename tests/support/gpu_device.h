#pragma once

#include "attend/tensor/device.h"

namespace attend::testing_support {

// The GPU that tests run on, whether or not there is one.
inline constexpr Device kGpu{DeviceType::kCuda, 0};

}  // namespace attend::testing_support
