// The GPU kernels of a build without CUDA: there are none.
#include "attend/kernels/common/refuse_gpu.h"
#include "attend/kernels/moe/cuda/moe.h"

namespace attend::kernels::cuda {

void route(const RouteArgs&, Stream&) { refuse("route"); }
bool norm_route(const NormRouteArgs&, Stream&) { refuse("norm_route"); }
void moe_experts(const MoeExpertsArgs&, Stream&) { refuse("moe_experts"); }

}  // namespace attend::kernels::cuda
