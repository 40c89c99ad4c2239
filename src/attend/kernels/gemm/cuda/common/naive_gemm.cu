// Naive GEMM: out = x W^T in float32 on the CUDA cores, for any dtype, stride and alignment.
//
//   tile        64 rows x 64 features, K-blocks of 16
//   warps       8, all alike: a thread has 4 x 4 outputs, 16 rows and 16 features apart
//   registers   48
//   shared      8.1 KB: one K-block of x and of W as float32, transposed
//   bytes       of a K-block: 64 x 16 elements each of x and W
//   bound       shared memory and FMAs: it is the fallback
#include "attend/kernels/common/cuda/element.cuh"
#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/gemm/cuda/common/batch_invariant_gemm_kernel.h"

namespace attend::kernels::cuda {
namespace {

constexpr int kTile = 64;  // rows, and features, of a CTA
constexpr int kSide = 4;   // rows, and features, of a thread
constexpr int kThreadsAcross = kTile / kSide;
constexpr int kThreads = kThreadsAcross * kThreadsAcross;
constexpr int kBlockInputs = 16;  // of a K-block

// kTile rows of kBlockInputs elements from input `first`, transposed; zeros where there are none.
__device__ void load_tile(const void* from, int64_t row_stride, int first_row, int num_rows, int first,
                          int in_features, Element element, float (&tile)[kBlockInputs][kTile + 1]) {
  for (int i = static_cast<int>(threadIdx.x); i < kTile * kBlockInputs; i += kThreads) {
    const int row = i / kBlockInputs, input = i % kBlockInputs;
    const bool given = first_row + row < num_rows && first + input < in_features;
    tile[input][row] =
        given ? load_element(from, (first_row + row) * row_stride + first + input, element) : 0.0f;
  }
}

struct NaiveGemmParams {
  BatchInvariantGemmParams product;
  Element element;
};

__global__ void __launch_bounds__(kThreads) naive_gemm_kernel(const __grid_constant__ NaiveGemmParams naive) {
  __shared__ float x[kBlockInputs][kTile + 1], weights[kBlockInputs][kTile + 1];
  const BatchInvariantGemmParams& params = naive.product;
  const int first_row = static_cast<int>(blockIdx.x) * kTile,
            first_feature = static_cast<int>(blockIdx.y) * kTile;
  const int row = static_cast<int>(threadIdx.x) / kThreadsAcross,
            feature = static_cast<int>(threadIdx.x) % kThreadsAcross;
  ptx::griddepcontrol_wait();
  ptx::launch_dependents();
  float accumulators[kSide][kSide] = {};
  for (int first = 0; first < params.in_features; first += kBlockInputs) {
    load_tile(params.x, params.x_stride, first_row, params.num_rows, first, params.in_features, naive.element,
              x);
    load_tile(params.weight, params.in_features, first_feature, params.out_features, first,
              params.in_features, naive.element, weights);
    __syncthreads();
#pragma unroll
    for (int input = 0; input < kBlockInputs; ++input)
#pragma unroll
      for (int i = 0; i < kSide; ++i)
#pragma unroll
        for (int j = 0; j < kSide; ++j)
          accumulators[i][j] = fmaf(x[input][row + i * kThreadsAcross],
                                    weights[input][feature + j * kThreadsAcross], accumulators[i][j]);
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < kSide; ++i)
#pragma unroll
    for (int j = 0; j < kSide; ++j) {
      const int out_row = first_row + row + i * kThreadsAcross;
      const int out_feature = first_feature + feature + j * kThreadsAcross;
      if (out_row >= params.num_rows || out_feature >= params.out_features) continue;
      const int64_t to = out_row * params.out_stride + out_feature;
      float value = accumulators[i][j];
      if (params.bias.data != nullptr)
        value += load_element(params.bias.data, out_feature, params.bias.element);
      if (params.accumulate) value += load_element(params.out, to, params.out_element);
      store_element(params.out, to, params.out_element, value);
    }
}

}  // namespace

void launch_naive_gemm(const BatchInvariantGemmParams& params, Element element, void* stream) {
  const auto tiles = [](int count) { return static_cast<unsigned>((count + kTile - 1) / kTile); };
  launch_dependent<NaiveGemmParams>(naive_gemm_kernel,
                                    dim3(tiles(params.num_rows), tiles(params.out_features)), kThreads, 0,
                                    stream, {params, element}, "linear");
}

}  // namespace attend::kernels::cuda
