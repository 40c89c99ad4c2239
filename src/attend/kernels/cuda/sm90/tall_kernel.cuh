// Tall tiles of dense layers on sm_90a: the kernel and its launch, for x and weights of type T. Rows of x are
// A, 64 or 128 a warpgroup, weights are B, so that tiles can have any multiple of 16 rows of these, and a row
// of x stays with a warp that can norm it.
#pragma once

#include <type_traits>

#include "attend/kernels/cuda/launch.cuh"
#include "attend/kernels/cuda/ptx/mma.cuh"
#include "attend/kernels/cuda/ptx/warpgroup.cuh"
#include "attend/kernels/cuda/ptx/wgmma.cuh"
#include "attend/kernels/cuda/sm90/tall_sums.cuh"
#include "attend_generated/wgmma_products.cuh"

namespace attend::kernels::cuda::sm90 {

// Two warpgroups multiply, a third copies; the registers that this one gives back are the others'
// accumulators.
constexpr int kConsumerWarps = 8, kTallThreads = 32 * kConsumerWarps + 32 * kCopyWarps;
constexpr int kCopyRegisters = 24, kConsumerRegisters = 240;
// A warpgroup multiplies one or two groups of 64 rows of x.
template <int kTokenGroups>
constexpr int kGroupsAtOnce = kTokenGroups == 4 ? 2 : 1;

// A consumer's products: groups of rows of x by kGroupPairs pairs of weights.
template <class T, int kGroups, int kGroupPairs>
class TallProducts {
  static constexpr int kSteps = kRowBytes / 32;  // of 16 inputs, in a chunk
  static constexpr int kGroupBytes = kGroupTokens * kRowBytes;
  using Fragment = uint32_t[kSteps][4];
  using Rings = TallRings<kConsumerWarps>;

 public:
  static constexpr bool kCanNorm = std::is_same_v<T, __nv_bfloat16> && kGroups == 1;
  using Sums = float[kGroups][8 * kGroupPairs];

  __device__ __forceinline__ TallProducts(const Rings& rings, int first_token_group, int feature_group)
      : rings_(rings),
        x_offset_(first_token_group * kGroupBytes),
        weights_offset_(feature_group * kGroupPairs * kPairBytes) {}

  // The products of a tile.
  __device__ __forceinline__ void multiply(Sums& sums) {
    int last_weights = 0, last_tokens = 0;
    for (int chunk = rings_.share.chunk_begin; chunk < rings_.share.chunk_end; ++chunk) {
      ptx::wait_for_phase(rings_.weights.full(weights_.slot), weights_.parity);
      ptx::wait_for_phase(rings_.tokens.full(tokens_.slot), tokens_.parity);
      const uint64_t x = ptx::matrix_descriptor(rings_.tokens.at(tokens_.slot) + x_offset_);
      const uint64_t weights = weights_descriptor();
      ptx::begin_products();
#pragma unroll
      for (int group = 0; group < kGroups; ++group)
#pragma unroll
        for (int step = 0; step < kSteps; ++step)
          ptx::multiply_async(sums[group], x + group * (kGroupBytes / 16) + 2 * step, weights + 2 * step,
                              chunk > rings_.share.chunk_begin || step > 0, T{});
      ptx::commit_products();
      // The products before these have ended, and their slots are free.
      ptx::wait_products<1>();
      if (chunk > rings_.share.chunk_begin && lane_ == 0) {
        rings_.weights.release(last_weights);
        rings_.tokens.release(last_tokens);
      }
      last_weights = weights_.slot;
      last_tokens = tokens_.slot;
      advance();
    }
    ptx::wait_products<0>();
#pragma unroll
    for (int group = 0; group < kGroups; ++group) ptx::use_after_wait(sums[group]);
    if (lane_ == 0) {
      rings_.weights.release(last_weights);
      rings_.tokens.release(last_tokens);
    }
  }

  // The same of x times the norm's weights, rounded to bf16; x comes through registers. Adds to `squares`
  // those of this thread's part of x, of its two rows.
  __device__ __forceinline__ void multiply_normed(Sums& sums, float (&squares)[2]) {
    // What others multiply goes nowhere.
    const bool has_rows =
        x_offset_ / kRowBytes + static_cast<int>(threadIdx.x) / 32 % 4 * 16 < rings_.params.num_rows;
    int last_weights = 0;
    Fragment x = {};
#pragma unroll 2
    for (int chunk = rings_.share.chunk_begin; chunk < rings_.share.chunk_end; ++chunk) {
      Fragment next = {};
      ptx::wait_for_phase(rings_.tokens.full(tokens_.slot), tokens_.parity);
      if (has_rows) load_normed(chunk, next, squares);
      __syncwarp();
      if (lane_ == 0) rings_.tokens.release(tokens_.slot);
      ptx::wait_for_phase(rings_.weights.full(weights_.slot), weights_.parity);
      ptx::wait_products<0>();
      if (chunk > rings_.share.chunk_begin && lane_ == 0) rings_.weights.release(last_weights);
#pragma unroll
      for (int i = 0; i < kSteps * 4; ++i) x[i / 4][i % 4] = next[i / 4][i % 4];
      const uint64_t weights = weights_descriptor();
      ptx::begin_products();
#pragma unroll
      for (int step = 0; step < kSteps; ++step)
        ptx::multiply_async(sums[0], x[step], weights + 2 * step,
                            chunk > rings_.share.chunk_begin || step > 0, T{});
      ptx::commit_products();
      last_weights = weights_.slot;
      advance();
    }
    ptx::wait_products<0>();
    ptx::use_after_wait(sums[0]);
    if (lane_ == 0) rings_.weights.release(last_weights);
  }

 private:
  __device__ __forceinline__ uint64_t weights_descriptor() const {
    return ptx::matrix_descriptor(rings_.weights.at(weights_.slot) + weights_offset_);
  }
  __device__ __forceinline__ void advance() {
    weights_.advance(rings_.weights.num_slots);
    tokens_.advance(rings_.tokens.num_slots);
  }

  // What this thread multiplies of a chunk of x: of each 16 inputs 2 (l % 4), the next, and those eight
  // behind, of rows l / 4 and l / 4 + 8 of its warp's 16.
  __device__ __forceinline__ void load_normed(int chunk, Fragment& x, float (&squares)[2]) const {
    const int row = static_cast<int>(threadIdx.x) / 32 % 4 * 16 + lane_ % 16;
    const uint32_t from =
        rings_.tokens.at(tokens_.slot) + x_offset_ + row * kRowBytes + ((lane_ / 16 ^ lane_ % 8) << 4);
    const uint32_t norm_from = rings_.norm_at(chunk) + lane_ % 4 * 4;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) ptx::load_matrices(x[step], from ^ (step << 5));
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const __nv_bfloat162 norm = pair_of(ptx::load_shared_4(norm_from + step * 32 + half * 16));
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const __nv_bfloat162 raw = pair_of(x[step][2 * half + i]);
          const float2 values = __bfloat1622float2(raw);
          squares[i] += values.x * values.x;
          squares[i] += values.y * values.y;
          const __nv_bfloat162 product = __hmul2(raw, norm);
          x[step][2 * half + i] = *reinterpret_cast<const uint32_t*>(&product);
        }
      }
  }
  __device__ static __nv_bfloat162 pair_of(uint32_t bits) {
    return *reinterpret_cast<const __nv_bfloat162*>(&bits);
  }

  const Rings& rings_;
  const uint32_t x_offset_, weights_offset_;
  const int lane_ = static_cast<int>(threadIdx.x) % 32;
  RingPlace weights_, tokens_;
};

template <class T, int kTokenGroups, int kGroupPairs>
__global__ void __launch_bounds__(kTallThreads, 1) tall_kernel(const __grid_constant__ TallParams params) {
  extern __shared__ __align__(kSwizzleBytes) char shared[];
  const TallRings<kConsumerWarps> rings(params, shared);
  const int warp = static_cast<int>(threadIdx.x) / 32, warpgroup = warp / 4;
  const bool copies = warp >= kConsumerWarps && threadIdx.x % 32 == 0;
  if (copies) rings.prefetch_map(warp - kConsumerWarps);
  rings.init();
  __syncthreads();
  if (warp >= kConsumerWarps) {
    ptx::give_registers<kCopyRegisters>();
    if (copies) {
      rings.copy_early(warp - kConsumerWarps);
      rings.copy_rest(warp - kConsumerWarps);
    }
    __syncwarp();
    if (params.num_parts == 1) return;
    // As the consumers do (TallSums).
    ptx::arrive_at_cluster_relaxed();
    ptx::wait_for_cluster();
    return;
  }
  ptx::take_registers<kConsumerRegisters>();
  rings.copy_norm();
  ptx::wait_for_previous_kernel();
  // Not before the wait: the next kernel may be norm_rope, which reads angles early that a kernel before
  // this one has written.
  ptx::allow_next_kernel();
  constexpr int kGroups = kGroupsAtOnce<kTokenGroups>;
  using Products = TallProducts<T, kGroups, kGroupPairs>;
  const int first_group = kTokenGroups == 1 ? 0 : warpgroup * kGroups;
  const int feature_group = kTokenGroups == 1 ? warpgroup : 0;
  Products products(rings, first_group, feature_group);
  const TallSums<T, kGroups, kGroupPairs, TallRings<kConsumerWarps>> tile_sums(
      rings, first_group * 4 + warp % 4, feature_group * kGroupPairs);
  for (int tile = rings.share.first_tile; tile < params.num_tiles; tile += rings.share.num_clusters) {
    typename Products::Sums sums;
    float squares[2] = {};
    bool multiplied = false;
    if constexpr (Products::kCanNorm)
      if ((multiplied = params.norm != nullptr)) products.multiply_normed(sums, squares);
    if (!multiplied) products.multiply(sums);
    tile_sums.put(tile, sums, squares);
  }
}

template <class T, int kTokenGroups, int kGroupPairs>
void launch_tall_instance(const TallParams& params, const TallShape& shape, void* stream) {
  const auto kernel = tall_kernel<T, kTokenGroups, kGroupPairs>;
  // All that there is, not what this launch takes: another thread may be about to launch with more.
  attend::cuda::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes),
                      "linear: shared memory");
  launch_dependent<TallParams>(kernel, static_cast<unsigned>(shape.num_clusters * shape.num_parts),
                               kTallThreads, static_cast<size_t>(tall_shared_bytes(params, kTokenGroups)),
                               stream, params, "linear", shape.num_parts);
}

// Launches the instance of this shape, of those with kGroupPairs pairs a warpgroup.
template <class T, int kTokenGroups, int... kGroupPairs>
void launch_tall(const TallParams& params, const TallShape& shape, void* stream) {
  const int group_pairs = shape.tile_pairs / feature_groups(kTokenGroups);
  (void)((group_pairs == kGroupPairs &&
          (launch_tall_instance<T, kTokenGroups, kGroupPairs>(params, shape, stream), true)) ||
         ...);
}

}  // namespace attend::kernels::cuda::sm90
