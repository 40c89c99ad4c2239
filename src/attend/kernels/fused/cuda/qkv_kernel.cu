// QKV projection, RoPE and the store of K/V in one launch: a skinny GEMM with HeadsEpilogue, in bf16.
//
//   tile        up to 16 rows of x x 2, 4 or 6 groups of 8 features; an n-tile is 8 pairs of a head
//   others      warps, shared memory, bytes and bound are those of the skinny GEMM (skinny_gemm.cuh)
//   registers   96 to 186
#include "attend/kernels/fused/cuda/qkv_heads.cuh"

namespace attend::kernels::cuda {
namespace {

template <int kGroups, int kTokens>
using QkvCta = sm80::SkinnyGemmCta<__nv_bfloat16, kGroups, kTokens, sm80::kLargeSharedBytes, HeadsEpilogue>;

template <int kGroups, int kTokens>
__global__ void __launch_bounds__(sm80::kSkinnyThreads, sm80::skinny_ctas_per_sm(kGroups, kTokens))
    qkv_kernel(const __grid_constant__ QkvParams params) {
  extern __shared__ __align__(128) char shared[];
  QkvCta<kGroups, kTokens>(params.product, HeadsEpilogue(params), shared).run();
}

template <int kTokens>
void launch_tokens(const QkvParams& params, void* stream) {
  const sm80::CtaRanges ranges(params.product);
  const auto launch = [&]<int kGroups>() {
    sm80::launch_ctas<QkvCta<kGroups, kTokens>, kGroups, qkv_kernel<kGroups, kTokens>>(params, params.product,
                                                                                       ranges, stream);
  };
  // Same choice as for other products: few passes over x, then few groups per pass.
  if (ranges.num_passes(2) == ranges.num_passes(6)) return launch.template operator()<2>();
  if (ranges.num_passes(4) == ranges.num_passes(6)) return launch.template operator()<4>();
  launch.template operator()<6>();
}

}  // namespace

void launch_qkv(const QkvParams& params, void* stream) {
  if (params.ctas_per_head > 0) return launch_normalized_qkv(params, stream);
  if (params.product.num_rows == 1)
    launch_tokens<1>(params, stream);
  else if (params.product.num_rows <= 8)
    launch_tokens<8>(params, stream);
  else
    launch_tokens<kMaxQkvRows>(params, stream);
}

}  // namespace attend::kernels::cuda
