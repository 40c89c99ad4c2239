// Dense layers on sm_90a: the kernel and its launch, for x and weights of type T. A warp copies weights and
// one copies x; the warpgroups before them multiply: weights are A, 64 rows a warpgroup, rows of x are B.
// Warps behind them add the squares of rows whose norm was begun.
#pragma once

#include <type_traits>

#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/common/cuda/ptx/wgmma.cuh"
#include "attend/kernels/gemm/cuda/sm90/dense_sums.cuh"
#include "attend_generated/wgmma_products.cuh"

namespace attend::kernels::cuda::sm90 {

// With those that scale, which come last.
template <int kWarpgroups, int kTokens>
constexpr int kDenseThreads = kWarpgroups * 128 + 64 + 32 * kScaleWarps<kTokens>;

// A consumer's part.
template <class T, int kWarpgroups, int kTokens>
__device__ __forceinline__ void multiply(const DenseRing<kWarpgroups, kTokens>& ring, char* shared) {
  constexpr int kProductBytes = 32;  // of a row: 16 elements
  const int warpgroup = static_cast<int>(threadIdx.x) / 128, lane = static_cast<int>(threadIdx.x) % 32;
  DenseSums<kWarpgroups, kTokens> tile_sums(ring, shared);
  RingPlace weights, tokens;
  const auto release = [&](int weight_slot, int token_slot) {
    if (lane != 0) return;
    ptx::arrive(ring.weights_empty(weight_slot));
    ptx::arrive(ring.tokens_empty(token_slot));
  };
  const DenseShare& share = ring.share;
  for (int tile = share.first_tile; tile < ring.params.num_tiles; tile += share.num_clusters) {
    tile_sums.ask(tile);
    float sums[kTokens / 2];
    int last_weights = 0, last_tokens = 0;
    for (int chunk = share.chunk_begin; chunk < share.chunk_end; ++chunk) {
      ptx::wait_for_phase(ring.weights_full(weights.slot), weights.parity);
      ptx::wait_for_phase(ring.tokens_full(tokens.slot), tokens.parity);
      const uint64_t a =
          ptx::matrix_descriptor(ring.weights_at(weights.slot) + warpgroup * kWarpgroupRows * kRowBytes);
      const uint64_t b = ptx::matrix_descriptor(ring.tokens_at(tokens.slot));
      ptx::begin_products();
#pragma unroll
      for (int k = 0; k < kRowBytes / kProductBytes; ++k)
        ptx::multiply_async(sums, a + k * (kProductBytes / 16), b + k * (kProductBytes / 16),
                            chunk > share.chunk_begin || k > 0, T{});
      ptx::commit_products();
      // The products before these have ended, and their slots are free.
      ptx::wait_products<1>();
      if (chunk > share.chunk_begin) release(last_weights, last_tokens);
      last_weights = weights.slot;
      last_tokens = tokens.slot;
      weights.advance(ring.params.weight_slots);
      tokens.advance(ring.params.token_slots);
    }
    ptx::wait_products<0>();
    ptx::use_after_wait(sums);
    release(last_weights, last_tokens);
    tile_sums.put(tile, sums);
  }
}

template <class T, int kWarpgroups, int kTokens>
__global__ void __launch_bounds__(kDenseThreads<kWarpgroups, kTokens>, 1)
    dense_kernel(const __grid_constant__ DenseParams params) {
  using Ring = DenseRing<kWarpgroups, kTokens>;
  extern __shared__ __align__(kSwizzleBytes) char shared[];
  const Ring ring(params, shared);
  if (threadIdx.x == 0) ring.init();
  __syncthreads();
  // Nobody writes to a CTA whose barriers are not there yet.
  ptx::arrive_at_cluster_relaxed();
  ptx::wait_for_cluster();
  const int warp = static_cast<int>(threadIdx.x) / 32;
  if (warp < Ring::kConsumerWarps) {
    ptx::wait_for_previous_kernel();
    // Not before the wait: the next kernel may be norm_rope, which reads angles early that a kernel before
    // this one has written.
    ptx::allow_next_kernel();
    multiply<T>(ring, shared);
  } else if (warp >= Ring::kConsumerWarps + 2) {
    put_scales(ring, reinterpret_cast<float*>(shared + (ring.scales - ring.tokens)),
               warp - (Ring::kConsumerWarps + 2));
  } else if (threadIdx.x % 32 == 0) {
    if (warp == Ring::kConsumerWarps)
      ring.copy_weights();
    else
      ring.copy_tokens();
  }
}

template <class T, int kWarpgroups, int kTokens>
void launch_instance(const DenseParams& params, const DenseShape& shape, void* stream) {
  constexpr auto kKernel = dense_kernel<T, kWarpgroups, kTokens>;
  const int shared_bytes = DenseRing<kWarpgroups, kTokens>::shared_bytes(
      params.weight_slots, params.tile_pairs, params.token_slots);
  allow_shared_memory<kKernel>(kSharedBytes, "linear: shared memory");
  const bool scales = params.norm.squares != nullptr;
  const int num_threads = kDenseThreads<kWarpgroups, kTokens> - (scales ? 0 : 32 * kScaleWarps<kTokens>);
  launch_dependent<DenseParams>(kKernel, static_cast<unsigned>(shape.num_clusters * shape.cluster_size),
                                num_threads, static_cast<size_t>(shared_bytes), stream, params, "linear",
                                shape.cluster_size);
}

// Calls visit(warpgroups, tokens), both std::integral_constant, for the instance of this shape.
template <class Visit>
auto visit_dense_shape(const DenseShape& shape, const Visit& visit) {
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
void launch_dense(const DenseParams& params, const DenseShape& shape, void* stream) {
  visit_dense_shape(shape, [&](auto warpgroups, auto tokens) {
    launch_instance<T, warpgroups(), tokens()>(params, shape, stream);
  });
}

}  // namespace attend::kernels::cuda::sm90
