// RMSNorm, router logits and expert selection for few tokens in one launch, with one cluster per eight
// tokens.
//
//   tile        8 tokens x 16, 32 or 64 experts per CTA
//   warps       16, all alike: they share the tokens' norms, then K (sliced-K, mma.m16n8k16, the router is
//               operand A); in the cluster's first CTA, one warp per token selects its experts
//   registers   router weights, loaded before the previous kernel has finished: 64 KB of a CTA's, the rest is
//               prefetched to L2
//   shared      normalized rows, and partial sums
//   bytes       the router once per cluster, from L2 except for the first; x once per CTA
//   bound       latency: replaces four launches
#pragma once

#include <atomic>

#include "attend/kernels/common/cuda/element.cuh"
#include "attend/kernels/common/cuda/element_group.cuh"
#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/common/cuda/ptx/cluster.cuh"
#include "attend/kernels/common/cuda/ptx/copy.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/common/cuda/ptx/global_memory.cuh"
#include "attend/kernels/common/cuda/ptx/mma.cuh"
#include "attend/kernels/moe/cuda/common/late_bias.cuh"
#include "attend/kernels/moe/cuda/common/route_token.cuh"
#include "attend/kernels/moe/cuda/sm90/norm_route.h"

namespace attend::kernels::cuda::sm90 {

inline constexpr int kMaxNormRouteSharedBytes = 227 << 10;
inline constexpr int kMaxNormRouteBlocks =
    kMaxNormRouteInputs / kNormRouteInputs / kNormRouteWarps;  // K-blocks per warp

// `kSets`: NormRouteParams::sets. `kMaxBlocks`: at most this number of K-blocks per warp.
template <class T, int kSets, int kMaxBlocks>
class NormRouteCta {
  static constexpr int kWarps = kNormRouteWarps, kThreads = 32 * kWarps, kRows = kNormRouteTokens;
  static constexpr int kPieces = kNormRouteInputs / 8;  // 16-byte pieces per row of a K-block
  static constexpr int kExperts = kSets * kNormRouteExperts;
  static constexpr int kSums = kExperts * kRows;  // per warp
  static constexpr int kHeldSets =
      kSets * kMaxBlocks > kMaxNormRouteBlocks ? kMaxNormRouteBlocks / kMaxBlocks : kSets;
  using Held = uint4[kHeldSets][kMaxBlocks][2];

 public:
  __device__ NormRouteCta(const NormRouteParams& params, char* shared)
      : params_(params),
        rank_(ptx::cluster_rank()),
        first_token_(static_cast<int>(blockIdx.x) / ptx::cluster_size() * kRows),
        num_tokens_(min(kRows, params.route.num_tokens - first_token_)),
        num_blocks_(params.in_features / kNormRouteInputs),
        row_bytes_(2 * params.in_features + 16),
        rows_(shared),
        sums_(reinterpret_cast<float*>(shared + kRows * row_bytes_)),
        squares_(sums_ + kWarps * kSums),
        gates_(squares_ + kWarps * kRows),
        logits_(gates_ + kWarps * kRows),
        computes_gate_(params.shared_gate != nullptr && rank_ == ptx::cluster_size() - 1) {}

  __device__ __forceinline__ void run() {
    ptx::cluster_arrive_relaxed();
    Held router;
    load_router(0, router[0]);
    const NormShare share(num_tokens_);
    // Data that no kernel writes is loaded before the wait.
    FirstGroup first;
    if (share.first_group() < num_groups()) {
      first.norm = norm_weights(share.first_group());
      if (computes_gate_) first.gate = gate_weights(share.first_group());
    }
    LateBias bias;
    bias.ask(params_.bias, rank_ * kExperts + thread_expert());
    prefetch_router(kHeldSets);
    ptx::griddepcontrol_wait();
    ptx::launch_dependents();
    // x would wait for router weights that are loaded before it.
    if (share.token < num_tokens_ && share.first_group() < num_groups())
      first.x = token_x(share.token)[share.first_group()];
#pragma unroll
    for (int set = 1; set < kHeldSets; ++set) load_router(set, router[set]);
    normalize(share, first);
#pragma unroll
    for (int set = 0; set < kSets; set += kHeldSets) {
      if (set > 0)
#pragma unroll
        for (int i = 0; i < kHeldSets; ++i) load_router(set + i, router[i]);
      multiply(set, router);
    }
    __syncthreads();
    write_gates();
    // The CTA that receives the logits has started.
    ptx::cluster_wait();
    send_logits(bias);
    __syncwarp();  // reconverges lanes without a token
    ptx::cluster_arrive();
    ptx::cluster_wait();
    if (rank_ != 0) return;
    constexpr int kFew = 4, kMostExperts = kMaxSingleNormRouteCluster * kExperts;
    constexpr int kMaxPerLane =
        (kMostExperts < static_cast<int>(kMaxExperts) ? kMostExperts : static_cast<int>(kMaxExperts)) /
        kRouteLanes;
    const int token = warp();
    if (token >= num_tokens_) return;
    const float* const logits = logits_ + token * params_.route.num_experts;
    if (params_.route.num_experts <= kFew * kRouteLanes)
      route_token<kFew>(params_.route, logits, first_token_ + token, lane());
    else
      route_token<kMaxPerLane>(params_.route, logits, first_token_ + token, lane());
  }

 private:
  __device__ static int warp() { return static_cast<int>(threadIdx.x) / 32; }
  __device__ static int lane() { return static_cast<int>(threadIdx.x) % 32; }

  // Address of this lane's 16 bytes of expert lane / 4 of a set, in the first K-block.
  __device__ __forceinline__ const T* router_row(int set) const {
    const int64_t expert = rank_ * kExperts + set * kNormRouteExperts + lane() / 4;
    return static_cast<const T*>(params_.router) + expert * params_.in_features + lane() % 4 * 8;
  }
  // Loads K-blocks warp, warp + kWarps, ...: 16 bytes of experts lane / 4 and lane / 4 + 8 of a set.
  __device__ __forceinline__ void load_router(int set, uint4 (&router)[kMaxBlocks][2]) const {
    const T* const from = router_row(set);
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
  // Prefetches sets that are not held in registers yet.
  __device__ __forceinline__ void prefetch_router(int first_set) const {
    if (lane() % 4 != 0) return;
    for (int set = first_set; set < kSets; ++set)
      for (int half = 0; half < 2; ++half) {
        const T* const from = router_row(set) + half * 8 * int64_t{params_.in_features};
        for (int block = warp(); block < num_blocks_; block += kWarps)
          ptx::prefetch_l2(from + block * kNormRouteInputs);
      }
  }

  // Assignment of warps to token rows: every warp has a part of one row.
  struct NormShare {
    int warps_per_token = kWarps, part, token;

    __device__ __forceinline__ explicit NormShare(int num_tokens) {
      while (kWarps / warps_per_token < num_tokens) warps_per_token /= 2;
      part = warp() % warps_per_token;
      token = warp() / warps_per_token;
    }
    __device__ __forceinline__ int first_group() const { return part * 32 + lane(); }
    __device__ __forceinline__ int step() const { return 32 * warps_per_token; }
  };
  __device__ __forceinline__ int num_groups() const { return params_.in_features / kGroupElements; }
  // Raw bits of a group of norm weights; only f32 has a second half.
  struct NormBits {
    uint4 low = {}, high = {};
  };
  __device__ __forceinline__ NormBits norm_weights(int g) const {
    const auto* const from = static_cast<const uint4*>(params_.norm);
    if (!params_.norm_is_f32) return {__ldg(from + g), uint4{}};
    return {__ldg(from + 2 * g), __ldg(from + 2 * g + 1)};
  }
  __device__ __forceinline__ void convert(const NormBits& bits, float (&weights)[kGroupElements]) const {
    if (!params_.norm_is_f32) return convert_16_bit_group<T>(bits.low, weights);
    const uint32_t words[kGroupElements] = {bits.low.x,  bits.low.y,  bits.low.z,  bits.low.w,
                                            bits.high.x, bits.high.y, bits.high.z, bits.high.w};
#pragma unroll
    for (int i = 0; i < kGroupElements; ++i) weights[i] = __uint_as_float(words[i]);
  }
  __device__ __forceinline__ uint4 gate_weights(int g) const {
    return __ldg(static_cast<const uint4*>(params_.shared_gate) + g);
  }
  // Weights and x of a thread's first group.
  struct FirstGroup {
    NormBits norm;
    uint4 gate = {}, x = {};
  };
  __device__ __forceinline__ const uint4* token_x(int token) const {
    return static_cast<const uint4*>(params_.x) + int64_t{first_token_ + token} * num_groups();
  }

  __device__ __forceinline__ void normalize(const NormShare& share, const FirstGroup& first) const {
    const int token = share.token;
    const int64_t token_first_group = int64_t{first_token_ + token} * num_groups();
    const uint4* const x = token_x(token);
    if (token < num_tokens_) {
      float sum = 0.0f;
#pragma unroll 4
      for (int g = share.first_group(); g < num_groups(); g += share.step()) {
        const uint4 bits = g == share.first_group() ? first.x : x[g];
        float group[kGroupElements];
        convert_16_bit_group<T>(bits, group);
#pragma unroll
        for (int i = 0; i < kGroupElements; ++i) sum = fmaf(group[i], group[i], sum);
        *row_group(token, g) = bits;
      }
      sum = warp_sum(sum);
      if (lane() == 0) squares_[token * kWarps + share.part] = sum;
    }
    __syncthreads();
    if (token < num_tokens_) {
      // All loads are issued together.
      float sum = 0.0f;
#pragma unroll
      for (int i = 0; i < kWarps; ++i)
        if (i < share.warps_per_token) sum += squares_[token * kWarps + i];
      const float scale = 1.0f / sqrtf(sum / static_cast<float>(params_.in_features) + params_.norm_eps);
      const bool own = token % ptx::cluster_size() == rank_;
      float gate_sum = 0.0f;
#pragma unroll 4
      for (int g = share.first_group(); g < num_groups(); g += share.step()) {
        float group[kGroupElements], weights[kGroupElements];
        convert_16_bit_group<T>(*row_group(token, g), group);
        convert(g == share.first_group() ? first.norm : norm_weights(g), weights);
#pragma unroll
        for (int i = 0; i < kGroupElements; ++i) group[i] *= scale * weights[i];
        store_16_bit_group(reinterpret_cast<T*>(row_group(token, g)), group);
        if (own) static_cast<uint4*>(params_.normalized)[token_first_group + g] = *row_group(token, g);
        if (!computes_gate_) continue;
        convert_16_bit_group<T>(g == share.first_group() ? first.gate : gate_weights(g), weights);
#pragma unroll
        for (int i = 0; i < kGroupElements; ++i) gate_sum = fmaf(float(T(group[i])), weights[i], gate_sum);
      }
      if (computes_gate_) {
        gate_sum = warp_sum(gate_sum);
        if (lane() == 0) gates_[token * kWarps + share.part] = gate_sum;
      }
    }
    __syncthreads();
  }
  // Sums over the warps of each token.
  __device__ __forceinline__ void write_gates() const {
    const int token = static_cast<int>(threadIdx.x);
    if (!computes_gate_ || token >= num_tokens_) return;
    float sum = 0.0f;
    for (int i = 0; i < NormShare(num_tokens_).warps_per_token; ++i) sum += gates_[token * kWarps + i];
    params_.shared_gate_out[first_token_ + token] = sum;
  }
  __device__ __forceinline__ uint4* row_group(int token, int g) const {
    return reinterpret_cast<uint4*>(rows_ + token * row_bytes_) + g;
  }

  // A lane's 16 bytes of a row are 8 consecutive inputs, which two mma steps use: the order of inputs within
  // a K-block is the same for both operands. Rows past the last token are stale and affect only their own
  // sums.
  __device__ __forceinline__ void multiply(int first_set, const Held& router) const {
    float accumulators[kHeldSets][4] = {};
#pragma unroll
    for (int i = 0; i < kMaxBlocks; ++i) {
      const int block = warp() + i * kWarps;
      if (block >= num_blocks_) break;
      const uint4 x = *row_group(lane() / 4, block * kPieces + lane() % 4);
#pragma unroll
      for (int set = 0; set < kHeldSets; ++set) {
        const uint4 low = router[set][i][0], high = router[set][i][1];
        const uint32_t even[4] = {low.x, high.x, low.y, high.y}, odd[4] = {low.z, high.z, low.w, high.w};
        ptx::mma_m16n8k16(accumulators[set], even, x.x, x.y, T{});
        ptx::mma_m16n8k16(accumulators[set], odd, x.z, x.w, T{});
      }
    }
    // Lane l holds experts l / 4 and l / 4 + 8 of tokens 2 (l % 4) and 2 (l % 4) + 1.
#pragma unroll
    for (int set = 0; set < kHeldSets; ++set) {
      float* const to = sums_ + warp() * kSums + (first_set + set) * kNormRouteExperts * kRows;
#pragma unroll
      for (int i = 0; i < 4; ++i)
        to[(lane() / 4 + i / 2 * 8) * kRows + 2 * (lane() % 4) + i % 2] = accumulators[set][i];
    }
  }

  // A thread's logit is that of thread_expert() in the CTA and of thread_token().
  __device__ static int thread_expert() { return static_cast<int>(threadIdx.x) / kRows % kExperts; }
  __device__ static int thread_token() { return static_cast<int>(threadIdx.x) % kRows; }

  // Sends sums over the warps, in warp order, to the first CTA.
  __device__ __forceinline__ void send_logits(const LateBias& bias) const {
    static_assert(kSums <= kThreads);
    const int sum_idx = static_cast<int>(threadIdx.x), token = thread_token();
    if (sum_idx >= kSums || token >= num_tokens_) return;
    float sum = 0.0f;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) sum += sums_[w * kSums + sum_idx];
    if (params_.bias.data != nullptr) sum += bias.number(params_.bias);
    const int expert = rank_ * kExperts + thread_expert();
    ptx::st_shared_cluster(ptx::mapa(ptx::shared_address(logits_), 0) +
                               4 * static_cast<uint32_t>(token * params_.route.num_experts + expert),
                           sum);
  }

  const NormRouteParams& params_;
  const int rank_, first_token_, num_tokens_, num_blocks_, row_bytes_;
  char* const rows_;
  float* const sums_;     // [warps, experts, tokens]
  float* const squares_;  // [tokens, warps]
  float* const gates_;    // [tokens, warps]: partial sums of the shared gate
  float* const logits_;   // [tokens, experts of all CTAs], in the first CTA
  const bool computes_gate_;
};

template <class T, int kSets, int kMaxBlocks>
__global__ void __launch_bounds__(32 * kNormRouteWarps, 1)
    norm_route_kernel(const __grid_constant__ NormRouteParams params) {
  extern __shared__ __align__(128) char shared[];
  NormRouteCta<T, kSets, kMaxBlocks>(params, shared).run();
}

// Returns true if the current device can run a cluster of kMaxSingleNormRouteCluster CTAs of kKernel. The
// driver is called once per device.
template <auto kKernel>
bool runs_large_clusters() {
  static std::atomic<uint64_t> asked{0}, allowed{0};  // one bit for each of the first 64 devices
  int device = 0;
  attend::cuda::check(cudaGetDevice(&device), "norm_route: cluster");
  if (device >= 64) return false;
  const uint64_t bit = uint64_t{1} << device;
  if ((asked & bit) == 0) {
    attend::cuda::check(cudaFuncSetAttribute(kKernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1),
                        "norm_route: cluster");
    cudaLaunchAttribute cluster{};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim = {.x = kMaxSingleNormRouteCluster, .y = 1, .z = 1};
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(kMaxSingleNormRouteCluster);
    config.blockDim = dim3(32 * kNormRouteWarps);
    config.dynamicSmemBytes = kMaxNormRouteSharedBytes;
    config.attrs = &cluster;
    config.numAttrs = 1;
    int num_clusters = 0;
    if (cudaOccupancyMaxActiveClusters(&num_clusters, kKernel, &config) == cudaSuccess && num_clusters > 0)
      allowed |= bit;
    else
      cudaGetLastError();  // clears the error
    asked |= bit;
  }
  return (allowed & bit) != 0;
}

// Returns false without a launch if the device cannot run the cluster.
template <class T, int kSets, int kMaxBlocks>
bool launch_norm_route_instance(const NormRouteParams& params, void* stream) {
  constexpr auto kKernel = norm_route_kernel<T, kSets, kMaxBlocks>;
  allow_shared_memory<kKernel>(kMaxNormRouteSharedBytes, "norm_route: shared memory");
  const int cluster_size = params.route.num_experts / (kSets * kNormRouteExperts);
  if (cluster_size > kMaxNormRouteCluster && !runs_large_clusters<kKernel>()) return false;
  const int num_clusters = (params.route.num_tokens + kNormRouteTokens - 1) / kNormRouteTokens;
  launch_dependent<NormRouteParams>(
      kKernel, dim3(static_cast<unsigned>(num_clusters * cluster_size)), 32 * kNormRouteWarps,
      static_cast<size_t>(norm_route_shared_bytes(params.in_features, params.route.num_experts)), stream,
      params, "norm_route", cluster_size);
  return true;
}

template <class T>
bool launch_norm_route_sets(const NormRouteParams& params, int sets, void* stream) {
  constexpr int kAll = kMaxNormRouteBlocks, kHalf = kAll / 2;
  const bool half = params.in_features <= kHalf * kNormRouteInputs * kNormRouteWarps;
  if (sets == 1) return launch_norm_route_instance<T, 1, kAll>(params, stream);
  if (sets == 2)
    return half ? launch_norm_route_instance<T, 2, kHalf>(params, stream)
                : launch_norm_route_instance<T, 2, kAll>(params, stream);
  return half ? launch_norm_route_instance<T, 4, kHalf>(params, stream)
              : launch_norm_route_instance<T, 4, kAll>(params, stream);
}

template <class T>
void launch_norm_route(const NormRouteParams& params, void* stream) {
  const int num_experts = params.route.num_experts, sets = norm_route_sets(num_experts);
  const int fewest = norm_route_sets(num_experts, kMaxSingleNormRouteCluster);
  if (params.route.num_tokens <= kNormRouteTokens && fewest < sets &&
      launch_norm_route_sets<T>(params, fewest, stream))
    return;
  launch_norm_route_sets<T>(params, sets, stream);
}

}  // namespace attend::kernels::cuda::sm90
