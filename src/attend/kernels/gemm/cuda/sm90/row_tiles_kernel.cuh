// Dense layers in tiles of rows on sm_90a: the kernel and its launch, for x and weights of type T. A thread
// copies chunks of x and of the weights; the warpgroups before it multiply, 64 rows of x each.
//
// Every output is summed in the order of few_rows_kernel.cuh, so that both give the same bits (ChunkOrder):
// wgmma adds the products of 16 inputs as mma.sync does. That is nowhere written, but seen in 24,576 sums of
// inputs near 1 and of such that differ by 2^48, and linear_invariant_test holds both kernels to it.
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
#include "attend/kernels/gemm/cuda/common/chunk_order.cuh"
#include "attend/kernels/gemm/cuda/sm90/row_tiles_kernel.h"
#include "attend_generated/wgmma_products.cuh"

namespace attend::kernels::cuda::sm90 {

// A CTA's tile of the output and the stages of its copies: a chunk of x and one of the weights each.
template <int kTileRows_, int kTileFeatures_>
struct RowTileConfig {
  static constexpr int kTileRows = kTileRows_, kTileFeatures = kTileFeatures_;
  static constexpr int kWarpgroups = kTileRows / 64, kConsumerWarps = 4 * kWarpgroups;
  static constexpr int kThreads = 128 * (kWarpgroups + 1);
  // Of a thread; a launch shares the 65,536 of an SM among all evenly.
  static constexpr int kConsumerRegisters = 160, kProducerRegisters = 24;
  static_assert(128 * (kWarpgroups * kConsumerRegisters + kProducerRegisters) <= 65536);
  static constexpr int kChunkElements = 64, kRowBytes = 2 * kChunkElements;
  static constexpr int kXBytes = kTileRows * kRowBytes;
  static constexpr int kStageBytes = kXBytes + kTileFeatures * kRowBytes;
  static constexpr int kBarrierBytes = 1024;
  static constexpr int kMostSharedBytes = 227 << 10;
  static constexpr int kStages = (kMostSharedBytes - kBarrierBytes) / kStageBytes;
  static constexpr int kSharedBytes = kStages * kStageBytes + kBarrierBytes;
  static constexpr int kSums = kTileFeatures / 2;  // of a thread
  static_assert(kStageBytes % 1024 == 0 && 16 * kStages <= kBarrierBytes);
};

template <class T, class Config>
class RowTilesCta {
 public:
  __device__ RowTilesCta(const RowTilesParams& params, const char* shared)
      : params_(params), shared_(ptx::shared_address(shared)) {
    // Tiles that run at the same time share rows of x and features: kRowTilesTogether of the one, then the
    // next of the other.
    constexpr int kRowTilesTogether = 8;
    const int num_row_tiles = ceil_div(params.num_rows, Config::kTileRows);
    const int num_feature_tiles = ceil_div(params.out_features, Config::kTileFeatures);
    const int tile = static_cast<int>(blockIdx.x), group_tiles = kRowTilesTogether * num_feature_tiles;
    const int first_row_tile = tile / group_tiles * kRowTilesTogether;
    const int together = min(kRowTilesTogether, num_row_tiles - first_row_tile);
    first_row_ = (first_row_tile + tile % group_tiles % together) * Config::kTileRows;
    first_feature_ = tile % group_tiles / together * Config::kTileFeatures;
  }

  __device__ __forceinline__ void run() {
    if (threadIdx.x == 0) {
      for (int stage = 0; stage < Config::kStages; ++stage) {
        ptx::init_barrier(full(stage), 1);
        ptx::init_barrier(empty(stage), Config::kConsumerWarps);
      }
      ptx::publish_barriers();
    }
    __syncthreads();
    const int warpgroup = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 128, 0);
    if (warpgroup < Config::kWarpgroups) {
      ptx::take_registers<Config::kConsumerRegisters>();
      ptx::wait_for_previous_kernel();
      ptx::allow_next_kernel();
      if (first_row_ + warpgroup * 64 < params_.num_rows)
        multiply(warpgroup);
      else
        release_all();
    } else {
      ptx::give_registers<Config::kProducerRegisters>();
      if (threadIdx.x % 128 == 0) copy();
    }
  }

 private:
  // A place in the ring of stages.
  struct Place {
    int stage = 0;
    uint32_t parity = 0;
    __device__ __forceinline__ void advance() {
      if (++stage < Config::kStages) return;
      stage = 0;
      parity ^= 1;
    }
  };

  __device__ static int ceil_div(int a, int b) { return (a + b - 1) / b; }

  __device__ __forceinline__ uint32_t x_at(int stage) const { return shared_ + stage * Config::kStageBytes; }
  __device__ __forceinline__ uint32_t weights_at(int stage) const { return x_at(stage) + Config::kXBytes; }
  __device__ __forceinline__ uint32_t full(int stage) const {
    return shared_ + Config::kStages * Config::kStageBytes + 8 * stage;
  }
  __device__ __forceinline__ uint32_t empty(int stage) const { return full(Config::kStages + stage); }

  // By one thread. Weights do not depend on the kernel before, so the first of them come while it ends.
  __device__ __forceinline__ void copy() const {
    const uint64_t policy = ptx::evict_last();
    const auto copy_weights = [&](int chunk, int stage) {
      ptx::arrive_and_expect(full(stage), Config::kStageBytes);
      ptx::copy_box(weights_at(stage), &params_.weight, chunk * Config::kChunkElements, first_feature_,
                    full(stage), policy);
    };
    const auto copy_x = [&](int chunk, int stage) {
      ptx::copy_box(x_at(stage), &params_.x, chunk * Config::kChunkElements, first_row_, full(stage), policy);
    };
    const int num_early = min(Config::kStages, params_.num_chunks);
    ChunkOrder early{params_.num_chunks}, order{params_.num_chunks};
    for (int stage = 0; stage < num_early; ++stage) {
      copy_weights(early.chunk, stage);
      early.advance();
    }
    ptx::wait_for_previous_kernel();
    Place place;
    for (int i = 0; i < params_.num_chunks; ++i) {
      if (i >= num_early) {
        ptx::wait_for_phase(empty(place.stage), place.parity ^ 1);
        copy_weights(order.chunk, place.stage);
      }
      copy_x(order.chunk, place.stage);
      order.advance();
      place.advance();
    }
  }

  __device__ __forceinline__ void release(int stage) const {
    if (threadIdx.x % 32 == 0) ptx::arrive(empty(stage));
  }

  // For a warpgroup whose rows are not there: what has come is of no use to it.
  __device__ __forceinline__ void release_all() const {
    Place place;
    for (int i = 0; i < params_.num_chunks; ++i) {
      ptx::wait_for_phase(full(place.stage), place.parity);
      release(place.stage);
      place.advance();
    }
  }

  __device__ __forceinline__ void multiply(int warpgroup) const {
    constexpr int kProductBytes = 32;  // of a row: 16 inputs
    const uint32_t rows = warpgroup * 64 * Config::kRowBytes;
    float part[Config::kSums], total[Config::kSums] = {};
    Place place;
    for (int first = 0; first < kParts && first < params_.num_chunks; ++first) {
      int last_stage = 0;
      for (int chunk = first; chunk < params_.num_chunks; chunk += kParts) {
        ptx::wait_for_phase(full(place.stage), place.parity);
        const uint64_t a = ptx::matrix_descriptor(x_at(place.stage) + rows);
        const uint64_t b = ptx::matrix_descriptor(weights_at(place.stage));
        ptx::begin_products();
#pragma unroll
        for (int k = 0; k < Config::kRowBytes / kProductBytes; ++k)
          ptx::multiply_async(part, a + k * (kProductBytes / 16), b + k * (kProductBytes / 16),
                              k > 0 || chunk > first, T{});
        ptx::commit_products();
        // The products before these have ended, and their stage is free.
        ptx::wait_products<1>();
        if (chunk > first) release(last_stage);
        last_stage = place.stage;
        place.advance();
      }
      ptx::wait_products<0>();
      ptx::use_after_wait(part);
      release(last_stage);
#pragma unroll
      for (int n = 0; n < Config::kSums; ++n) total[n] += part[n];
    }
    write(total);
  }

  // A thread has rows r = 16 w + l / 4 and r + 8 of its warpgroup's, of every eight features 2 (l % 4) and
  // the next.
  __device__ __forceinline__ void write(const float (&total)[Config::kSums]) const {
    const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;
    const int first_row = first_row_ + thread / 32 * 16 + lane / 4;
#pragma unroll
    for (int n = 0; n < Config::kTileFeatures / 8; ++n) {
      const int feature = first_feature_ + n * 8 + lane % 4 * 2;
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

  const RowTilesParams& params_;
  const uint32_t shared_;
  int first_row_, first_feature_;
};

template <class T, class Config>
__global__ void __launch_bounds__(Config::kThreads, 1)
    row_tiles_kernel(const __grid_constant__ RowTilesParams params) {
  extern __shared__ __align__(1024) char shared[];
  RowTilesCta<T, Config>(params, shared).run();
}

template <class T, class Config>
void launch_row_tile(const RowTilesParams& params, void* stream) {
  constexpr auto kKernel = row_tiles_kernel<T, Config>;
  const auto tiles = [](int count, int of) { return static_cast<unsigned>((count + of - 1) / of); };
  allow_shared_memory<kKernel>(Config::kSharedBytes, "linear: shared memory");
  launch_dependent<RowTilesParams>(
      kKernel, tiles(params.num_rows, Config::kTileRows) * tiles(params.out_features, Config::kTileFeatures),
      Config::kThreads, Config::kSharedBytes, stream, params, "linear");
}

template <class T>
void launch_row_tiles(const RowTilesParams& params, const RowTileShape& shape, void* stream) {
  if (shape.rows == kLargeTile.rows)
    launch_row_tile<T, RowTileConfig<kLargeTile.rows, kLargeTile.features>>(params, stream);
  else
    launch_row_tile<T, RowTileConfig<kSmallTile.rows, kSmallTile.features>>(params, stream);
}

}  // namespace attend::kernels::cuda::sm90
