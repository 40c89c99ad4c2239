// qkv_kernel.cu for a quantized weight: the skinny GEMM of quantized weights with HeadsEpilogue.
//
//   tile        up to 8 rows of x x 2, 4, 6 or 8 groups of 8 features; an n-tile is 8 pairs of a head
//   others      warps, registers, shared memory, bytes and bound are those of skinny_quantized.cuh
#include "attend/kernels/fused/cuda/qkv_heads.cuh"
#include "attend/kernels/gemm/cuda/sm80/skinny_quantized.cuh"

namespace attend::kernels::cuda {
namespace {

template <WeightFormat kFormat, int kTokens, int kCtasPerSm>
using QkvQuantizedCta =
    sm80::SkinnyQuantizedCta<__nv_bfloat16, kFormat, sm80::kQuantizedGroups<kTokens>, kTokens,
                             sm80::kQuantizedStages<kTokens, kCtasPerSm>, HeadsEpilogue>;

template <WeightFormat kFormat, int kTokens, int kCtasPerSm>
__global__ void __launch_bounds__(sm80::kSkinnyThreads, kCtasPerSm)
    qkv_quantized_kernel(const __grid_constant__ QkvQuantizedParams params) {
  extern __shared__ __align__(128) char shared[];
  QkvQuantizedCta<kFormat, kTokens, kCtasPerSm>(params.qkv.product, params.weight, HeadsEpilogue(params.qkv),
                                                shared)
      .run();
}

template <WeightFormat kFormat>
void launch_format(const QkvQuantizedParams& params, void* stream) {
  const sm80::SkinnyGemmParams& product = params.qkv.product;
  const sm80::QuantizedKRanges ranges(product);
  sm80::visit_quantized_shape(product, ranges, [&]<int kTokens, int kCtasPerSm>() {
    sm80::launch_quantized_ctas<QkvQuantizedCta<kFormat, kTokens, kCtasPerSm>,
                                qkv_quantized_kernel<kFormat, kTokens, kCtasPerSm>>(params, product, ranges,
                                                                                    stream);
  });
}

}  // namespace

void launch_qkv_quantized(const QkvQuantizedParams& params, void* stream) {
  if (params.weight.format == WeightFormat::kFp8)
    launch_format<WeightFormat::kFp8>(params, stream);
  else if (params.weight.format == WeightFormat::kInt8)
    launch_format<WeightFormat::kInt8>(params, stream);
  else
    launch_format<WeightFormat::kInt4>(params, stream);
}

}  // namespace attend::kernels::cuda
