// The router of a mixture of experts on the CPU.
#pragma once

#include "attend/kernels/moe/route.h"

namespace attend::kernels::cpu {

// Arguments as kernels::route checks them.
void route(const RouteArgs& args);

}  // namespace attend::kernels::cpu
