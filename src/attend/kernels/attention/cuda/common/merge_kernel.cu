#include "attend/kernels/attention/cuda/common/merge_kernel.h"
#include "attend/kernels/common/cuda/element.cuh"
#include "attend/tensor/cuda_check.h"

namespace attend::kernels::cuda {
namespace {

constexpr int kWarps = 4;

__device__ float lse_of(const MergeParams& params, int part, int token, int head) {
  const MergePart& first = params.parts[params.strided ? 0 : part];
  const int64_t skipped = params.strided ? part * params.lse_part_stride : 0;
  const float lse = first.lse[skipped + token * first.lse_token_stride + head * first.lse_head_stride];
  // FlashAttention marks empty rows with +inf.
  return isinf(lse) ? -INFINITY : lse;
}

// A warp per token and head.
__global__ void __launch_bounds__(32 * kWarps) merge_kernel(const __grid_constant__ MergeParams params) {
  const int64_t row = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const int token = static_cast<int>(row / params.num_heads), head = static_cast<int>(row % params.num_heads);
  if (token >= params.num_tokens) return;
  float largest = -INFINITY;
  for (int part = 0; part < params.num_parts; ++part)
    largest = fmaxf(largest, lse_of(params, part, token, head));
  float sum = 0.0f;
  if (largest != -INFINITY)
    for (int part = 0; part < params.num_parts; ++part)
      sum += expf(lse_of(params, part, token, head) - largest);
  float denominator = sum;
  if (sum > 0.0f && params.sinks != nullptr) denominator += expf(params.sinks[head] - largest);
  for (int d = lane; d < params.head_dim; d += 32) {
    float total = 0.0f;
    for (int part = 0; part < params.num_parts && sum > 0.0f; ++part) {
      const float weight = expf(lse_of(params, part, token, head) - largest);
      // An empty part's output is not read: it may be anything.
      if (weight == 0.0f) continue;
      const MergePart& first = params.parts[params.strided ? 0 : part];
      const int64_t skipped = params.strided ? part * params.out_part_stride : 0;
      total +=
          weight * load_element(first.out.data,
                                skipped + token * first.out.token_stride + head * first.out.head_stride + d,
                                first.element);
    }
    store_element(params.out.data, token * params.out.token_stride + head * params.out.head_stride + d,
                  params.out_element, sum > 0.0f ? total / denominator : 0.0f);
  }
  // The LSE may be one that is merged: it is written after all lanes have read it.
  __syncwarp();
  if (lane == 0 && params.lse != nullptr)
    params.lse[token * params.lse_token_stride + head * params.lse_head_stride] =
        sum > 0.0f ? largest + logf(sum) : -INFINITY;
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
