// Merges partial results of attention by their LSE, in float32.
//
//   tile        1 token and head per warp
//   warps       4, all alike
//   registers   32
//   shared      none
//   bytes       the partial results once, their LSEs from L1
//   bound       memory
#include "attend/kernels/attention/cuda/common/merge_kernel.h"
#include "attend/kernels/common/cuda/element.cuh"
#include "attend/tensor/cuda_check.h"

namespace attend::kernels::cuda {
namespace {

constexpr int kWarps = 4;

__device__ float load_lse(const MergeParams& params, int partial, int token, int head) {
  const MergePartial& first = params.partials[params.strided ? 0 : partial];
  const int64_t skipped = params.strided ? partial * params.lse_partial_stride : 0;
  const float lse = first.lse[skipped + token * first.lse_token_stride + head * first.lse_head_stride];
  // FlashAttention marks empty rows with +inf.
  return isinf(lse) ? -INFINITY : lse;
}

// One warp per token and head.
__global__ void __launch_bounds__(32 * kWarps) merge_kernel(const __grid_constant__ MergeParams params) {
  const int64_t row = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const int token = static_cast<int>(row / params.num_heads), head = static_cast<int>(row % params.num_heads);
  if (token >= params.num_tokens) return;
  float max_lse = -INFINITY;
  for (int partial = 0; partial < params.num_partials; ++partial)
    max_lse = fmaxf(max_lse, load_lse(params, partial, token, head));
  float sum = 0.0f;
  if (max_lse != -INFINITY)
    for (int partial = 0; partial < params.num_partials; ++partial)
      sum += expf(load_lse(params, partial, token, head) - max_lse);
  float denominator = sum;
  if (sum > 0.0f && params.sinks != nullptr) denominator += expf(params.sinks[head] - max_lse);
  for (int d = lane; d < params.head_dim; d += 32) {
    float total = 0.0f;
    for (int partial = 0; partial < params.num_partials && sum > 0.0f; ++partial) {
      const float scale = expf(load_lse(params, partial, token, head) - max_lse);
      // The output of an empty partial result is not read: it may have any content.
      if (scale == 0.0f) continue;
      const MergePartial& first = params.partials[params.strided ? 0 : partial];
      const int64_t skipped = params.strided ? partial * params.out_partial_stride : 0;
      total +=
          scale * load_element(first.out.data,
                               skipped + token * first.out.token_stride + head * first.out.head_stride + d,
                               first.element);
    }
    store_element(params.out.data, token * params.out.token_stride + head * params.out.head_stride + d,
                  params.out_element, sum > 0.0f ? total / denominator : 0.0f);
  }
  // The output LSE may be one of the inputs: it is written after all lanes have read it.
  __syncwarp();
  if (lane == 0 && params.lse != nullptr)
    params.lse[token * params.lse_token_stride + head * params.lse_head_stride] =
        sum > 0.0f ? max_lse + logf(sum) : -INFINITY;
}

}  // namespace

void launch_merge(const MergeParams& params, void* stream) {
  const int64_t num_rows = int64_t{params.num_tokens} * params.num_heads;
  if (num_rows == 0) return;
  const auto num_ctas = static_cast<unsigned>((num_rows + kWarps - 1) / kWarps);
  merge_kernel<<<num_ctas, 32 * kWarps, 0, static_cast<cudaStream_t>(stream)>>>(params);
  attend::cuda::check(cudaGetLastError(), "merge");
}

}  // namespace attend::kernels::cuda
