#include "attend/kernels/cuda/element_group.cuh"
#include "attend/kernels/cuda/few_rows_kernel.cuh"
#include "attend/kernels/cuda/qkv_kernel.h"
#include "attend/kernels/cuda/turn.cuh"

namespace attend::kernels::cuda {
namespace {

// Sums are elements of heads: those of q turn and go to out, those of k turn and go to the cache, as v does.
class HeadsOut {
 public:
  static constexpr bool kHeads = true;
  struct Early {
    float cos = 1.0f, sin = 0.0f;
    int slot = -1;
  };

  __device__ explicit HeadsOut(const QkvParams& params) : product_(params.product), rope_(params.rope) {}

  __device__ void ask(int token, int unit, int row, Early& early) const {
    const int64_t position = rope_.positions[token];
    const int d = element_of_head(unit, row);
    early.cos = rope_.cos[position * rope_.cos_stride + d];
    early.sin = rope_.sin[position * rope_.sin_stride + d];
    early.slot = slot_of(rope_.store, token);
  }

  template <class Sum>
  __device__ void write(int token, int unit, int row, const Early& early, const Sum& sum) const {
    const int head = unit / units_of_half(), d = element_of_head(unit, row), half = product_.head_half;
    const int feature = head * 2 * half + d;
    const float first = rounded(sum(0, feature), product_.out_element);
    const float second = rounded(sum(1, feature + half), product_.out_element);
    const float2 pair = turned(first, second, early.cos, early.sin);
    const int num_q = rope_.heads[0].num_heads, num_k = rope_.heads[1].num_heads;
    if (head < num_q) {
      const int64_t to = token * product_.out_stride + feature;
      store_element(product_.out, to, product_.out_element, pair.x);
      store_element(product_.out, to + half, product_.out_element, pair.y);
    } else if (head < num_q + num_k) {
      // The cache holds what would be read back from k.
      const CacheRow cache(rope_.store, 0, early.slot, head - num_q);
      cache.write(d, rounded(pair.x, product_.out_element));
      cache.write(d + half, rounded(pair.y, product_.out_element));
    } else {
      const CacheRow cache(rope_.store, 1, early.slot, head - num_q - num_k);
      cache.write(d, first);
      cache.write(d + half, second);
    }
  }

 private:
  __device__ int units_of_half() const { return product_.head_half / kFeatures; }
  __device__ int element_of_head(int unit, int row) const {
    return (unit & (units_of_half() - 1)) * kFeatures + row;
  }

  const FewRowsParams& product_;
  const NormRopeParams& rope_;
};

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
    launch_ctas<QkvCta<kGroups, kTokens>, kGroups>(qkv_kernel<kGroups, kTokens>, params, params.product,
                                                   shares, stream);
  };
  // As for other products: few passes over x, then few groups at once.
  if (shares.num_passes(2) == shares.num_passes(6)) return launch.template operator()<2>();
  if (shares.num_passes(4) == shares.num_passes(6)) return launch.template operator()<4>();
  launch.template operator()<6>();
}

}  // namespace

void launch_qkv(const QkvParams& params, void* stream) {
  if (params.product.num_rows == 1)
    launch_tokens<1>(params, stream);
  else if (params.product.num_rows <= 8)
    launch_tokens<8>(params, stream);
  else
    launch_tokens<kMaxQkvRows>(params, stream);
}

}  // namespace attend::kernels::cuda
