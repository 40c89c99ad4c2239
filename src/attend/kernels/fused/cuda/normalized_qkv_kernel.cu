// qkv_kernel.cu with an RMSNorm of the heads of q and k before RoPE (Qwen3): a cluster of up to 8 CTAs
// computes one head and exchanges the squares of its pairs through distributed shared memory.
//
//   tile        up to 16 rows of x x 4, 6 or 8 groups of 8 features, in one pass
//   others      warps, bytes and bound are those of the skinny GEMM (skinny_gemm.cuh)
//   registers   118 to 184
//   shared      that of the skinny GEMM, and 512 bytes per row for the squares of a head's pairs
#include "attend/kernels/common/cuda/device_attribute.h"
#include "attend/kernels/fused/cuda/qkv_heads.cuh"

namespace attend::kernels::cuda {
namespace {

constexpr int kMaxNTiles = 4;  // per CTA

__host__ __device__ constexpr int num_squares(int num_tokens) {
  return num_tokens * NormalizedHeadsEpilogue::kMaxPairsPerHead;
}

template <int kGroups, int kTokens>
using NormalizedQkvCta =
    sm80::SkinnyGemmCta<__nv_bfloat16, kGroups, kTokens,
                        sm80::kLargeSharedBytes - num_squares(kTokens) * static_cast<int>(sizeof(float)),
                        NormalizedHeadsEpilogue>;

template <int kGroups, int kTokens>
__global__ void __launch_bounds__(sm80::kSkinnyThreads, sm80::skinny_ctas_per_sm(kGroups, kTokens))
    normalized_qkv_kernel(const __grid_constant__ QkvParams params) {
  extern __shared__ __align__(128) char shared[];
  __shared__ float squares[num_squares(kTokens)];
  NormalizedQkvCta<kGroups, kTokens>(params.product, NormalizedHeadsEpilogue(params, squares), shared).run();
}

template <int kTokens>
void launch_normalized_tokens(const QkvParams& params, void* stream) {
  const auto launch = [&]<int kGroups>() {
    sm80::CtaRanges ranges(params.product);
    ranges.num_ctas = sm80::num_n_tiles(params.product) / (params.product.head_half / sm80::kFeatures) *
                      params.ctas_per_head;
    ranges.num_groups = kGroups;
    sm80::launch_ctas<NormalizedQkvCta<kGroups, kTokens>, kGroups, normalized_qkv_kernel<kGroups, kTokens>>(
        params, params.product, ranges, stream, params.ctas_per_head);
  };
  const int n_tiles =
      (params.product.head_half / sm80::kFeatures + params.ctas_per_head - 1) / params.ctas_per_head;
  if (n_tiles <= 2) return launch.template operator()<4>();
  if (n_tiles == 3) return launch.template operator()<6>();
  launch.template operator()<2 * kMaxNTiles>();
}

// Returns 1 before sm_90, and if the code was compiled for such a GPU at load time.
int max_cluster_size() {
  cudaFuncAttributes attributes;
  attend::cuda::check(cudaFuncGetAttributes(&attributes, normalized_qkv_kernel<4, 1>), "qkv");
  return attributes.ptxVersion < 90 ? 1 : 8;
}

}  // namespace

// Clusters of more than two CTAs do not fill the SMs unless two CTAs fit on one: then CTAs without an SM of
// their own share one.
int choose_ctas_per_head(int num_heads, int head_half, int num_rows) {
  const int n_tiles_per_head = head_half / sm80::kFeatures;
  for (int size = max_cluster_size(); size > 0; --size) {
    const int n_tiles = (n_tiles_per_head + size - 1) / size;
    if (size > n_tiles_per_head || n_tiles > kMaxNTiles) continue;
    const bool fits_two_ctas_per_sm = n_tiles <= 2 && num_rows <= 8;
    const int num_ctas = size > 2 && !fits_two_ctas_per_sm ? num_sms() * 3 / 4 : num_sms();
    if (num_heads * size <= num_ctas) return size;
  }
  return 0;
}

void launch_normalized_qkv(const QkvParams& params, void* stream) {
  if (params.product.num_rows == 1)
    launch_normalized_tokens<1>(params, stream);
  else if (params.product.num_rows <= 8)
    launch_normalized_tokens<8>(params, stream);
  else
    launch_normalized_tokens<kMaxQkvRows>(params, stream);
}

}  // namespace attend::kernels::cuda
