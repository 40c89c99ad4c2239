// Naive GEMM: out = x W^T in float32 on the CUDA cores, for any dtype, format, stride and alignment.
//
//   tile        64 rows x 64 features, K-blocks of 16
//   warps       8, all alike: a thread has 4 x 4 outputs, with strides of 16 rows and 16 features
//   registers   48
//   shared      8.1 KB: one K-block of x and of W as float32, transposed
//   bytes       per K-block: 64 x 16 elements each of x and W
//   bound       shared memory and FMAs; this is the fallback
#include "attend/kernels/common/cuda/element.cuh"
#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/gemm/cuda/common/batch_invariant_gemm_kernel.h"
#include "attend/kernels/gemm/cuda/common/load_weight.cuh"

namespace attend::kernels::cuda {
namespace {

constexpr int kTile = 64;  // rows, and features, per CTA
constexpr int kSide = 4;   // rows, and features, per thread
constexpr int kThreadsAcross = kTile / kSide;
constexpr int kThreads = kThreadsAcross * kThreadsAcross;
constexpr int kBlockInputs = 16;  // per K-block

// Loads kTile rows of kBlockInputs columns from `first`, transposed and padded with zeros. value(row, column)
// loads an element.
template <class Value>
__device__ void load_tile(int first_row, int num_rows, int first, int num_columns, const Value& value,
                          float (&tile)[kBlockInputs][kTile + 1]) {
  for (int i = static_cast<int>(threadIdx.x); i < kTile * kBlockInputs; i += kThreads) {
    const int row = first_row + i / kBlockInputs, column = first + i % kBlockInputs;
    tile[i % kBlockInputs][i / kBlockInputs] =
        row < num_rows && column < num_columns ? value(row, column) : 0.0f;
  }
}

__global__ void __launch_bounds__(kThreads) naive_gemm_kernel(const __grid_constant__ NaiveGemmParams naive) {
  __shared__ float x[kBlockInputs][kTile + 1], weights[kBlockInputs][kTile + 1];
  const BatchInvariantGemmParams& params = naive.product;
  const int first_row = static_cast<int>(blockIdx.x) * kTile,
            first_feature = static_cast<int>(blockIdx.y) * kTile;
  const int row = static_cast<int>(threadIdx.x) / kThreadsAcross,
            feature = static_cast<int>(threadIdx.x) % kThreadsAcross;
  ptx::griddepcontrol_wait();
  ptx::launch_dependents();
  const auto x_value = [&](int64_t x_row, int column) {
    const int input = naive.weight.input_order != nullptr ? naive.weight.input_order[column] : column;
    return load_element(params.x, x_row * params.x_stride + input, naive.element);
  };
  const auto weight_value = [&](int64_t weight_row, int column) {
    return load_weight(naive.weight, weight_row, column);
  };
  float accumulators[kSide][kSide] = {};
  for (int first = 0; first < params.in_features; first += kBlockInputs) {
    load_tile(first_row, params.num_rows, first, params.in_features, x_value, x);
    load_tile(first_feature, params.out_features, first, params.in_features, weight_value, weights);
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

void launch_naive_gemm(const NaiveGemmParams& params, void* stream) {
  const auto tiles = [](int count) { return static_cast<unsigned>((count + kTile - 1) / kTile); };
  launch_dependent<NaiveGemmParams>(naive_gemm_kernel,
                                    dim3(tiles(params.product.num_rows), tiles(params.product.out_features)),
                                    kThreads, 0, stream, params, "linear");
}

}  // namespace attend::kernels::cuda
