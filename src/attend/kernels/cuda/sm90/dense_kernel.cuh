// Dense layers on sm_90a: the kernel and its launch, for x and weights of type T. A warp copies; the
// warpgroups before it multiply: rows of x are A, 64 a warpgroup, weights are B.
#pragma once

#include <type_traits>

#include "attend/kernels/cuda/launch.cuh"
#include "attend/kernels/cuda/ptx/mma.cuh"
#include "attend/kernels/cuda/ptx/wgmma.cuh"
#include "attend/kernels/cuda/sm90/dense_sums.cuh"
#include "attend_generated/wgmma_products.cuh"

namespace attend::kernels::cuda::sm90 {

// Two warpgroups multiply, a third copies; the registers that this one gives back are the
// others' accumulators.
constexpr int kConsumerWarps = 8, kDenseThreads = 32 * kConsumerWarps + 32 * kCopyWarps;
constexpr int kCopyRegisters = 24, kConsumerRegisters = 240;
// A warpgroup multiplies one or two groups of 64 rows of x.
template <int kTokenGroups>
constexpr int kGroupsAtOnce = kTokenGroups == 4 ? 2 : 1;

// A consumer's products: groups of rows of x by kGroupPairs pairs of weights.
template <class T, int kGroups, int kGroupPairs>
class DenseProducts {
  static constexpr int kSteps = kRowBytes / 32;  // of 16 inputs, in a chunk
  static constexpr int kGroupBytes = kWarpgroupTokens * kRowBytes;
  using Fragment = uint32_t[kSteps][4];
  using Ring = DenseRing<kConsumerWarps>;

 public:
  static constexpr bool kCanNorm = std::is_same_v<T, __nv_bfloat16> && kGroups == 1;
  using Sums = float[kGroups][8 * kGroupPairs];

  __device__ __forceinline__ DenseProducts(const Ring& ring, int first_token_group, int feature_group)
      : ring_(ring),
        x_offset_(first_token_group * kGroupBytes),
        weights_offset_(feature_group * kGroupPairs * kPairBytes) {}

  // The products of a tile.
  __device__ __forceinline__ void multiply(Sums& sums) {
    int last_slot = 0;
    for (int chunk = ring_.share.chunk_begin; chunk < ring_.share.chunk_end; ++chunk) {
      ptx::wait_for_phase(ring_.full(place_.slot), place_.parity);
      const uint64_t x = ptx::matrix_descriptor(ring_.x_at(place_.slot) + x_offset_);
      ptx::begin_products();
#pragma unroll
      for (int group = 0; group < kGroups; ++group)
#pragma unroll
        for (int step = 0; step < kSteps; ++step)
          ptx::multiply_async(sums[group], x + group * (kGroupBytes / 16) + 2 * step, weights() + 2 * step,
                              chunk > ring_.share.chunk_begin || step > 0, T{});
      ptx::commit_products();
      // The products before these have ended, and their slot is free.
      ptx::wait_products<1>();
      if (chunk > ring_.share.chunk_begin) ring_.release(last_slot, lane_);
      last_slot = place_.slot;
      place_.advance(ring_.params.num_slots);
    }
    ptx::wait_products<0>();
#pragma unroll
    for (int group = 0; group < kGroups; ++group) ptx::use_after_wait(sums[group]);
    ring_.release(last_slot, lane_);
  }

  // The same of x times the norm's weights, rounded to bf16; x comes through registers. Adds to `squares`
  // those of this thread's part of x, of its two rows.
  __device__ __forceinline__ void multiply_normed(Sums& sums, float (&squares)[2]) {
    // What others multiply goes nowhere.
    const bool has_rows = x_offset_ / kRowBytes + threadIdx.x / 32 % 4 * 16 < ring_.params.num_rows;
    int last_slot = 0;
    Fragment x = {};
#pragma unroll 2
    for (int chunk = ring_.share.chunk_begin; chunk < ring_.share.chunk_end; ++chunk) {
      ptx::wait_for_phase(ring_.full(place_.slot), place_.parity);
      Fragment next = {};
      if (has_rows) load_normed(chunk, next, squares);
      ptx::wait_products<0>();
      if (chunk > ring_.share.chunk_begin) ring_.release(last_slot, lane_);
#pragma unroll
      for (int i = 0; i < kSteps * 4; ++i) x[i / 4][i % 4] = next[i / 4][i % 4];
      ptx::begin_products();
#pragma unroll
      for (int step = 0; step < kSteps; ++step)
        ptx::multiply_async(sums[0], x[step], weights() + 2 * step,
                            chunk > ring_.share.chunk_begin || step > 0, T{});
      ptx::commit_products();
      last_slot = place_.slot;
      place_.advance(ring_.params.num_slots);
    }
    ptx::wait_products<0>();
    ptx::use_after_wait(sums[0]);
    ring_.release(last_slot, lane_);
  }

 private:
  __device__ __forceinline__ uint64_t weights() const {
    return ptx::matrix_descriptor(ring_.weights_at(place_.slot) + weights_offset_);
  }

  // What this thread multiplies of a chunk of x: of each 16 inputs 2 (l % 4), the next, and those eight
  // behind, of rows l / 4 and l / 4 + 8 of its warp's 16.
  __device__ __forceinline__ void load_normed(int chunk, Fragment& x, float (&squares)[2]) const {
    const int row = threadIdx.x / 32 % 4 * 16 + lane_ % 16;
    const uint32_t from =
        ring_.x_at(place_.slot) + x_offset_ + row * kRowBytes + ((lane_ / 16 ^ lane_ % 8) << 4);
    const uint32_t norm_from = ring_.norm_at(chunk) + lane_ % 4 * 4;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      ptx::load_matrices(x[step], from ^ (step << 5));
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const __nv_bfloat162 raw = pair_of(x[step][i]);
        const float2 values = __bfloat1622float2(raw);
        squares[i % 2] += values.x * values.x + values.y * values.y;
        const __nv_bfloat162 norm = pair_of(ptx::load_shared_4(norm_from + step * 32 + i / 2 * 16));
        const __nv_bfloat162 product = __hmul2(raw, norm);
        x[step][i] = *reinterpret_cast<const uint32_t*>(&product);
      }
    }
  }
  __device__ static __nv_bfloat162 pair_of(uint32_t bits) {
    return *reinterpret_cast<const __nv_bfloat162*>(&bits);
  }

  const Ring& ring_;
  const uint32_t x_offset_, weights_offset_;
  const int lane_ = static_cast<int>(threadIdx.x) % 32;
  RingPlace place_;
};

template <class T, int kTokenGroups, int kGroupPairs>
__global__ void __launch_bounds__(kDenseThreads, 1) dense_kernel(const __grid_constant__ DenseParams params) {
  extern __shared__ __align__(kSwizzleBytes) char shared[];
  const DenseRing<kConsumerWarps> ring(params, shared);
  if (threadIdx.x == 0) ring.init();
  __syncthreads();
  // Nobody writes to a CTA whose barriers are not there yet.
  ptx::arrive_at_cluster_relaxed();
  ptx::wait_for_cluster();
  const int warp = static_cast<int>(threadIdx.x) / 32, warpgroup = warp / 4;
  if (warp >= kConsumerWarps) {
    ptx::give_registers<kCopyRegisters>();
    if (threadIdx.x % 32 == 0) ring.copy(warp - kConsumerWarps);
    __syncwarp();
    ptx::arrive_at_cluster_relaxed();
    ptx::wait_for_cluster();
    return;
  }
  ptx::take_registers<kConsumerRegisters>();
  ring.copy_norm();
  ptx::wait_for_previous_kernel();
  // Not before the wait: the next kernel may be norm_rope, which reads angles early that a kernel before
  // this one has written.
  ptx::allow_next_kernel();
  constexpr int kGroups = kGroupsAtOnce<kTokenGroups>;
  using Products = DenseProducts<T, kGroups, kGroupPairs>;
  const int first_group = kTokenGroups == 1 ? 0 : warpgroup * kGroups;
  const int feature_group = kTokenGroups == 1 ? warpgroup : 0;
  Products products(ring, first_group, feature_group);
  const DenseSums<T, kGroups, kGroupPairs, DenseRing<kConsumerWarps>> tile_sums(
      ring, first_group * 4 + warp % 4, feature_group * kGroupPairs);
  for (int group = ring.share.first_group; group < params.num_tile_groups; group += ring.share.num_clusters) {
    typename Products::Sums sums;
    float squares[2] = {};
    bool multiplied = false;
    if constexpr (Products::kCanNorm)
      if ((multiplied = params.norm != nullptr)) products.multiply_normed(sums, squares);
    if (!multiplied) products.multiply(sums);
    // From here on nobody reads this CTA's ring, or tells that he has read his own.
    if (group + ring.share.num_clusters >= params.num_tile_groups) ptx::arrive_at_cluster_relaxed();
    tile_sums.put(group * params.num_sharers + ring.share.sharer, sums, squares);
  }
  if (params.num_parts == 1) ptx::wait_for_cluster();
}

template <class T, int kTokenGroups, int kGroupPairs>
void launch_instance(const DenseParams& params, const DenseShape& shape, void* stream) {
  const auto kernel = dense_kernel<T, kTokenGroups, kGroupPairs>;
  // All that there is, not what this launch takes: another thread may be about to launch with more.
  attend::cuda::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes),
                      "linear: shared memory");
  launch_dependent<DenseParams>(kernel, static_cast<unsigned>(shape.num_clusters * shape.cluster_size()),
                                kDenseThreads,
                                static_cast<size_t>(shared_bytes(params, params.num_slots, kTokenGroups)),
                                stream, params, "linear", shape.cluster_size());
}

// Launches the instance of this shape, of those with kGroupPairs pairs a warpgroup.
template <class T, int kTokenGroups, int... kGroupPairs>
void launch_one_of(const DenseParams& params, const DenseShape& shape, void* stream) {
  const int group_pairs = shape.tile_pairs / feature_groups(kTokenGroups);
  (void)((group_pairs == kGroupPairs &&
          (launch_instance<T, kTokenGroups, kGroupPairs>(params, shape, stream), true)) ||
         ...);
}

}  // namespace attend::kernels::cuda::sm90
