// Swap-AB split-K GEMM on sm_90a: out = x W^T (+ bias) (+ out), or silu(gate) * up of its halves, for up to
// 128 rows of x, with TMA and wgmma. A and B are swapped: W is operand A, 64 rows at a time, and the few rows
// of x are operand B, so that little of N is padding. The CTAs of a cluster split K, exchange their partial
// sums through distributed shared memory and add them in the order of K.
//
//   tile        16 to 128 rows of W (16 tile_pairs) x kTokens rows of x (32, 64 or 128), K-blocks of 64;
//               persistent clusters of 1, 2, 4 or 8 CTAs
//   warps       kWarpgroups (1 or 2) multiply 64 rows of W each (wgmma m64n(kTokens)k16); one warp loads W
//               and
//               one loads x with TMA; under a deferred norm kScaleWarps more add the partial sums of squares
//   registers   103 (kTokens = 32), 119 (64) or 158 (128)
//   shared      two pipelines: for W up to 20 stages of 2 tile_pairs KB, and for x up to 12 of kTokens / 8
//               KB; partial sums of the cluster, kTokens / 4 KB per warpgroup. Up to 227 KB
//   bytes       W once from memory; x once per CTA and tile, from L2
//   bound       reading W
#pragma once

#include <cstdint>
#include <type_traits>

#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/common/cuda/ptx/cluster.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/common/cuda/ptx/mbarrier.cuh"
#include "attend/kernels/common/cuda/ptx/wgmma.cuh"
#include "attend/kernels/gemm/cuda/sm90/cta_roles.cuh"
#include "attend/kernels/gemm/cuda/sm90/deferred_norm.cuh"
#include "attend/kernels/gemm/cuda/sm90/k_block_product.cuh"
#include "attend/kernels/gemm/cuda/sm90/swap_ab/swap_ab_epilogue.cuh"
#include "attend/kernels/gemm/cuda/sm90/swap_ab/swap_ab_pipeline.cuh"

namespace attend::kernels::cuda::sm90 {

// Threads per CTA, with the kScaleWarps last.
template <int kWarpgroups, int kTokens>
constexpr int kSwapAbThreads = kWarpgroups * 128 + 64 + 32 * kScaleWarps<kTokens>;

// Consumer of all K-blocks of all tiles.
template <class T, int kWarpgroups, int kTokens>
__device__ __forceinline__ void consume(const SwapAbPipeline<kWarpgroups, kTokens>& pipeline, char* shared) {
  const int warpgroup = static_cast<int>(threadIdx.x) / 128, lane = static_cast<int>(threadIdx.x) % 32;
  SwapAbEpilogue<kWarpgroups, kTokens> epilogue(pipeline, shared);
  PipelineState weights, tokens;
  const auto release = [&](int weight_stage, int token_stage) {
    if (lane != 0) return;
    ptx::mbarrier_arrive(pipeline.weights_empty(weight_stage));
    ptx::mbarrier_arrive(pipeline.tokens_empty(token_stage));
  };
  const SwapAbCtaRange& range = pipeline.range;
  for (int tile = range.first_tile; tile < pipeline.params.num_tiles; tile += range.num_clusters) {
    epilogue.prefetch(tile);
    float accumulators[kTokens / 2];
    int last_weights = 0, last_tokens = 0;
    for (int k_block = range.k_block_begin; k_block < range.k_block_end; ++k_block) {
      ptx::mbarrier_wait(pipeline.weights_full(weights.stage), weights.parity);
      ptx::mbarrier_wait(pipeline.tokens_full(tokens.stage), tokens.parity);
      const uint64_t a =
          ptx::smem_descriptor(pipeline.weights_at(weights.stage) + warpgroup * kWarpgroupRows * kRowBytes);
      const uint64_t b = ptx::smem_descriptor(pipeline.tokens_at(tokens.stage));
      multiply_k_block<T>(accumulators, a, b, k_block > range.k_block_begin);
      // The previous K-block's wgmma has finished, so its stages are free.
      ptx::wgmma_wait_group<1>();
      if (k_block > range.k_block_begin) release(last_weights, last_tokens);
      last_weights = weights.stage;
      last_tokens = tokens.stage;
      weights.advance(pipeline.params.weight_stages);
      tokens.advance(pipeline.params.token_stages);
    }
    ptx::wgmma_wait_group<0>();
    ptx::fence_operand(accumulators);
    release(last_weights, last_tokens);
    epilogue.exchange_and_write(tile, accumulators, tile + range.num_clusters >= pipeline.params.num_tiles);
  }
}

template <class T, int kWarpgroups, int kTokens>
__global__ void __launch_bounds__(kSwapAbThreads<kWarpgroups, kTokens>, 1)
    swap_ab_gemm_kernel(const __grid_constant__ SwapAbGemmParams params) {
  using Pipeline = SwapAbPipeline<kWarpgroups, kTokens>;
  extern __shared__ __align__(kSwizzleBytes) char shared[];
  const Pipeline pipeline(params, shared);
  begin_cta</*kCluster=*/true>([&] { pipeline.init(); });
  const int warp = static_cast<int>(threadIdx.x) / 32;
  if (warp < Pipeline::kConsumerWarps) {
    wait_for_inputs();
    consume<T>(pipeline, shared);
  } else if (warp >= Pipeline::kConsumerWarps + 2) {
    compute_row_scales(pipeline, reinterpret_cast<float*>(shared + (pipeline.scales - pipeline.tokens)),
                       warp - (Pipeline::kConsumerWarps + 2));
  } else if (threadIdx.x % 32 == 0) {
    if (warp == Pipeline::kConsumerWarps)
      pipeline.produce_weights();
    else
      pipeline.produce_tokens();
  }
}

template <class T, int kWarpgroups, int kTokens>
void launch_instance(const SwapAbGemmParams& params, const SwapAbGemmShape& shape, void* stream) {
  constexpr auto kKernel = swap_ab_gemm_kernel<T, kWarpgroups, kTokens>;
  const int shared_bytes = SwapAbPipeline<kWarpgroups, kTokens>::shared_bytes(
      params.weight_stages, params.tile_pairs, params.token_stages);
  allow_shared_memory<kKernel>(kSharedBytes, "linear: shared memory");
  const bool scales = params.norm.partial_squares != nullptr;
  const int num_threads = kSwapAbThreads<kWarpgroups, kTokens> - (scales ? 0 : 32 * kScaleWarps<kTokens>);
  launch_dependent<SwapAbGemmParams>(kKernel, static_cast<unsigned>(shape.num_clusters * shape.cluster_size),
                                     num_threads, static_cast<size_t>(shared_bytes), stream, params, "linear",
                                     shape.cluster_size);
}

// Calls visit(warpgroups, tokens), both std::integral_constant, for the instance of this shape.
template <class Visit>
auto visit_instance(const SwapAbGemmShape& shape, const Visit& visit) {
  const auto with_tokens = [&](auto warpgroups) {
    switch (shape.num_tokens) {
      case 32:
        return visit(warpgroups, std::integral_constant<int, 32>{});
      case 64:
        return visit(warpgroups, std::integral_constant<int, 64>{});
      default:
        return visit(warpgroups, std::integral_constant<int, 128>{});
    }
  };
  return shape.num_warpgroups() == 1 ? with_tokens(std::integral_constant<int, 1>{})
                                     : with_tokens(std::integral_constant<int, 2>{});
}

template <class T>
void launch_swap_ab_gemm(const SwapAbGemmParams& params, const SwapAbGemmShape& shape, void* stream) {
  visit_instance(shape, [&](auto warpgroups, auto tokens) {
    launch_instance<T, warpgroups(), tokens()>(params, shape, stream);
  });
}

}  // namespace attend::kernels::cuda::sm90
