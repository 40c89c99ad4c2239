#pragma once

#include "attend/tensor/device.h"

namespace attend::testing_support {

// GPU that tests run on; it may be absent.
inline constexpr Device kGpu{DeviceType::kCuda, 0};

}  // namespace attend::testing_support
