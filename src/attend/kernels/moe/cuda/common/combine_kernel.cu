// Weighted sum of the outputs of a token's experts.
//
//   tile        one token per CTA
//   warps       8, all alike: a thread has groups of eight features, or every 256th feature
//   registers   few
//   shared      none
//   bytes       top_k rows read, and the sum written
//   bound       reading the rows
#include "attend/kernels/common/cuda/element.cuh"
#include "attend/kernels/common/cuda/element_group.cuh"
#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/moe/cuda/common/moe_kernels.h"

namespace attend::kernels::cuda {
namespace {

constexpr int kThreads = 256;

// Output rows of a token's experts, and their weights.
class TokenExperts {
 public:
  __device__ TokenExperts(const CombineParams& params, int64_t token)
      : pair_row_(params.pair_row),
        weights_(params.weights != nullptr ? params.weights + token * params.top_k : nullptr),
        first_pair_(token * params.top_k) {}

  // `rank`: index among the token's experts.
  __device__ int64_t row(int rank) const {
    return pair_row_ != nullptr ? pair_row_[first_pair_ + rank] : first_pair_ + rank;
  }
  __device__ float weight(int rank) const { return weights_ != nullptr ? weights_[rank] : 1.0f; }

 private:
  const int32_t* const pair_row_;
  const float* const weights_;
  const int64_t first_pair_;
};

__global__ void __launch_bounds__(kThreads) combine_kernel(const __grid_constant__ CombineParams params) {
  ptx::griddepcontrol_wait();
  ptx::launch_dependents();
  const int64_t token = blockIdx.x;
  const TokenExperts experts(params, token);
  for (int i = static_cast<int>(threadIdx.x); i < params.hidden_size; i += kThreads) {
    float sum = 0.0f;
    for (int rank = 0; rank < params.top_k; ++rank)
      sum = fmaf(experts.weight(rank),
                 load_element(params.rows, experts.row(rank) * params.hidden_size + i, params.element), sum);
    const int64_t to = token * params.hidden_size + i;
    if (params.accumulate) sum += load_element(params.out, to, params.element);
    store_element(params.out, to, params.element, sum);
  }
}

// Like combine_kernel, for 16-bit elements, eight at a time.
template <class T>
__global__ void __launch_bounds__(kThreads)
    combine_groups_kernel(const __grid_constant__ CombineParams params) {
  ptx::griddepcontrol_wait();
  ptx::launch_dependents();
  const int64_t token = blockIdx.x;
  const TokenExperts experts(params, token);
  for (int first = static_cast<int>(threadIdx.x) * kGroupElements; first < params.hidden_size;
       first += kThreads * kGroupElements) {
    float sums[kGroupElements] = {}, values[kGroupElements];
#pragma unroll 4
    for (int rank = 0; rank < params.top_k; ++rank) {
      const float weight = experts.weight(rank);
      convert_16_bit_group<T>(*reinterpret_cast<const uint4*>(static_cast<const T*>(params.rows) +
                                                              experts.row(rank) * params.hidden_size + first),
                              values);
#pragma unroll
      for (int i = 0; i < kGroupElements; ++i) sums[i] = fmaf(weight, values[i], sums[i]);
    }
    T* const to = static_cast<T*>(params.out) + token * params.hidden_size + first;
    if (params.accumulate) {
      convert_16_bit_group<T>(*reinterpret_cast<const uint4*>(to), values);
#pragma unroll
      for (int i = 0; i < kGroupElements; ++i) sums[i] += values[i];
    }
    store_16_bit_group(to, sums);
  }
}

}  // namespace

void launch_combine(const CombineParams& params, void* stream) {
  auto* kernel = combine_kernel;
  if (params.aligned && params.element == Element::kBF16) kernel = combine_groups_kernel<__nv_bfloat16>;
  if (params.aligned && params.element == Element::kF16) kernel = combine_groups_kernel<__half>;
  launch_dependent<CombineParams>(kernel, dim3(static_cast<unsigned>(params.num_tokens)), kThreads, 0, stream,
                                  params, "moe_experts: combine");
}

}  // namespace attend::kernels::cuda
