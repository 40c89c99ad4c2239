// MoE router: selects the best experts of each token, and their weights.
//
//   tile        4 tokens per CTA, one per warp
//   warps       4, all alike: a lane has every 32nd logit; the k best are selected one after another
//   registers   16 logits, and 16 for the keys by which experts are ranked
//   shared      none
//   bytes       the logits once
//   bound       latency: k rounds of a reduction over the warp, and one or two per group of experts
#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/moe/cuda/common/route_token.cuh"

namespace attend::kernels::cuda {
namespace {

constexpr int kWarps = 4;

template <int kPerLane>
__global__ void __launch_bounds__(kWarps* kRouteLanes)
    route_kernel(const __grid_constant__ RouteParams params) {
  ptx::griddepcontrol_wait();
  ptx::launch_dependents();
  const int lane = static_cast<int>(threadIdx.x) % kRouteLanes;
  const int64_t token = int64_t{blockIdx.x} * kWarps + threadIdx.x / kRouteLanes;
  if (token >= params.num_tokens) return;
  route_token<kPerLane>(params, params.logits + token * params.num_experts, token, lane);
}

}  // namespace

void launch_route(const RouteParams& params, void* stream) {
  constexpr int kFew = 4, kMore = 8, kAll = kMaxExperts / kRouteLanes;
  const auto kernel = params.num_experts <= kFew * kRouteLanes    ? route_kernel<kFew>
                      : params.num_experts <= kMore * kRouteLanes ? route_kernel<kMore>
                                                                  : route_kernel<kAll>;
  launch_dependent<RouteParams>(kernel,
                                dim3(static_cast<unsigned>((params.num_tokens + kWarps - 1) / kWarps)),
                                kWarps * kRouteLanes, 0, stream, params, "route");
}

}  // namespace attend::kernels::cuda
