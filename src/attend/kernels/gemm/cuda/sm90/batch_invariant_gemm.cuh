// Batch-invariant GEMM on sm_90a: out = x W^T for many rows, with TMA and wgmma, bit for bit what the skinny
// GEMM computes of the same row: K-blocks come in the same order (KBlockOrder), and wgmma adds the products
// of 16 inputs as mma.sync does. That is nowhere written, but seen in 24,576 sums of inputs near 1 and of
// such that differ by 2^48, and linear_invariant_test holds both kernels to it.
//
//   tile        192 rows x 128 features, or 128 x 64 where there are too few of those; K-blocks of 64;
//               persistent CTAs
//   warps       3 (2) warpgroups multiply 64 rows of x each (A = x, B = W: wgmma m64n128k16 or m64n64k16),
//               one produces, a thread of it, by TMA
//   registers   160 a consumer thread, 24 a producer thread (setmaxnreg); launched with 128 (160)
//   shared      5 (9) stages of 40 KB (24 KB), and 1 KB for mbarriers
//   bytes       of a stage: 24 KB (16 KB) of x, 16 KB (8 KB) of W
//   bound       tensor cores, and their drain at the end of each of the 8 slices of K
#pragma once

#include <type_traits>

#include "attend/kernels/common/cuda/element.cuh"
#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/common/cuda/ptx/copy.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/common/cuda/ptx/mbarrier.cuh"
#include "attend/kernels/common/cuda/ptx/tensor_copy.cuh"
#include "attend/kernels/common/cuda/ptx/warpgroup.cuh"
#include "attend/kernels/common/cuda/ptx/wgmma.cuh"
#include "attend/kernels/common/cuda/sm90/pipeline_state.cuh"
#include "attend/kernels/gemm/cuda/common/k_block_order.cuh"
#include "attend/kernels/gemm/cuda/sm90/batch_invariant_gemm_kernel.h"
#include "attend_generated/wgmma_products.cuh"

namespace attend::kernels::cuda::sm90 {

// A CTA's tile of the output, and its stages: a K-block of x and one of W each.
template <int kTileRows_, int kTileFeatures_>
struct BatchInvariantGemmConfig {
  static constexpr int kTileRows = kTileRows_, kTileFeatures = kTileFeatures_;
  static constexpr int kWarpgroups = kTileRows / 64, kConsumerWarps = 4 * kWarpgroups;
  static constexpr int kThreads = 128 * (kWarpgroups + 1);
  // Of a thread; a launch shares the 65,536 of an SM among all evenly.
  static constexpr int kConsumerRegisters = 160, kProducerRegisters = 24;
  static_assert(128 * (kWarpgroups * kConsumerRegisters + kProducerRegisters) <= 65536);
  static constexpr int kXBytes = kTileRows * kRowBytes;
  static constexpr int kStageBytes = kXBytes + kTileFeatures * kRowBytes;
  static constexpr int kBarrierBytes = 1024;
  static constexpr int kMaxSharedBytes = 227 << 10;
  static constexpr int kStages = (kMaxSharedBytes - kBarrierBytes) / kStageBytes;
  static constexpr int kSharedBytes = kStages * kStageBytes + kBarrierBytes;
  static constexpr int kAccumulators = kTileFeatures / 2;  // of a thread
  static_assert(kStageBytes % 1024 == 0 && 16 * kStages <= kBarrierBytes);
};

template <class T, class Config>
class BatchInvariantGemmCta {
 public:
  __device__ BatchInvariantGemmCta(const BatchInvariantGemmParams& params, const char* shared)
      : params_(params), shared_(ptx::shared_address(shared)) {}

  __device__ __forceinline__ void run() {
    if (threadIdx.x == 0) {
      for (int stage = 0; stage < Config::kStages; ++stage) {
        ptx::mbarrier_init(full(stage), 1);
        ptx::mbarrier_init(empty(stage), Config::kConsumerWarps);
      }
      ptx::fence_mbarrier_init();
    }
    __syncthreads();
    const int warpgroup = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 128, 0);
    if (warpgroup < Config::kWarpgroups) {
      ptx::setmaxnreg_inc<Config::kConsumerRegisters>();
      ptx::griddepcontrol_wait();
      ptx::launch_dependents();
      PipelineState state;
      for (int tile = first_tile(); tile < num_tiles(); tile += num_ctas()) {
        const Origin origin = origin_of(tile);
        if (origin.row + warpgroup * 64 < params_.num_rows)
          consume(origin, warpgroup, state);
        else
          release_all(state);
      }
    } else {
      ptx::setmaxnreg_dec<Config::kProducerRegisters>();
      if (threadIdx.x % 128 == 0) produce();
    }
  }

 private:
  // The first row and feature of a tile.
  struct Origin {
    int row, feature;
  };

  __device__ static int ceil_div(int a, int b) { return (a + b - 1) / b; }
  __device__ int num_row_tiles() const { return ceil_div(params_.num_rows, Config::kTileRows); }
  __device__ int num_feature_tiles() const { return ceil_div(params_.out_features, Config::kTileFeatures); }
  __device__ int num_tiles() const { return num_row_tiles() * num_feature_tiles(); }
  __device__ static int first_tile() { return static_cast<int>(blockIdx.x); }
  __device__ static int num_ctas() { return static_cast<int>(gridDim.x); }

  // Rasterisation: tiles that run at the same time share x and W in L2. kRowTilesTogether row tiles, then
  // the next feature tile.
  __device__ __forceinline__ Origin origin_of(int tile) const {
    constexpr int kRowTilesTogether = 8;
    const int group_tiles = kRowTilesTogether * num_feature_tiles();
    const int first_row_tile = tile / group_tiles * kRowTilesTogether;
    const int together = min(kRowTilesTogether, num_row_tiles() - first_row_tile);
    return {.row = (first_row_tile + tile % group_tiles % together) * Config::kTileRows,
            .feature = tile % group_tiles / together * Config::kTileFeatures};
  }

  __device__ __forceinline__ uint32_t x_at(int stage) const { return shared_ + stage * Config::kStageBytes; }
  __device__ __forceinline__ uint32_t weights_at(int stage) const { return x_at(stage) + Config::kXBytes; }
  __device__ __forceinline__ uint32_t full(int stage) const {
    return shared_ + Config::kStages * Config::kStageBytes + 8 * stage;
  }
  __device__ __forceinline__ uint32_t empty(int stage) const { return full(Config::kStages + stage); }

  // Producer: one thread. W does not depend on the kernel before, so the first stages of the first tile come
  // while that ends; those of other tiles come while consumers write the tile before.
  __device__ __forceinline__ void produce() const {
    const uint64_t policy = ptx::createpolicy_evict_last();
    const auto copy_weights = [&](const Origin& origin, int k_block, int stage) {
      ptx::mbarrier_arrive_expect_tx(full(stage), Config::kStageBytes);
      ptx::cp_async_bulk_tensor(weights_at(stage), &params_.weight, k_block * kBlockK, origin.feature,
                                full(stage), policy);
    };
    int num_prefetched = min(Config::kStages, params_.num_k_blocks);
    KBlockOrder prefetched_order{params_.num_k_blocks};
    for (int stage = 0; stage < num_prefetched; ++stage) {
      copy_weights(origin_of(first_tile()), prefetched_order.k_block, stage);
      prefetched_order.advance();
    }
    ptx::griddepcontrol_wait();
    PipelineState state;
    for (int tile = first_tile(); tile < num_tiles(); tile += num_ctas()) {
      const Origin origin = origin_of(tile);
      KBlockOrder order{params_.num_k_blocks};
      for (int i = 0; i < params_.num_k_blocks; ++i) {
        if (i >= num_prefetched) {
          ptx::mbarrier_wait(empty(state.stage), state.parity ^ 1);
          copy_weights(origin, order.k_block, state.stage);
        }
        ptx::cp_async_bulk_tensor(x_at(state.stage), &params_.x, order.k_block * kBlockK, origin.row,
                                  full(state.stage), policy);
        order.advance();
        state.advance(Config::kStages);
      }
      num_prefetched = 0;
    }
  }

  __device__ __forceinline__ void release(int stage) const {
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(empty(stage));
  }

  // Of a warpgroup that has no rows, whose stages wait for it all the same.
  __device__ __forceinline__ void release_all(PipelineState& state) const {
    for (int i = 0; i < params_.num_k_blocks; ++i) {
      ptx::mbarrier_wait(full(state.stage), state.parity);
      release(state.stage);
      state.advance(Config::kStages);
    }
  }

  __device__ __forceinline__ void consume(const Origin& origin, int warpgroup, PipelineState& state) const {
    constexpr int kMmaBytes = 32;  // of a row: 16 inputs
    const uint32_t rows = warpgroup * 64 * kRowBytes;
    float partial[Config::kAccumulators], total[Config::kAccumulators] = {};
    for (int first = 0; first < kKSlices && first < params_.num_k_blocks; ++first) {
      int last_stage = 0;
      for (int k_block = first; k_block < params_.num_k_blocks; k_block += kKSlices) {
        ptx::mbarrier_wait(full(state.stage), state.parity);
        const uint64_t a = ptx::smem_descriptor(x_at(state.stage) + rows);
        const uint64_t b = ptx::smem_descriptor(weights_at(state.stage));
        ptx::wgmma_fence();
#pragma unroll
        for (int k = 0; k < kRowBytes / kMmaBytes; ++k)
          ptx::wgmma_mma_async(partial, a + k * (kMmaBytes / 16), b + k * (kMmaBytes / 16),
                               k > 0 || k_block > first, T{});
        ptx::wgmma_commit_group();
        // The wgmma of the K-block before have ended, and its stage is free.
        ptx::wgmma_wait_group<1>();
        if (k_block > first) release(last_stage);
        last_stage = state.stage;
        state.advance(Config::kStages);
      }
      ptx::wgmma_wait_group<0>();
      ptx::fence_operand(partial);
      release(last_stage);
#pragma unroll
      for (int n = 0; n < Config::kAccumulators; ++n) total[n] += partial[n];
    }
    write(origin, total);
  }

  // A thread has rows r = 16 w + l / 4 and r + 8 of its warpgroup's, of every eight features 2 (l % 4) and
  // the next.
  __device__ __forceinline__ void write(const Origin& origin,
                                        const float (&total)[Config::kAccumulators]) const {
    const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;
    const int first_row = origin.row + thread / 32 * 16 + lane / 4;
#pragma unroll
    for (int n = 0; n < Config::kTileFeatures / 8; ++n) {
      const int feature = origin.feature + n * 8 + lane % 4 * 2;
      if (feature >= params_.out_features) break;
      const bool pair = params_.out_paired && feature + 1 < params_.out_features;
#pragma unroll
      for (int high = 0; high < 2; ++high) {
        const int row = first_row + high * 8;
        if (row >= params_.num_rows) continue;
        const int64_t to = row * params_.out_stride + feature;
        float values[2];
        const DeviceVector& bias = params_.bias;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          if (feature + i >= params_.out_features) break;
          const float shift =
              bias.data == nullptr ? 0.0f : load_element(bias.data, feature + i, bias.element);
          values[i] = total[4 * n + 2 * high + i] + shift;
          if (params_.accumulate) values[i] += load_element(params_.out, to + i, params_.out_element);
        }
        if (pair && params_.out_element != Element::kF32) {
          const uint32_t bits = params_.out_element == Element::kBF16 ? pack_pair<__nv_bfloat162>(values)
                                                                      : pack_pair<__half2>(values);
          *reinterpret_cast<uint32_t*>(static_cast<char*>(params_.out) + 2 * to) = bits;
          continue;
        }
#pragma unroll
        for (int i = 0; i < 2; ++i)
          if (feature + i < params_.out_features)
            store_element(params_.out, to + i, params_.out_element, values[i]);
      }
    }
  }
  template <class Pair>
  __device__ static uint32_t pack_pair(const float (&values)[2]) {
    Pair pair;
    if constexpr (std::is_same_v<Pair, __half2>)
      pair = __floats2half2_rn(values[0], values[1]);
    else
      pair = __floats2bfloat162_rn(values[0], values[1]);
    return *reinterpret_cast<const uint32_t*>(&pair);
  }

  const BatchInvariantGemmParams& params_;
  const uint32_t shared_;
};

template <class T, class Config>
__global__ void __launch_bounds__(Config::kThreads, 1)
    batch_invariant_gemm_kernel(const __grid_constant__ BatchInvariantGemmParams params) {
  extern __shared__ __align__(1024) char shared[];
  BatchInvariantGemmCta<T, Config>(params, shared).run();
}

template <class T, class Config>
void launch_tile(const BatchInvariantGemmParams& params, int num_sms, void* stream) {
  constexpr auto kKernel = batch_invariant_gemm_kernel<T, Config>;
  const auto tiles = [](int count, int of) { return (count + of - 1) / of; };
  const int num_tiles =
      tiles(params.num_rows, Config::kTileRows) * tiles(params.out_features, Config::kTileFeatures);
  allow_shared_memory<kKernel>(Config::kSharedBytes, "linear: shared memory");
  launch_dependent<BatchInvariantGemmParams>(
      kKernel, static_cast<unsigned>(num_tiles < num_sms ? num_tiles : num_sms), Config::kThreads,
      Config::kSharedBytes, stream, params, "linear");
}

template <class T>
void launch_batch_invariant_gemm(const BatchInvariantGemmParams& params, const BatchInvariantGemmTile& shape,
                                 int num_sms, void* stream) {
  if (shape.rows == kLargeTile.rows)
    launch_tile<T, BatchInvariantGemmConfig<kLargeTile.rows, kLargeTile.features>>(params, num_sms, stream);
  else
    launch_tile<T, BatchInvariantGemmConfig<kSmallTile.rows, kSmallTile.features>>(params, num_sms, stream);
}

}  // namespace attend::kernels::cuda::sm90
