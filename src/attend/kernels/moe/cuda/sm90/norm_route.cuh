// Before the experts of few tokens: RMSNorm, the router's logits and the choice of experts, by one cluster.
//
//   tile        all tokens, up to 32, x 16 experts a CTA
//   warps       16, all alike: they share the tokens' norms, then K (sliced-K, mma.m16n8k16, the router is
//   the
//               left factor); in the cluster's first CTA a warp chooses for a token
//   registers   the router's weights, asked for before the kernel before has ended
//   shared      the normalized rows, and partial sums
//   bytes       the router once; x once a CTA
//   bound       latency: what would be four launches
#pragma once

#include "attend/kernels/common/cuda/element.cuh"
#include "attend/kernels/common/cuda/element_group.cuh"
#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/common/cuda/ptx/cluster.cuh"
#include "attend/kernels/common/cuda/ptx/copy.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/common/cuda/ptx/mma.cuh"
#include "attend/kernels/moe/cuda/common/route_token.cuh"
#include "attend/kernels/moe/cuda/sm90/norm_route_kernel.h"

namespace attend::kernels::cuda::sm90 {

// kRowPieces: of eight tokens.
template <class T, int kRowPieces>
class NormRouteCta {
  static constexpr int kWarps = kNormRouteWarps, kThreads = 32 * kWarps, kRows = 8 * kRowPieces;
  static constexpr int kPieces = kNormRouteInputs / 8;  // of 16 bytes, of a K-block's row
  static constexpr int kMaxBlocks = kMaxNormRouteInputs / kNormRouteInputs / kWarps;  // of a warp
  static constexpr int kSums = kNormRouteExperts * kRows;                             // of a warp

 public:
  __device__ NormRouteCta(const NormRouteParams& params, char* shared)
      : params_(params),
        rank_(ptx::cluster_rank()),
        num_blocks_(params.in_features / kNormRouteInputs),
        row_bytes_(2 * params.in_features + 16),
        rows_(shared),
        sums_(reinterpret_cast<float*>(shared + kRows * row_bytes_)),
        squares_(sums_ + kWarps * kSums),
        logits_(squares_ + kWarps * kRows) {}

  __device__ __forceinline__ void run() {
    ptx::cluster_arrive_relaxed();
    uint4 router[kMaxBlocks][2];
    load_router(router);
    ptx::griddepcontrol_wait();
    ptx::launch_dependents();
    normalize();
    multiply(router);
    // The CTA that gets the logits has started.
    ptx::cluster_wait();
    send_logits();
    __syncwarp();  // lanes without a token did not go through it
    ptx::cluster_arrive();
    ptx::cluster_wait();
    if (rank_ != 0) return;
    constexpr int kFewOfLane = kMaxNormRouteCluster * kNormRouteExperts / kRouteLanes;
    for (int token = warp(); token < params_.route.num_tokens; token += kWarps)
      route_token<kFewOfLane>(params_.route, logits_ + token * params_.route.num_experts, token, lane());
  }

 private:
  __device__ static int warp() { return static_cast<int>(threadIdx.x) / 32; }
  __device__ static int lane() { return static_cast<int>(threadIdx.x) % 32; }

  // K-blocks warp, warp + kWarps, ...: 16 bytes of experts lane / 4 and that eight below.
  __device__ __forceinline__ void load_router(uint4 (&router)[kMaxBlocks][2]) const {
    const int64_t first = int64_t{rank_ * kNormRouteExperts + lane() / 4} * params_.in_features;
    const T* const from = static_cast<const T*>(params_.router) + first + lane() % 4 * 8;
#pragma unroll
    for (int i = 0; i < kMaxBlocks; ++i) {
      const int block = warp() + i * kWarps;
      if (block >= num_blocks_) break;
#pragma unroll
      for (int half = 0; half < 2; ++half)
        router[i][half] = __ldg(reinterpret_cast<const uint4*>(
            from + half * 8 * int64_t{params_.in_features} + block * kNormRouteInputs));
    }
  }

  // Every warp has a part of one token's row, and of every so many tokens' behind it.
  __device__ __forceinline__ void normalize() const {
    const int num_tokens = params_.route.num_tokens;
    int warps_of_token = kWarps;
    while (warps_of_token > 1 && kWarps / warps_of_token < num_tokens) warps_of_token /= 2;
    const int part = warp() % warps_of_token, first = warp() / warps_of_token,
              tokens_at_once = kWarps / warps_of_token;
    const int num_groups = params_.in_features / kGroupElements, step = 32 * warps_of_token;
    const auto* const x = static_cast<const uint4*>(params_.x);
    for (int token = first; token < num_tokens; token += tokens_at_once) {
      float sum = 0.0f;
#pragma unroll 4
      for (int g = part * 32 + lane(); g < num_groups; g += step) {
        const uint4 bits = x[int64_t{token} * num_groups + g];
        float group[kGroupElements];
        convert_16_bit_group<T>(bits, group);
#pragma unroll
        for (int i = 0; i < kGroupElements; ++i) sum = fmaf(group[i], group[i], sum);
        *row_group(token, g) = bits;
      }
      sum = sum_of_warp(sum);
      if (lane() == 0) squares_[token * kWarps + part] = sum;
    }
    __syncthreads();
    for (int token = first; token < num_tokens; token += tokens_at_once) {
      float sum = 0.0f;
      for (int i = 0; i < warps_of_token; ++i) sum += squares_[token * kWarps + i];
      const float scale = 1.0f / sqrtf(sum / static_cast<float>(params_.in_features) + params_.norm_eps);
      const bool own = token % ptx::cluster_size() == rank_;
#pragma unroll 4
      for (int g = part * 32 + lane(); g < num_groups; g += step) {
        float group[kGroupElements], weights[kGroupElements];
        convert_16_bit_group<T>(*row_group(token, g), group);
        convert_16_bit_group<T>(__ldg(static_cast<const uint4*>(params_.norm) + g), weights);
#pragma unroll
        for (int i = 0; i < kGroupElements; ++i) group[i] *= scale * weights[i];
        store_16_bit_group(reinterpret_cast<T*>(row_group(token, g)), group);
        if (own)
          static_cast<uint4*>(params_.normalized)[int64_t{token} * num_groups + g] = *row_group(token, g);
      }
    }
    __syncthreads();
  }
  __device__ __forceinline__ uint4* row_group(int token, int g) const {
    return reinterpret_cast<uint4*>(rows_ + token * row_bytes_) + g;
  }

  // A lane's 16 bytes of a row are 8 inputs one after another, which the instruction takes in two steps: the
  // order of inputs within a K-block is the same on both sides. Rows of tokens that there are not are as they
  // are: their sums are theirs alone.
  __device__ __forceinline__ void multiply(const uint4 (&router)[kMaxBlocks][2]) const {
    float accumulators[kRowPieces][4] = {};
#pragma unroll
    for (int i = 0; i < kMaxBlocks; ++i) {
      const int block = warp() + i * kWarps;
      if (block >= num_blocks_) break;
      const uint4 low = router[i][0], high = router[i][1];
      const uint32_t even[4] = {low.x, high.x, low.y, high.y}, odd[4] = {low.z, high.z, low.w, high.w};
#pragma unroll
      for (int n = 0; n < kRowPieces; ++n) {
        const uint4 x = *row_group(n * 8 + lane() / 4, block * kPieces + lane() % 4);
        ptx::mma_m16n8k16(accumulators[n], even, x.x, x.y, T{});
        ptx::mma_m16n8k16(accumulators[n], odd, x.z, x.w, T{});
      }
    }
    // Lane l holds experts l / 4 and l / 4 + 8 of tokens 2 (l % 4) and the next.
    float* const to = sums_ + warp() * kSums;
#pragma unroll
    for (int n = 0; n < kRowPieces; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        to[(lane() / 4 + i / 2 * 8) * kRows + n * 8 + 2 * (lane() % 4) + i % 2] = accumulators[n][i];
    __syncthreads();
  }

  // Sums over the warps, in their order, to the first CTA.
  __device__ __forceinline__ void send_logits() const {
    const uint32_t to = ptx::mapa(ptx::shared_address(logits_), 0);
    for (int i = static_cast<int>(threadIdx.x); i < kSums; i += kThreads) {
      const int own_expert = i / kRows, token = i % kRows;
      if (token >= params_.route.num_tokens) continue;
      float sum = 0.0f;
#pragma unroll
      for (int w = 0; w < kWarps; ++w) sum += sums_[w * kSums + i];
      const int expert = rank_ * kNormRouteExperts + own_expert;
      if (const DeviceVector& bias = params_.bias; bias.data != nullptr)
        sum += load_element(bias.data, expert, bias.element);
      ptx::st_shared_cluster(to + 4 * static_cast<uint32_t>(token * params_.route.num_experts + expert), sum);
    }
  }

  const NormRouteParams& params_;
  const int rank_, num_blocks_, row_bytes_;
  char* const rows_;
  float* const sums_;     // [warps, experts, tokens]
  float* const squares_;  // [tokens, warps]
  float* const logits_;   // [tokens, experts of all CTAs], in the first CTA
};

template <class T, int kRowPieces>
__global__ void __launch_bounds__(32 * kNormRouteWarps, 1)
    norm_route_kernel(const __grid_constant__ NormRouteParams params) {
  extern __shared__ __align__(128) char shared[];
  NormRouteCta<T, kRowPieces>(params, shared).run();
}

template <class T, int kRowPieces>
void launch_norm_route_instance(const NormRouteParams& params, void* stream) {
  constexpr auto kKernel = norm_route_kernel<T, kRowPieces>;
  constexpr int kMaxSharedBytes = 227 << 10;
  allow_shared_memory<kKernel>(kMaxSharedBytes, "norm_route: shared memory");
  const int num_ctas = params.route.num_experts / kNormRouteExperts;
  launch_dependent<NormRouteParams>(
      kKernel, dim3(static_cast<unsigned>(num_ctas)), 32 * kNormRouteWarps,
      static_cast<size_t>(
          norm_route_shared_bytes(params.route.num_tokens, params.in_features, params.route.num_experts)),
      stream, params, "norm_route", num_ctas);
}

template <class T>
void launch_norm_route(const NormRouteParams& params, void* stream) {
  switch (norm_route_row_pieces(params.route.num_tokens)) {
    case 1:
      return launch_norm_route_instance<T, 1>(params, stream);
    case 2:
      return launch_norm_route_instance<T, 2>(params, stream);
    default:
      return launch_norm_route_instance<T, 4>(params, stream);
  }
}

}  // namespace attend::kernels::cuda::sm90
