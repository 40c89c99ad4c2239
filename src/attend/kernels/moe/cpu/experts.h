// The experts of a mixture on the CPU: rows of x are gathered by expert, and each expert that has some
// multiplies them with the kernels of dense layers.
#pragma once

#include "attend/kernels/common/cpu/isa.h"
#include "attend/kernels/moe/experts.h"

namespace attend::kernels::cpu {

// Arguments as kernels::moe_experts checks them.
void moe_experts(const MoeExpertsArgs& args, Isa isa);

// The router of a mixture of experts on the CPU.

// Arguments as kernels::route checks them.
void route(const RouteArgs& args);

}  // namespace attend::kernels::cpu
