// A build without machine code for sm_90a.
#include "attend/base/error.h"
#include "attend/kernels/gemm/cuda/sm90/dense.h"
#include "attend/kernels/gemm/cuda/sm90/row_tiles.h"
#include "attend/kernels/gemm/cuda/sm90/tall.h"

namespace attend::kernels::cuda::sm90 {

void dense(const LinearArgs&, bool, Stream& stream) { dense({}, false, SwapAbGemmShape{}, stream); }

void dense(const LinearArgs&, bool, const SwapAbGemmShape&, Stream&) {
  fail(ErrorCode::kUnsupported, "dense: this build has no kernels for sm_90a (ATTEND_CUDA_ARCHITECTURES)");
}

void row_tiles(const LinearArgs&, Stream&) {
  fail(ErrorCode::kUnsupported,
       "row tiles: this build has no kernels for sm_90a (ATTEND_CUDA_ARCHITECTURES)");
}

void tall_tiles(const LinearArgs&, Stream& stream) { tall_tiles({}, GatedMlpGemmShape{}, stream); }

void tall_tiles(const LinearArgs&, const GatedMlpGemmShape&, Stream&) {
  fail(ErrorCode::kUnsupported,
       "tall tiles: this build has no kernels for sm_90a (ATTEND_CUDA_ARCHITECTURES)");
}

}  // namespace attend::kernels::cuda::sm90
