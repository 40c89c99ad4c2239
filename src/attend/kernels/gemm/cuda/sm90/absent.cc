// A build without machine code for sm_90a.
#include "attend/base/error.h"
#include "attend/kernels/gemm/cuda/sm90/batch_invariant/batch_invariant_gemm.h"
#include "attend/kernels/gemm/cuda/sm90/fp8_block/fp8_block_gemm.h"
#include "attend/kernels/gemm/cuda/sm90/gated_mlp/gated_mlp_gemm.h"
#include "attend/kernels/gemm/cuda/sm90/gemv/lone_row_gemm.h"
#include "attend/kernels/gemm/cuda/sm90/swap_ab/swap_ab_gemm.h"

namespace attend::kernels::cuda::sm90 {

bool swap_ab_gemm(const LinearArgs&, bool, Stream& stream) {
  return swap_ab_gemm({}, false, SwapAbGemmShape{}, stream);
}

bool swap_ab_gemm(const LinearArgs&, bool, const SwapAbGemmShape&, Stream&) {
  fail(ErrorCode::kUnsupported,
       "swap-AB split-K GEMM: this build has no kernels for sm_90a (ATTEND_CUDA_ARCHITECTURES)");
}

void scaled_codes_gemm(const LinearArgs&, bool, Stream& stream) {
  swap_ab_gemm({}, false, SwapAbGemmShape{}, stream);
}

void batch_invariant_gemm(const LinearArgs&, bool, Stream& stream) {
  batch_invariant_gemm({}, false, BatchInvariantGemmShape{}, stream);
}

void batch_invariant_gemm(const LinearArgs&, bool, const BatchInvariantGemmShape&, Stream&) {
  fail(ErrorCode::kUnsupported,
       "batch-invariant GEMM: this build has no kernels for sm_90a (ATTEND_CUDA_ARCHITECTURES)");
}

void gated_mlp_gemm(const LinearArgs&, Stream& stream) { gated_mlp_gemm({}, GatedMlpGemmShape{}, stream); }

void gated_mlp_gemm(const LinearArgs&, const GatedMlpGemmShape&, Stream&) {
  fail(ErrorCode::kUnsupported,
       "gated-MLP GEMM: this build has no kernels for sm_90a (ATTEND_CUDA_ARCHITECTURES)");
}

void lone_row_gemm(const LinearArgs&, Stream&) {
  fail(ErrorCode::kUnsupported,
       "GEMM of a lone row: this build has no kernels for sm_90a (ATTEND_CUDA_ARCHITECTURES)");
}

void fp8_block_gemm(const Fp8BlockRows&, const Weight&, const TensorView&, bool, Stream&) {
  fail(ErrorCode::kUnsupported,
       "GEMM of fp8 blocks: this build has no kernels for sm_90a (ATTEND_CUDA_ARCHITECTURES)");
}

}  // namespace attend::kernels::cuda::sm90
