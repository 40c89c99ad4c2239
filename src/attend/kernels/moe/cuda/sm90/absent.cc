// A build without machine code for sm_90a.
#include "attend/base/error.h"
#include "attend/kernels/moe/cuda/sm90/expert_tiles.h"
#include "attend/kernels/moe/cuda/sm90/norm_route.h"

namespace attend::kernels::cuda::sm90 {

bool norm_route(const NormRouteArgs&, Stream&) { return false; }

void expert_tiles(const GroupedGemmParams&, const TensorView&, Stream&) {
  fail(ErrorCode::kUnsupported,
       "expert tiles: this build has no kernels for sm_90a (ATTEND_CUDA_ARCHITECTURES)");
}
void mxfp4_tiles(const GroupedGemmParams&, int64_t, Stream&) {
  fail(ErrorCode::kUnsupported,
       "expert tiles of mxfp4: this build has no kernels for sm_90a (ATTEND_CUDA_ARCHITECTURES)");
}
void mxfp4_inputs(const void*, const int32_t*, void*, int64_t, int64_t, Stream&) {
  fail(ErrorCode::kUnsupported,
       "expert tiles of mxfp4: this build has no kernels for sm_90a (ATTEND_CUDA_ARCHITECTURES)");
}

}  // namespace attend::kernels::cuda::sm90
