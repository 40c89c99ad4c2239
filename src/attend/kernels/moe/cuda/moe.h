// Mixtures of experts on a GPU. Arguments as kernels::route and kernels::moe_experts check them.
#pragma once

#include "attend/kernels/moe/experts.h"
#include "attend/kernels/moe/norm_route.h"
#include "attend/kernels/moe/route.h"

namespace attend::kernels::cuda {

void route(const RouteArgs& args, Stream& stream);
bool norm_route(const NormRouteArgs& args, Stream& stream);
void moe_experts(const MoeExpertsArgs& args, Stream& stream);

}  // namespace attend::kernels::cuda
