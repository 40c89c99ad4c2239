// Mixture of experts on a GPU. Arguments are those checked by kernels::route and kernels::moe_experts.
#pragma once

#include "attend/kernels/moe/experts.h"

namespace attend::kernels::cuda {

void route(const RouteArgs& args, Stream& stream);
bool shared_gate(const SharedGateArgs& args, Stream& stream);
bool norm_route(const NormRouteArgs& args, Stream& stream);
void moe_experts(const MoeExpertsArgs& args, Stream& stream);
bool adds_shared_expert(const MoeExpertsArgs& args, Stream& stream);

}  // namespace attend::kernels::cuda
