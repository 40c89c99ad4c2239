// Gate of a shared expert: the product of a token's row with one row of weights, and its sigmoid as the
// factor of the expert's activations.
//
//   tile        4 tokens per CTA, one per warp
//   warps       4, all alike; a lane has every 32nd group of eight elements
//   registers   32 at most
//   shared      none
//   bytes       x and the activations once; the weights from L1
//   bound       memory; latency if tokens are few
//
// The order of the sum depends on in_features only, so a token's bits do not depend on other tokens.
#include "attend/kernels/common/cuda/element_group.cuh"
#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/moe/cuda/common/moe_kernels.h"
#include "attend/kernels/moe/cuda/common/route_token.cuh"

namespace attend::kernels::cuda {
namespace {

constexpr int kWarps = 4;

template <class T>
__global__ void __launch_bounds__(32 * kWarps)
    shared_gate_kernel(const __grid_constant__ SharedGateParams params) {
  ptx::griddepcontrol_wait();
  ptx::launch_dependents();
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t token = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  if (token >= params.num_tokens) return;
  const T* const x = static_cast<const T*>(params.x) + token * params.x_stride;
  const T* const weight = static_cast<const T*>(params.weight);
  float sum = 0.0f, values[kGroupElements], weights[kGroupElements];
#pragma unroll 4
  for (int first = lane * kGroupElements; first < params.in_features; first += 32 * kGroupElements) {
    load_16_bit_group(x + first, values);
    load_16_bit_group(weight + first, weights);
#pragma unroll
    for (int i = 0; i < kGroupElements; ++i) sum = fmaf(values[i], weights[i], sum);
  }
  sum = warp_sum(sum);
  if (lane == 0) params.out[token] = sum;
  if (params.inner == nullptr) return;
  const float factor = sigmoid(sum);
  T* const inner = static_cast<T*>(params.inner) + token * params.inner_stride;
#pragma unroll 2
  for (int first = lane * kGroupElements; first < params.inner_features; first += 32 * kGroupElements) {
    load_16_bit_group(inner + first, values);
#pragma unroll
    for (int i = 0; i < kGroupElements; ++i) values[i] *= factor;
    store_16_bit_group(inner + first, values);
  }
}

}  // namespace

void launch_shared_gate(const SharedGateParams& params, void* stream) {
  launch_dependent<SharedGateParams>(
      params.element == Element::kBF16 ? shared_gate_kernel<__nv_bfloat16> : shared_gate_kernel<__half>,
      dim3(static_cast<unsigned>((params.num_tokens + kWarps - 1) / kWarps)), 32 * kWarps, 0, stream, params,
      "shared_gate");
}

}  // namespace attend::kernels::cuda
