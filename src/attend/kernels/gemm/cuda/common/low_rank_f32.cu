// Low-rank adapters in float32, without tensor cores. The same walk, K-blocks and rows of A x as sm80/.
//
//   shrink      a warp multiplies a token by a row of A: lanes take inputs in turn, sums are added in a tree
//   expand      A x of up to 16 tokens in shared memory; a thread multiplies them by a row of B
#include "attend/kernels/common/cuda/element.cuh"
#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/gemm/cuda/common/low_rank_step.cuh"

namespace attend::kernels::cuda {
namespace {

__device__ void shrink(const LowRankShrinkParams& params, const LowRankHeader& header,
                       const ShrinkItem& item) {
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int first_k = item.k_block * kLowRankBlockK,
            end_k = min(params.in_features, first_k + kLowRankBlockK);
  for (int pair = warp; pair < item.segment.count * item.layer.rank; pair += kLowRankThreads / 32) {
    const int row = pair / item.layer.rank, column = pair % item.layer.rank;
    const float* const x = static_cast<const float*>(params.x) +
                           params.arrays.tokens[item.segment.first + row] * params.x_stride;
    const float* const a =
        static_cast<const float*>(item.layer.a) + static_cast<int64_t>(column) * item.layer.in_stride;
    float sum = 0.0f;
    for (int k = first_k + lane; k < end_k; k += 32) sum += x[k] * a[k];
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
    if (lane == 0)
      product_row(header, item.segment,
                  row)[kRowHeader + static_cast<int64_t>(item.k_block) * item.layer.rank + column] = sum;
  }
  if (params.partial_squares != nullptr && item.k_block == 0 && item.layer.rank > 0)
    write_norm_factors(params, header, item.segment);
}

__global__ void __launch_bounds__(kLowRankThreads)
    low_rank_shrink_f32_kernel(const __grid_constant__ LowRankShrinkParams params) {
  ptx::griddepcontrol_wait();
  ptx::launch_dependents();
  const LowRankHeader header = *params.arrays.header;
  const int num_k_blocks = num_low_rank_blocks(params.in_features);
  for (int i = static_cast<int>(blockIdx.x); i < header.num_segments * num_k_blocks;
       i += static_cast<int>(gridDim.x)) {
    ShrinkItem item = shrink_item(params, i, num_k_blocks);
    load_layer(params, item);
    shrink(params, header, item);
  }
}

constexpr int kRows = 16;

__device__ void expand(const LowRankExpandParams& params, const LowRankHeader& header,
                       const LowRankSegment& segment, const LowRankLayer& layer, const ExpandItem& item,
                       float (&products)[kRows][kMaxAdapterRank]) {
  const int rank = item.term.rank, num_vectors = rank / 4;
  for (int first = 0; first < segment.count; first += kRows) {
    const int num_rows = min(kRows, segment.count - first);
    for (int i = static_cast<int>(threadIdx.x); i < num_rows * num_vectors; i += kLowRankThreads)
      *reinterpret_cast<float4*>(&products[i / num_vectors][i % num_vectors * 4]) = scaled_product(
          params, header, segment, layer, item.term, first + i / num_vectors, i % num_vectors * 4);
    __syncthreads();
    for (int out = item.begin + static_cast<int>(threadIdx.x); out < item.end; out += kLowRankThreads) {
      const float* const b = static_cast<const float*>(item.term.b) + static_cast<int64_t>(out) * rank;
      float sums[kRows] = {};
      for (int k = 0; k < rank; ++k)
#pragma unroll
        for (int row = 0; row < kRows; ++row)
          if (row < num_rows) sums[row] += products[row][k] * b[k];
#pragma unroll
      for (int row = 0; row < kRows; ++row) {
        if (row >= num_rows) break;
        const int64_t to =
            params.arrays.tokens[segment.first + first + row] * params.out_stride + item.term.first_out + out;
        store_element(params.out, to, params.out_element,
                      load_element(params.out, to, params.out_element) + sums[row]);
      }
    }
    __syncthreads();
  }
}

__global__ void __launch_bounds__(kLowRankThreads)
    low_rank_expand_f32_kernel(const __grid_constant__ LowRankExpandParams params) {
  __shared__ alignas(16) float products[kRows][kMaxAdapterRank];
  ptx::griddepcontrol_wait();
  ptx::launch_dependents();
  const LowRankHeader header = *params.arrays.header;
  for (int i = static_cast<int>(blockIdx.y); i < header.num_segments; i += static_cast<int>(gridDim.y)) {
    const LowRankSegment segment = params.arrays.segments[i];
    const LowRankLayerEntry* const entry = find_entry(segment, params.adapter_index);
    for (int part = static_cast<int>(blockIdx.x);; part += static_cast<int>(gridDim.x)) {
      const ExpandItem item = expand_item(entry, part, params.cta_outs);
      if (item.end == 0) break;
      expand(params, header, segment, entry->layer, item, products);
    }
  }
}

}  // namespace

void launch_low_rank_shrink_f32(const LowRankShrinkParams& params, int num_ctas, void* stream) {
  launch_dependent<LowRankShrinkParams>(low_rank_shrink_f32_kernel, dim3(static_cast<unsigned>(num_ctas)),
                                        kLowRankThreads, 0, stream, params, "shrink_low_rank");
}

void launch_low_rank_expand_f32(const LowRankExpandParams& params, int grid_x, int grid_y, void* stream) {
  launch_dependent<LowRankExpandParams>(low_rank_expand_f32_kernel,
                                        dim3(static_cast<unsigned>(grid_x), static_cast<unsigned>(grid_y)),
                                        kLowRankThreads, 0, stream, params, "expand_low_rank");
}

}  // namespace attend::kernels::cuda
