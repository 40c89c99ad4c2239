#include "attend/kernels/fused/cuda/qkv_heads.cuh"

namespace attend::kernels::cuda {
namespace {

template <int kGroups, int kTokens>
using QkvCta = FewRowsCta<__nv_bfloat16, kGroups, kTokens, kLargeSharedBytes, HeadsOut>;

template <int kGroups, int kTokens>
__global__ void __launch_bounds__(kFewRowsThreads, few_rows_ctas(kGroups, kTokens))
    qkv_kernel(const __grid_constant__ QkvParams params) {
  extern __shared__ __align__(128) char shared[];
  QkvCta<kGroups, kTokens>(params.product, HeadsOut(params), shared).run();
}

template <int kTokens>
void launch_tokens(const QkvParams& params, void* stream) {
  const Shares shares(params.product);
  const auto launch = [&]<int kGroups>() {
    launch_ctas<QkvCta<kGroups, kTokens>, kGroups, qkv_kernel<kGroups, kTokens>>(params, params.product,
                                                                                 shares, stream);
  };
  // As for other products: few passes over x, then few groups at once.
  if (shares.num_passes(2) == shares.num_passes(6)) return launch.template operator()<2>();
  if (shares.num_passes(4) == shares.num_passes(6)) return launch.template operator()<4>();
  launch.template operator()<6>();
}

}  // namespace

void launch_qkv(const QkvParams& params, void* stream) {
  if (params.ctas_of_head > 0) return launch_normed_qkv(params, stream);
  if (params.product.num_rows == 1)
    launch_tokens<1>(params, stream);
  else if (params.product.num_rows <= 8)
    launch_tokens<8>(params, stream);
  else
    launch_tokens<kMaxQkvRows>(params, stream);
}

}  // namespace attend::kernels::cuda
