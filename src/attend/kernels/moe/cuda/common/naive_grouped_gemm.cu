// Naive grouped GEMM: products of experts in float32 on the CUDA cores, for any dtype, format and alignment.
//
//   tile        32 rows of one expert x 32 outputs, K-blocks of 16; if gated, gate and up of each output
//   warps       8, all alike: a thread has 2 x 2 outputs, with strides of 16 rows and 16 outputs
//   registers   few
//   shared      6.3 KB: one K-block of x, of gate weights and of up weights as float32, transposed
//   bytes       per K-block: 32 x 16 elements each
//   bound       shared memory and FMAs; this is the fallback
#include "attend/kernels/common/cuda/element.cuh"
#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/gemm/cuda/common/load_weight.cuh"
#include "attend/kernels/moe/cuda/common/grouped_tile.cuh"

namespace attend::kernels::cuda {
namespace {

constexpr int kTile = kNaiveTileRows;  // rows, and outputs, per CTA
constexpr int kSide = 2;               // rows, and outputs, per thread
constexpr int kThreadsAcross = kTile / kSide;
constexpr int kThreads = kThreadsAcross * kThreadsAcross;
constexpr int kBlockInputs = 16;  // per K-block

struct NaiveGroupedParams {
  GroupedGemmParams product;
  Element element;
};

using TransposedTile = float[kBlockInputs][kTile + 1];

// Loads kTile rows of kBlockInputs elements from input `first`, transposed and padded with zeros. value(row,
// input) loads an element of the tile; given(row) returns true if the row exists.
template <class Given, class Value>
__device__ void load_tile(int first, int in_features, const Given& given, const Value& value,
                          TransposedTile& tile) {
  for (int i = static_cast<int>(threadIdx.x); i < kTile * kBlockInputs; i += kThreads) {
    const int row = i / kBlockInputs, input = first + i % kBlockInputs;
    tile[i % kBlockInputs][row] = input < in_features && given(row) ? value(row, input) : 0.0f;
  }
}

__global__ void __launch_bounds__(kThreads)
    naive_grouped_gemm_kernel(const __grid_constant__ NaiveGroupedParams naive) {
  __shared__ TransposedTile x, weights[2];
  const GroupedGemmParams& params = naive.product;
  ptx::griddepcontrol_wait();
  ptx::launch_dependents();
  const GroupedTile tile = find_grouped_tile<kThreads, kTile>(params);
  if (tile.expert < 0) return;
  const int first_output = static_cast<int>(blockIdx.y) * kTile;
  const int num_halves = params.gated ? 2 : 1;
  const auto has_row = [&](int i) { return tile.first_row + i < tile.end_row; };
  const auto x_value = [&](int i, int input) {
    const int64_t row =
        params.row_token != nullptr ? params.row_token[tile.first_row + i] : tile.first_row + i;
    return load_element(params.x, row * params.x_stride + input, naive.element);
  };
  const auto has_output = [&](int i) { return first_output + i < params.out_features; };
  const int row = static_cast<int>(threadIdx.x) / kThreadsAcross,
            output = static_cast<int>(threadIdx.x) % kThreadsAcross;
  float sums[2][kSide][kSide] = {};
  for (int first = 0; first < params.in_features; first += kBlockInputs) {
    load_tile(first, params.in_features, has_row, x_value, x);
    for (int half = 0; half < num_halves; ++half)
      load_tile(
          first, params.in_features, has_output,
          [&](int i, int input) {
            return load_weight(params.weight, expert_weight_row(params, tile.expert, half, first_output + i),
                               input);
          },
          weights[half]);
    __syncthreads();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (half >= num_halves) break;
#pragma unroll
      for (int input = 0; input < kBlockInputs; ++input)
#pragma unroll
        for (int i = 0; i < kSide; ++i)
#pragma unroll
          for (int j = 0; j < kSide; ++j)
            sums[half][i][j] = fmaf(x[input][row + i * kThreadsAcross],
                                    weights[half][input][output + j * kThreadsAcross], sums[half][i][j]);
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < kSide; ++i)
#pragma unroll
    for (int j = 0; j < kSide; ++j) {
      const int out_row = tile.first_row + row + i * kThreadsAcross;
      const int feature = first_output + output + j * kThreadsAcross;
      if (out_row >= tile.end_row || feature >= params.out_features) continue;
      const float value = expert_output(params, tile.expert, out_row, feature, sums[0][i][j], sums[1][i][j]);
      store_element(params.out, int64_t{out_row} * params.out_features + feature, naive.element, value);
    }
}

}  // namespace

void launch_naive_grouped_gemm(const GroupedGemmParams& params, Element element, void* stream) {
  const dim3 grid(static_cast<unsigned>(params.num_tiles),
                  static_cast<unsigned>((params.out_features + kTile - 1) / kTile));
  launch_dependent<NaiveGroupedParams>(naive_grouped_gemm_kernel, grid, kThreads, 0, stream,
                                       {params, element}, "moe_experts");
}

}  // namespace attend::kernels::cuda
