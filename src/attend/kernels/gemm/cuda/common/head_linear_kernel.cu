// Per-head linear layers: out[t, h] = W_h x[t, h] in float32 on the CUDA cores, for any dtype and stride.
//
//   tile        32 tokens x 64 features of one head, K-blocks of 16
//   warps       4, all alike: a thread has 4 tokens x 4 features, with strides of 8 and 16
//   shared      6.1 KB: one K-block of x and of W as float32, transposed
//   bytes       per K-block: 32 x 16 elements of x, 64 x 16 of W
//   bound       bytes of W for few tokens, shared memory and FMAs for many
#include "attend/kernels/common/cuda/element.cuh"
#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/gemm/cuda/common/head_linear_kernel.h"

namespace attend::kernels::cuda {
namespace {

constexpr int kTokens = 32, kFeatures = 64;  // per CTA
constexpr int kSide = 4;                     // tokens, and features, per thread
constexpr int kAcrossTokens = kTokens / kSide, kAcrossFeatures = kFeatures / kSide;
constexpr int kThreads = kAcrossTokens * kAcrossFeatures;
constexpr int kInputs = 16;  // per K-block

__global__ void __launch_bounds__(kThreads)
    head_linear_kernel(const __grid_constant__ HeadLinearParams params) {
  __shared__ float x[kInputs][kTokens + 1], weights[kInputs][kFeatures + 1];
  const int first_token = static_cast<int>(blockIdx.x) * kTokens,
            first_feature = static_cast<int>(blockIdx.y) * kFeatures, head = static_cast<int>(blockIdx.z);
  const int thread = static_cast<int>(threadIdx.x);
  const int token = thread / kAcrossFeatures, feature = thread % kAcrossFeatures;
  const bool outputs_adjoin = params.weight_out_stride == 1;
  ptx::griddepcontrol_wait();
  ptx::launch_dependents();
  float accumulators[kSide][kSide] = {};
  for (int first = 0; first < params.in_features; first += kInputs) {
    for (int i = thread; i < kTokens * kInputs; i += kThreads) {
      const int t = i / kInputs, input = i % kInputs;
      const bool given = first_token + t < params.num_tokens && first + input < params.in_features;
      x[input][t] = given ? load_element(params.x.data,
                                         (first_token + t) * params.x.token_stride +
                                             head * params.x.head_stride + first + input,
                                         params.element)
                          : 0.0f;
    }
    // Neighboring threads read neighboring elements for either orientation of the weight.
    for (int i = thread; i < kFeatures * kInputs; i += kThreads) {
      const int f = outputs_adjoin ? i % kFeatures : i / kInputs;
      const int input = outputs_adjoin ? i / kFeatures : i % kInputs;
      const bool given = first_feature + f < params.out_features && first + input < params.in_features;
      weights[input][f] = given ? load_element(params.weight,
                                               head * params.weight_head_stride +
                                                   (first_feature + f) * params.weight_out_stride +
                                                   (first + input) * params.weight_in_stride,
                                               params.element)
                                : 0.0f;
    }
    __syncthreads();
#pragma unroll
    for (int input = 0; input < kInputs; ++input)
#pragma unroll
      for (int i = 0; i < kSide; ++i)
#pragma unroll
        for (int j = 0; j < kSide; ++j)
          accumulators[i][j] = fmaf(x[input][token + i * kAcrossTokens],
                                    weights[input][feature + j * kAcrossFeatures], accumulators[i][j]);
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < kSide; ++i)
#pragma unroll
    for (int j = 0; j < kSide; ++j) {
      const int t = first_token + token + i * kAcrossTokens;
      const int f = first_feature + feature + j * kAcrossFeatures;
      if (t < params.num_tokens && f < params.out_features)
        store_element(params.out.data, t * params.out.token_stride + head * params.out.head_stride + f,
                      params.element, accumulators[i][j]);
    }
}

}  // namespace

void launch_head_linear(const HeadLinearParams& params, void* stream) {
  const auto tiles = [](int count, int tile) { return static_cast<unsigned>((count + tile - 1) / tile); };
  launch_dependent<HeadLinearParams>(
      head_linear_kernel,
      dim3(tiles(params.num_tokens, kTokens), tiles(params.out_features, kFeatures),
           static_cast<unsigned>(params.num_heads)),
      kThreads, 0, stream, params, "head_linear");
}

}  // namespace attend::kernels::cuda
