// The kernels for sm_90a of a build without machine code for it: there are none.
#include <string_view>

#include "attend/base/error.h"
#include "attend/kernels/attention/cuda/sm90/attention.h"
#include "attend/kernels/gemm/cuda/sm90/batch_invariant/batch_invariant_gemm.h"
#include "attend/kernels/gemm/cuda/sm90/fp8_block/fp8_block_gemm.h"
#include "attend/kernels/gemm/cuda/sm90/gated_mlp/gated_mlp_gemm.h"
#include "attend/kernels/gemm/cuda/sm90/gemv/gemv.h"
#include "attend/kernels/gemm/cuda/sm90/swap_ab/swap_ab_gemm.h"
#include "attend/kernels/moe/cuda/sm90/expert_tiles.h"
#include "attend/kernels/moe/cuda/sm90/norm_route.h"
#include "attend/kernels/recurrent/cuda/sm90/delta_chunk_scan_kernel.h"
#include "attend/kernels/recurrent/cuda/sm90/delta_token_kernel.h"

namespace attend::kernels::cuda::sm90 {
namespace {

[[noreturn]] void reject(std::string_view kernel) {
  fail(ErrorCode::kUnsupported, kernel, ": this build has no kernels for sm_90a (ATTEND_CUDA_ARCHITECTURES)");
}

}  // namespace

bool swap_ab_gemm(const LinearArgs&, bool, Stream& stream) {
  return swap_ab_gemm({}, false, SwapAbGemmShape{}, stream);
}

bool swap_ab_gemm(const LinearArgs&, bool, const SwapAbGemmShape&, Stream&) {
  reject("swap-AB split-K GEMM");
}

void scaled_quantized_gemm(const LinearArgs&, bool, Stream& stream) {
  swap_ab_gemm({}, false, SwapAbGemmShape{}, stream);
}

void batch_invariant_gemm(const LinearArgs&, bool, Stream& stream) {
  batch_invariant_gemm({}, false, BatchInvariantGemmShape{}, stream);
}

void batch_invariant_gemm(const LinearArgs&, bool, const BatchInvariantGemmShape&, Stream&) {
  reject("batch-invariant GEMM");
}

void gated_mlp_gemm(const LinearArgs&, Stream& stream) { gated_mlp_gemm({}, GatedMlpGemmShape{}, stream); }

void gated_mlp_gemm(const LinearArgs&, const GatedMlpGemmShape&, Stream&) { reject("gated-MLP GEMM"); }

void gemv(const LinearArgs&, Stream&) { reject("GEMV"); }

void fp8_block_gemm(const Fp8BlockRows&, const Weight&, const TensorView&, bool, Stream&) {
  reject("GEMM of fp8 blocks");
}

void wide_decode(const AttentionArgs&, const AttentionParams&, const DevicePlan&, Stream&) {
  reject("wide decode");
}

bool norm_route(const NormRouteArgs&, Stream&) { return false; }

void launch_delta_chunk_scan_bf16(const DeltaChunkParams&, int, bool, void*) { reject("gated_delta_rule"); }
void launch_delta_chunk_scan_f16(const DeltaChunkParams&, int, bool, void*) { reject("gated_delta_rule"); }
void launch_delta_token_bf16(const DeltaTokenParams&, void*) { reject("delta_token"); }
void launch_delta_token_f16(const DeltaTokenParams&, void*) { reject("delta_token"); }

void expert_tiles(const GroupedGemmParams&, const TensorView&, Stream&) { reject("expert tiles"); }
void mxfp4_tiles(const GroupedGemmParams&, int64_t, Stream&) { reject("mxfp4 expert tiles"); }
void mxfp4_inputs(const void*, const int32_t*, void*, int64_t, int64_t, Stream&) {
  reject("mxfp4 expert tiles");
}

void prefill(const AttentionArgs&, const AttentionParams&, const DevicePlan&, HeadDims, Stream&) {
  reject("prefill");
}

void single_request_decode(const AttentionParams&, HeadDims, Stream&) {
  reject("decode of a single request");
}

void mla(const MlaArgs&, const AttentionParams&, const DevicePlan&, Stream&) { reject("MLA"); }

}  // namespace attend::kernels::cuda::sm90
