#include "attend/kernels/moe/norm_route.h"

#include "attend/kernels/common/on_gpu.h"
#include "attend/kernels/moe/cuda/moe.h"

namespace attend::kernels {

bool norm_route(const NormRouteArgs& args, Stream& stream) {
  if (args.batch_invariant || args.norm.empty() || args.x.shape[0] == 0) return false;
  if (const OnGpu gpu(stream); gpu) return cuda::norm_route(args, stream);
  return false;
}

}  // namespace attend::kernels
