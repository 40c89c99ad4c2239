#include <type_traits>

#include "attend/kernels/cuda/element.cuh"
#include "attend/kernels/cuda/few_rows_kernel.h"
#include "attend/kernels/cuda/launch.cuh"
#include "attend/kernels/cuda/ptx/copy.cuh"
#include "attend/kernels/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/cuda/ptx/mma.cuh"

namespace attend::kernels::cuda {
namespace {

constexpr int kWarps =
    4;  // small CTAs, so that those of the next kernel find room beside the last of this one
constexpr int kFeatures = 16;    // rows of the weights of a CTA: those of the tensor cores' A
constexpr int kTokens = 8;       // rows of x: the columns of B
constexpr int kRunElements = 8;  // that a thread loads at once: 16 bytes
constexpr int kChunk = 64;       // inputs that a warp takes at once
constexpr int kRuns = kChunk / (4 * kRunElements);
constexpr int kChunksAhead = 4;  // loaded before the first of them is used

// A thread's part of a chunk of the weights: two rows, kRuns runs.
struct WeightChunk {
  uint4 low[kRuns], high[kRuns];
};

// The eight inputs of a run are four pairs, of which the tensor cores take two at a time. Which inputs a pair
// stands for does not matter as long as weights and x agree, so a thread's run is what it multiplies: no
// shuffling.
template <class T>
class Product {
 public:
  __device__ Product(const FewRowsParams& params, int first_feature, int lane)
      : params_(params), group_(lane / 4), first_input_(lane % 4 * kRunElements) {
    for (int half = 0; half < 2; ++half) {
      int row = first_feature + group_ + (params.gated ? 0 : 8 * half);
      inside_[half] = row < params.out_features;
      // Gated: the first eight rows are of the gate, the others are the same ones of up.
      if (params.gated) row += half * params.out_features;
      rows_[half] = static_cast<const T*>(params.weight) +
                    static_cast<int64_t>(inside_[half] ? row : 0) * params.in_features;
    }
  }

  __device__ void load(int chunk, WeightChunk& weights) const {
#pragma unroll
    for (int run = 0; run < kRuns; ++run) {
      const int k = input(chunk, run);
      weights.low[run] = load_weights(0, k);
      weights.high[run] = load_weights(1, k);
    }
  }

  template <int kTokenTiles>
  __device__ void multiply(int chunk, const WeightChunk& weights, float (&sums)[kTokenTiles][4]) const {
#pragma unroll
    for (int run = 0; run < kRuns; ++run) {
      const int k = input(chunk, run);
      const uint4 low = weights.low[run], high = weights.high[run];
      const uint32_t first[4] = {low.x, high.x, low.y, high.y}, second[4] = {low.z, high.z, low.w, high.w};
#pragma unroll
      for (int tile = 0; tile < kTokenTiles; ++tile) {
        const uint4 x = load_x(tile * kTokens + group_, k);
        ptx::multiply_add(sums[tile], first, x.x, x.y, T{});
        ptx::multiply_add(sums[tile], second, x.z, x.w, T{});
      }
    }
  }

 private:
  __device__ int input(int chunk, int run) const {
    return chunk * kChunk + run * 4 * kRunElements + first_input_;
  }
  __device__ uint4 load_weights(int half, int k) const {
    if (!inside_[half] || k >= params_.in_features) return make_uint4(0, 0, 0, 0);
    return ptx::load_once_16(rows_[half] + k);
  }
  __device__ uint4 load_x(int token, int k) const {
    if (token >= params_.num_rows || k >= params_.in_features) return make_uint4(0, 0, 0, 0);
    return *reinterpret_cast<const uint4*>(static_cast<const T*>(params_.x) + token * params_.x_stride + k);
  }

  const FewRowsParams& params_;
  int group_, first_input_;
  const T* rows_[2];
  bool inside_[2];
};

// A CTA per 16 rows of the weights; its warps share the inputs and add their sums in the end, always in the
// same order, so a row's bits depend on the row alone.
template <class T, int kTokenTiles>
__global__ void __launch_bounds__(32 * kWarps) few_rows_kernel(const __grid_constant__ FewRowsParams params) {
  __shared__ float partial[kWarps][kTokenTiles][32][4];
  ptx::allow_next_kernel();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int num_features = params.gated ? kFeatures / 2 : kFeatures;
  const int first_feature = static_cast<int>(blockIdx.x) * num_features;
  const Product<T> product(params, first_feature, lane);
  const int num_chunks = (params.in_features + kChunk - 1) / kChunk;

  // Weights do not depend on the kernel before, so the first of them are on their way while it ends.
  WeightChunk weights[kChunksAhead];
#pragma unroll
  for (int i = 0; i < kChunksAhead; ++i) product.load(warp + i * kWarps, weights[i]);
  ptx::wait_for_previous_kernel();
  float sums[kTokenTiles][4] = {};
  for (int first = warp; first < num_chunks; first += kChunksAhead * kWarps) {
#pragma unroll
    for (int i = 0; i < kChunksAhead; ++i) {
      const int chunk = first + i * kWarps;
      product.multiply(chunk, weights[i], sums);
      product.load(chunk + kChunksAhead * kWarps, weights[i]);
    }
  }
#pragma unroll
  for (int tile = 0; tile < kTokenTiles; ++tile)
#pragma unroll
    for (int i = 0; i < 4; ++i) partial[warp][tile][lane][i] = sums[tile][i];
  __syncthreads();

  // Lane l holds features l / 4 and l / 4 + 8 of tokens 2 (l % 4) and the next.
  const auto sum_of = [&](int token, int row, int feature) {
    const int holder = row % 8 * 4 + token % kTokens / 2, part = row / 8 * 2 + token % 2;
    float sum =
        params.bias.data == nullptr ? 0.0f : load_element(params.bias.data, feature, params.bias.element);
    for (int w = 0; w < kWarps; ++w) sum += partial[w][token / kTokens][holder][part];
    return sum;
  };
  for (int i = static_cast<int>(threadIdx.x); i < kTokenTiles * kTokens * num_features; i += 32 * kWarps) {
    const int token = i / num_features, row = i % num_features, feature = first_feature + row;
    if (token >= params.num_rows || feature >= params.out_features) continue;
    float value = sum_of(token, row, feature);
    if (params.gated)
      value =
          value / (1.0f + expf(-value)) * sum_of(token, row + kFeatures / 2, params.out_features + feature);
    store_element(params.out, token * params.out_stride + feature, params.out_element, value);
  }
}

template <class T>
void launch(const FewRowsParams& params, void* stream) {
  const int num_features = params.gated ? kFeatures / 2 : kFeatures;
  const auto num_ctas = static_cast<unsigned>((params.out_features + num_features - 1) / num_features);
  const auto kernel = params.num_rows <= kTokens ? few_rows_kernel<T, 1> : few_rows_kernel<T, 2>;
  launch_dependent<FewRowsParams>(kernel, num_ctas, 32 * kWarps, 0, stream, params, "linear");
}

}  // namespace

void launch_few_rows(const FewRowsParams& params, void* stream) {
  if (params.element == Element::kBF16)
    launch<__nv_bfloat16>(params, stream);
  else
    launch<__half>(params, stream);
}

}  // namespace attend::kernels::cuda
