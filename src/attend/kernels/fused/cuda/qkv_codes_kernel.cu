// As qkv_kernel.cu, of a quantised weight: the skinny GEMM of codes with HeadsEpilogue.
//
//   tile        up to 8 rows of x x 2, 4, 6 or 8 groups of 8 features; an n-tile is 8 pairs of a head
//   others      warps, registers, shared memory, bytes and bound are those of skinny_codes.cuh
#include "attend/kernels/fused/cuda/qkv_heads.cuh"
#include "attend/kernels/gemm/cuda/sm80/skinny_codes.cuh"

namespace attend::kernels::cuda {
namespace {

template <WeightFormat kFormat, int kTokens, int kCtasOfSm>
using QkvCodesCta = sm80::SkinnyCodesCta<__nv_bfloat16, kFormat, sm80::kCodeGroups<kTokens>, kTokens,
                                         sm80::kCodeStages<kTokens, kCtasOfSm>, HeadsEpilogue>;

template <WeightFormat kFormat, int kTokens, int kCtasOfSm>
__global__ void __launch_bounds__(sm80::kSkinnyThreads, kCtasOfSm)
    qkv_codes_kernel(const __grid_constant__ QkvCodesParams params) {
  extern __shared__ __align__(128) char shared[];
  QkvCodesCta<kFormat, kTokens, kCtasOfSm>(params.qkv.product, params.weight, HeadsEpilogue(params.qkv),
                                           shared)
      .run();
}

template <WeightFormat kFormat>
void launch_format(const QkvCodesParams& params, void* stream) {
  const sm80::SkinnyGemmParams& product = params.qkv.product;
  const sm80::CodeRanges ranges(product);
  sm80::visit_code_shape(product, ranges, [&]<int kTokens, int kCtasOfSm>() {
    sm80::launch_code_ctas<QkvCodesCta<kFormat, kTokens, kCtasOfSm>,
                           qkv_codes_kernel<kFormat, kTokens, kCtasOfSm>>(params, product, ranges, stream);
  });
}

}  // namespace

void launch_qkv_codes(const QkvCodesParams& params, void* stream) {
  if (params.weight.format == WeightFormat::kFp8)
    launch_format<WeightFormat::kFp8>(params, stream);
  else if (params.weight.format == WeightFormat::kInt8)
    launch_format<WeightFormat::kInt8>(params, stream);
  else
    launch_format<WeightFormat::kInt4>(params, stream);
}

}  // namespace attend::kernels::cuda
