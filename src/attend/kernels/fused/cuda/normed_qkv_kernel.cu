#include "attend/kernels/fused/cuda/qkv_heads.cuh"

namespace attend::kernels::cuda {
namespace {

constexpr int kMaxUnits = 4;  // of a CTA

__host__ __device__ constexpr int num_squares(int num_tokens) {
  return num_tokens * NormedHeadsOut::kMaxPairsOfHead;
}

template <int kGroups, int kTokens>
using NormedQkvCta =
    FewRowsCta<__nv_bfloat16, kGroups, kTokens,
               kLargeSharedBytes - num_squares(kTokens) * static_cast<int>(sizeof(float)), NormedHeadsOut>;

template <int kGroups, int kTokens>
__global__ void __launch_bounds__(kFewRowsThreads, few_rows_ctas(kGroups, kTokens))
    normed_qkv_kernel(const __grid_constant__ QkvParams params) {
  extern __shared__ __align__(128) char shared[];
  __shared__ float squares[num_squares(kTokens)];
  NormedQkvCta<kGroups, kTokens>(params.product, NormedHeadsOut(params, squares), shared).run();
}

template <int kTokens>
void launch_normed_tokens(const QkvParams& params, void* stream) {
  const auto launch = [&]<int kGroups>() {
    Shares shares(params.product);
    shares.num_ctas =
        num_units(params.product) / (params.product.head_half / kFeatures) * params.ctas_of_head;
    shares.num_groups = kGroups;
    launch_ctas<NormedQkvCta<kGroups, kTokens>, kGroups, normed_qkv_kernel<kGroups, kTokens>>(
        params, params.product, shares, stream, params.ctas_of_head);
  };
  const int units = (params.product.head_half / kFeatures + params.ctas_of_head - 1) / params.ctas_of_head;
  if (units <= 2) return launch.template operator()<4>();
  if (units == 3) return launch.template operator()<6>();
  launch.template operator()<2 * kMaxUnits>();
}

// One before sm_90, and in code for such a GPU that was compiled when it was loaded.
int largest_cluster() {
  cudaFuncAttributes attributes;
  attend::cuda::check(cudaFuncGetAttributes(&attributes, normed_qkv_kernel<4, 1>), "qkv");
  return attributes.ptxVersion < 90 ? 1 : 8;
}

}  // namespace

// Clusters of more than two CTAs do not fill the SMs, unless two CTAs fit one: then those that find no SM of
// their own share some.
int ctas_of_normed_head(int num_heads, int head_half, int num_rows) {
  const int units_of_head = head_half / kFeatures;
  for (int size = largest_cluster(); size > 0; --size) {
    const int units = (units_of_head + size - 1) / size;
    if (size > units_of_head || units > kMaxUnits) continue;
    const bool two_fit_an_sm = units <= 2 && num_rows <= 8;
    const int num_ctas = size > 2 && !two_fit_an_sm ? num_sms() * 3 / 4 : num_sms();
    if (num_heads * size <= num_ctas) return size;
  }
  return 0;
}

void launch_normed_qkv(const QkvParams& params, void* stream) {
  if (params.product.num_rows == 1)
    launch_normed_tokens<1>(params, stream);
  else if (params.product.num_rows <= 8)
    launch_normed_tokens<8>(params, stream);
  else
    launch_normed_tokens<kMaxQkvRows>(params, stream);
}

}  // namespace attend::kernels::cuda
