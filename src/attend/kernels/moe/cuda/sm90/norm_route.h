// Norm, router and choice in one launch on sm_90a.
#pragma once

#include "attend/kernels/moe/norm_route.h"

namespace attend::kernels::cuda::sm90 {

// As kernels::norm_route, on a GPU that runs code for sm_90a.
bool norm_route(const NormRouteArgs& args, Stream& stream);

}  // namespace attend::kernels::cuda::sm90
