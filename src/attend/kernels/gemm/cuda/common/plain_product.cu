#include "attend/kernels/common/cuda/element.cuh"
#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/gemm/cuda/common/row_tiles_kernel.h"

namespace attend::kernels::cuda {
namespace {

constexpr int kTile = 64;  // rows, and features, of a CTA
constexpr int kSide = 4;   // rows, and features, of a thread
constexpr int kThreadsAcross = kTile / kSide;
constexpr int kThreads = kThreadsAcross * kThreadsAcross;
constexpr int kInputs = 16;  // of one step

// kTile rows of kInputs elements from input `first`, transposed; zeros where there are none.
__device__ void load_tile(const void* from, int64_t row_stride, int first_row, int num_rows, int first,
                          int in_features, Element element, float (&tile)[kInputs][kTile + 1]) {
  for (int i = static_cast<int>(threadIdx.x); i < kTile * kInputs; i += kThreads) {
    const int row = i / kInputs, input = i % kInputs;
    const bool given = first_row + row < num_rows && first + input < in_features;
    tile[input][row] =
        given ? load_element(from, (first_row + row) * row_stride + first + input, element) : 0.0f;
  }
}

struct PlainProductParams {
  RowTilesParams product;
  Element element;
};

__global__ void __launch_bounds__(kThreads)
    plain_product_kernel(const __grid_constant__ PlainProductParams plain) {
  __shared__ float x[kInputs][kTile + 1], weights[kInputs][kTile + 1];
  const RowTilesParams& params = plain.product;
  const int first_row = static_cast<int>(blockIdx.x) * kTile,
            first_feature = static_cast<int>(blockIdx.y) * kTile;
  const int row = static_cast<int>(threadIdx.x) / kThreadsAcross,
            feature = static_cast<int>(threadIdx.x) % kThreadsAcross;
  ptx::wait_for_previous_kernel();
  ptx::allow_next_kernel();
  float sums[kSide][kSide] = {};
  for (int first = 0; first < params.in_features; first += kInputs) {
    load_tile(params.x, params.x_stride, first_row, params.num_rows, first, params.in_features, plain.element,
              x);
    load_tile(params.weight, params.in_features, first_feature, params.out_features, first,
              params.in_features, plain.element, weights);
    __syncthreads();
#pragma unroll
    for (int input = 0; input < kInputs; ++input)
#pragma unroll
      for (int i = 0; i < kSide; ++i)
#pragma unroll
        for (int j = 0; j < kSide; ++j)
          sums[i][j] = fmaf(x[input][row + i * kThreadsAcross], weights[input][feature + j * kThreadsAcross],
                            sums[i][j]);
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
      float value = sums[i][j];
      if (params.bias.data != nullptr)
        value += load_element(params.bias.data, out_feature, params.bias.element);
      if (params.accumulate) value += load_element(params.out, to, params.out_element);
      store_element(params.out, to, params.out_element, value);
    }
}

}  // namespace

void launch_plain_product(const RowTilesParams& params, Element element, void* stream) {
  const auto tiles = [](int count) { return static_cast<unsigned>((count + kTile - 1) / kTile); };
  launch_dependent<PlainProductParams>(plain_product_kernel,
                                       dim3(tiles(params.num_rows), tiles(params.out_features)), kThreads, 0,
                                       stream, {params, element}, "linear");
}

}  // namespace attend::kernels::cuda
