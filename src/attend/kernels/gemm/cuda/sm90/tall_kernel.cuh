// Gated dense layers by tall tiles on sm_90a: the kernel and its launch, for x and weights of type T. Rows of
// x are A and weights are B, so that a tile can have any multiple of 16 rows of weights, and a thread has
// gate and up of the same features.
#pragma once

#include "attend/base/error.h"
#include "attend/kernels/common/cuda/element.cuh"
#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/common/cuda/ptx/cluster.cuh"
#include "attend/kernels/common/cuda/ptx/cluster_exchange.cuh"
#include "attend/kernels/common/cuda/ptx/copy.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/common/cuda/ptx/mbarrier.cuh"
#include "attend/kernels/common/cuda/ptx/tensor_copy.cuh"
#include "attend/kernels/common/cuda/ptx/warpgroup.cuh"
#include "attend/kernels/common/cuda/ptx/wgmma.cuh"
#include "attend/kernels/common/cuda/sm90/ring_place.cuh"
#include "attend/kernels/gemm/cuda/sm90/tall_kernel.h"
#include "attend_generated/wgmma_products.cuh"

namespace attend::kernels::cuda::sm90 {

// A CTA's tile and the ring of its copies: slots of a chunk of x and one of the weights.
template <int kPairs_>
struct TallConfig {
  static constexpr int kPairs = kPairs_;
  static constexpr int kWarpgroups = kTallRows / 64, kConsumerWarps = 4 * kWarpgroups;
  static constexpr int kThreads = 128 * (kWarpgroups + 1);
  // Of a thread; a launch shares the 65,536 of an SM among all evenly.
  static constexpr int kConsumerRegisters = 240, kCopyRegisters = 24;
  static_assert(128 * (kWarpgroups * kConsumerRegisters + kCopyRegisters) <=
                kThreads * (65536 / kThreads / 8 * 8));
  static constexpr int kRowBytes = 2 * kTallChunkInputs;
  static constexpr int kXBytes = kTallRows * kRowBytes, kWeightBytes = 16 * kPairs * kRowBytes;
  static constexpr int kSlotBytes = kXBytes + kWeightBytes;
  static constexpr int kBarrierBytes = 1024, kMostSharedBytes = 227 << 10;
  static constexpr int kSlots = (kMostSharedBytes - kBarrierBytes) / kSlotBytes;
  static constexpr int kSharedBytes = kSlots * kSlotBytes + kBarrierBytes;
  static constexpr int kSums = 8 * kPairs;  // of a thread
  static_assert(kSlotBytes % 1024 == 0 && 16 * kSlots <= kBarrierBytes);
  static_assert(kPairs % 2 == 0, "shares of a copy, and pairs that are written together");
};

template <class T, class Config>
class TallCta {
  using Sums = float[Config::kSums];
  static constexpr uint32_t kAllRanks = (1 << kTallSharers) - 1;

 public:
  __device__ __forceinline__ TallCta(const TallParams& params, const char* shared)
      : params_(params),
        shared_(ptx::shared_address(shared)),
        rank_(ptx::cluster_rank()),
        first_row_(params.shares_weights ? rank_ * kTallRows : 0) {
    const int cta = static_cast<int>(blockIdx.x), num_ctas = static_cast<int>(gridDim.x);
    const int tiles_at_once = params.shares_weights ? 1 : kTallSharers;
    first_tile_ = cta / (kTallSharers / tiles_at_once);
    tile_step_ = num_ctas / (kTallSharers / tiles_at_once);
    // CTAs of a cluster have equally many tiles, though the last may lie behind the weight.
    tiles_end_ = (params.num_tiles + tiles_at_once - 1) / tiles_at_once * tiles_at_once;
  }

  __device__ __forceinline__ void run() const {
    if (threadIdx.x == 0) {
      for (int slot = 0; slot < Config::kSlots; ++slot) {
        ptx::init_barrier(full(slot), 2);  // by who copies x and who copies weights
        ptx::init_barrier(empty(slot), Config::kConsumerWarps * kTallSharers);
      }
      ptx::publish_barriers();
    }
    __syncthreads();
    // Nobody writes to a CTA whose barriers are not there yet.
    ptx::arrive_at_cluster_relaxed();
    ptx::wait_for_cluster();
    const int warp = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 32, 0);
    if (warp < Config::kConsumerWarps) {
      ptx::take_registers<Config::kConsumerRegisters>();
      ptx::wait_for_previous_kernel();
      // Not before the wait: the next kernel may read early what a kernel before this one has written.
      ptx::allow_next_kernel();
      multiply(warp / 4);
    } else {
      ptx::give_registers<Config::kCopyRegisters>();
      if (threadIdx.x % 32 != 0) return;
      if (warp == Config::kConsumerWarps) copy_weights();
      if (warp == Config::kConsumerWarps + 1) copy_x();
    }
  }

 private:
  __device__ __forceinline__ uint32_t x_at(int slot) const { return shared_ + slot * Config::kSlotBytes; }
  __device__ __forceinline__ uint32_t weights_at(int slot) const { return x_at(slot) + Config::kXBytes; }
  __device__ __forceinline__ uint32_t full(int slot) const {
    return shared_ + Config::kSlots * Config::kSlotBytes + 8 * slot;
  }
  __device__ __forceinline__ uint32_t empty(int slot) const { return full(Config::kSlots + slot); }

  // Calls copy(slot, tile, first input, policy) for all chunks of all tiles, each when both CTAs are done
  // with the slot.
  template <class Copy>
  __device__ __forceinline__ void fill_slots(int num_bytes, const Copy& copy) const {
    RingPlace place;
    for (int tile = first_tile_; tile < tiles_end_; tile += tile_step_)
      for (int chunk = 0; chunk < params_.num_chunks; ++chunk) {
        ptx::wait_for_phase(empty(place.slot), place.parity ^ 1);
        ptx::arrive_and_expect(full(place.slot), num_bytes);
        copy(place.slot, tile, chunk * kTallChunkInputs);
        place.advance(Config::kSlots);
      }
  }

  // Weights do not depend on the kernel before.
  __device__ __forceinline__ void copy_weights() const {
    const uint64_t policy = ptx::evict_first();
    fill_slots(Config::kWeightBytes, [&](int slot, int tile, int input) {
      constexpr int kSharePairs = Config::kPairs / kTallSharers;
      const int first_pair = tile * Config::kPairs;
      if (params_.shares_weights)
        ptx::copy_box_to_cluster(weights_at(slot) + rank_ * (Config::kWeightBytes / kTallSharers),
                                 &params_.weight, input, 0, 0, first_pair + rank_ * kSharePairs, full(slot),
                                 kAllRanks, policy);
      else
        ptx::copy_box(weights_at(slot), &params_.weight, input, 0, 0, first_pair, full(slot), policy);
    });
  }

  __device__ __forceinline__ void copy_x() const {
    const uint64_t policy = ptx::evict_last();
    ptx::wait_for_previous_kernel();
    fill_slots(Config::kXBytes, [&](int slot, int, int input) {
      if (params_.shares_weights)
        ptx::copy_box(x_at(slot), &params_.x, input, first_row_, full(slot), policy);
      else
        ptx::copy_box_to_cluster(x_at(slot) + rank_ * (Config::kXBytes / kTallSharers), &params_.x, input,
                                 rank_ * (kTallRows / kTallSharers), full(slot), kAllRanks, policy);
    });
  }

  __device__ __forceinline__ void release(int slot) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    if (lane < kTallSharers) ptx::arrive_in_cluster_relaxed(ptx::address_in_cta(empty(slot), lane));
  }

  __device__ __forceinline__ void multiply(int warpgroup) const {
    RingPlace place;
    const int num_tiles = (tiles_end_ - first_tile_ + tile_step_ - 1) / tile_step_;
    // Slots that are not filled again are not released: the cluster's other CTA may have ended.
    int releases_left = num_tiles * params_.num_chunks - Config::kSlots, last_slot = 0;
    for (int tile = first_tile_; tile < tiles_end_; tile += tile_step_) {
      Sums sums;
      for (int chunk = 0; chunk < params_.num_chunks; ++chunk) {
        ptx::wait_for_phase(full(place.slot), place.parity);
        const uint64_t x = ptx::matrix_descriptor(x_at(place.slot) + warpgroup * 64 * Config::kRowBytes);
        const uint64_t weights = ptx::matrix_descriptor(weights_at(place.slot));
        ptx::begin_products();
#pragma unroll
        for (int step = 0; step < kTallChunkInputs / 16; ++step)
          ptx::multiply_async(sums, x + 2 * step, weights + 2 * step, chunk > 0 || step > 0, T{});
        ptx::commit_products();
        // The products before these have ended, and their slot is free.
        ptx::wait_products<1>();
        if (chunk > 0 && releases_left-- > 0) release(last_slot);
        last_slot = place.slot;
        place.advance(Config::kSlots);
      }
      ptx::wait_products<0>();
      ptx::use_after_wait(sums);
      if (releases_left-- > 0) release(last_slot);
      write(tile, first_row_ + warpgroup * 64, sums);
    }
  }

  // A thread has of each pair two features, 2 (l % 4) and the next, of two rows, l / 4 of its warp's 16 and
  // that eight below (wgmma_products.cuh.in). Of two pairs, neighbouring lanes exchange theirs, so that one
  // writes four features of the first and the other four of the second: whole sectors of 32 bytes.
  __device__ __forceinline__ void write(int tile, int first_row, const Sums& sums) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int first_of_lane = first_row + static_cast<int>(threadIdx.x) / 32 % 4 * 16 + lane / 4;
    const bool odd = lane % 2 == 1;
#pragma unroll
    for (int pair = 0; pair < Config::kPairs; pair += 2) {
      const int first_pair = tile * Config::kPairs + pair;
      const int feature = (first_pair + (odd ? 1 : 0)) * 8 + lane % 4 / 2 * 4;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = first_of_lane + 8 * half;
        const uint32_t first = gated(first_pair, sums + 8 * pair + 2 * half);
        const uint32_t second = gated(first_pair + 1, sums + 8 * (pair + 1) + 2 * half);
        const uint32_t got = __shfl_xor_sync(0xffffffffu, odd ? first : second, 1);
        if (row >= params_.num_rows || feature >= params_.out_features) continue;
        *reinterpret_cast<uint2*>(static_cast<T*>(params_.out) + row * params_.out_stride + feature) =
            odd ? make_uint2(got, second) : make_uint2(first, got);
      }
    }
  }

  // Two features of a pair, from their gates, sums[0] and [1], and ups, sums[4] and [5].
  __device__ __forceinline__ uint32_t gated(int pair, const float* sums) const {
    float gate[2] = {sums[0], sums[1]}, up[2] = {sums[4], sums[5]};
    const int feature = pair * 8 + static_cast<int>(threadIdx.x) % 4 * 2;
    if (const DeviceVector& bias = params_.bias; bias.data != nullptr && feature < params_.out_features)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        gate[i] += load_element(bias.data, feature + i, bias.element);
        up[i] += load_element(bias.data, params_.out_features + feature + i, bias.element);
      }
    T results[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) results[i] = T(__fdividef(gate[i], 1.0f + __expf(-gate[i])) * up[i]);
    return *reinterpret_cast<const uint32_t*>(results);
  }

  const TallParams& params_;
  const uint32_t shared_;
  const int rank_, first_row_;
  int first_tile_, tile_step_, tiles_end_;
};

template <class T, class Config>
__global__ void __launch_bounds__(Config::kThreads, 1)
    tall_kernel(const __grid_constant__ TallParams params) {
  extern __shared__ __align__(1024) char shared[];
  TallCta<T, Config>(params, shared).run();
}

template <class T, class Config>
void launch_tall_instance(const TallParams& params, int num_clusters, void* stream) {
  constexpr auto kKernel = tall_kernel<T, Config>;
  allow_shared_memory<kKernel>(Config::kSharedBytes, "linear: shared memory");
  launch_dependent<TallParams>(kKernel, static_cast<unsigned>(num_clusters * kTallSharers), Config::kThreads,
                               static_cast<size_t>(Config::kSharedBytes), stream, params, "linear",
                               kTallSharers);
}

template <class T, size_t kIndex = 0>
void launch_tall(const TallParams& params, const TallShape& shape, void* stream) {
  if constexpr (kIndex == kTallPairs.size()) {
    fail(ErrorCode::kInvalidArgument, "tall tiles of ", shape.tile_pairs,
         " pairs: there is no kernel for them");
  } else {
    if (shape.tile_pairs != kTallPairs[kIndex]) return launch_tall<T, kIndex + 1>(params, shape, stream);
    launch_tall_instance<T, TallConfig<kTallPairs[kIndex]>>(params, shape.num_clusters, stream);
  }
}

}  // namespace attend::kernels::cuda::sm90
