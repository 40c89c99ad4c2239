// Mixtures of experts on a GPU. Arguments as kernels::route and kernels::moe_experts check them.
#pragma once

#include "attend/kernels/moe/experts.h"

namespace attend::kernels::cuda {

void route(const RouteArgs& args, Stream& stream);
bool norm_route(const NormRouteArgs& args, Stream& stream);
void moe_experts(const MoeExpertsArgs& args, Stream& stream);

}  // namespace attend::kernels::cuda
