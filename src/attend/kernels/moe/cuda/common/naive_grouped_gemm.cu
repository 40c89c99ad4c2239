// Naive grouped GEMM: the products of experts in float32 on the CUDA cores, for any dtype and alignment.
//
//   tile        32 rows of one expert x 32 outputs, K-blocks of 16; gated: gate and up of each output
//   warps       8, all alike: a thread has 2 x 2 outputs, 16 rows and 16 outputs apart
//   registers   few
//   shared      6.3 KB: one K-block of x, of gate's weights and of up's as float32, transposed
//   bytes       of a K-block: 32 x 16 elements each
//   bound       shared memory and FMAs: it is the fallback
#include "attend/kernels/common/cuda/element.cuh"
#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/moe/cuda/common/grouped_tile.cuh"

namespace attend::kernels::cuda {
namespace {

constexpr int kTile = kNaiveTileRows;  // rows, and outputs, of a CTA
constexpr int kSide = 2;               // rows, and outputs, of a thread
constexpr int kThreadsAcross = kTile / kSide;
constexpr int kThreads = kThreadsAcross * kThreadsAcross;
constexpr int kBlockInputs = 16;  // of a K-block

struct NaiveGroupedParams {
  GroupedGemmParams product;
  Element element;
};

using TransposedTile = float[kBlockInputs][kTile + 1];

// kTile rows of kBlockInputs elements from input `first`, transposed; zeros where there are none.
// element_of_row(row) is where a row of the tile begins; below 0: nowhere.
template <class ElementOfRow>
__device__ void load_tile(const void* from, int first, int in_features, Element element,
                          const ElementOfRow& element_of_row, TransposedTile& tile) {
  for (int i = static_cast<int>(threadIdx.x); i < kTile * kBlockInputs; i += kThreads) {
    const int row = i / kBlockInputs, input = i % kBlockInputs;
    const int64_t begin = element_of_row(row);
    const bool given = begin >= 0 && first + input < in_features;
    tile[input][row] = given ? load_element(from, begin + first + input, element) : 0.0f;
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
  const int64_t in_features = params.in_features;
  const int64_t expert_begin = int64_t{tile.expert} * num_halves * params.out_features * in_features;
  const auto x_row = [&](int i) {
    const int row = tile.first_row + i;
    if (row >= tile.end_row) return int64_t{-1};
    return (params.token_of_row != nullptr ? params.token_of_row[row] : row) * params.x_stride;
  };
  const int row = static_cast<int>(threadIdx.x) / kThreadsAcross,
            output = static_cast<int>(threadIdx.x) % kThreadsAcross;
  float sums[2][kSide][kSide] = {};
  for (int first = 0; first < params.in_features; first += kBlockInputs) {
    load_tile(params.x, first, params.in_features, naive.element, x_row, x);
    for (int half = 0; half < num_halves; ++half)
      load_tile(
          params.weight, first, params.in_features, naive.element,
          [&](int i) {
            if (first_output + i >= params.out_features) return int64_t{-1};
            return expert_begin + (int64_t{half} * params.out_features + first_output + i) * in_features;
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
      const float value = params.gated ? silu_times(sums[0][i][j], sums[1][i][j]) : sums[0][i][j];
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
