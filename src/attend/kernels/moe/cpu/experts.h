// Mixture of experts on the CPU: rows of x are gathered by expert, and each expert with rows multiplies them
// with the kernels of linear layers.
#pragma once

#include "attend/kernels/common/cpu/isa.h"
#include "attend/kernels/moe/experts.h"

namespace attend::kernels::cpu {

// Arguments are those checked by kernels::moe_experts.
void moe_experts(const MoeExpertsArgs& args, Isa isa);

// MoE router on the CPU.

// Arguments are those checked by kernels::route.
void route(const RouteArgs& args);

}  // namespace attend::kernels::cpu
