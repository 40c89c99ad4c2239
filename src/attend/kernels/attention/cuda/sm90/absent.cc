// A build without machine code for sm_90a.
#include "attend/base/error.h"
#include "attend/kernels/attention/cuda/sm90/mla/mla.h"
#include "attend/kernels/attention/cuda/sm90/prefill/prefill.h"

namespace attend::kernels::cuda::sm90 {

void prefill(const AttentionArgs&, const AttentionParams&, const DevicePlan&, HeadDims, Stream&) {
  fail(ErrorCode::kUnsupported, "prefill: this build has no kernels for sm_90a (ATTEND_CUDA_ARCHITECTURES)");
}

void mla(const MlaArgs&, const AttentionParams&, const DevicePlan&, Stream&) {
  fail(ErrorCode::kUnsupported, "MLA: this build has no kernels for sm_90a (ATTEND_CUDA_ARCHITECTURES)");
}

}  // namespace attend::kernels::cuda::sm90
