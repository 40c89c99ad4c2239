// fp8 x fp8 GEMM on sm_90a with a scale per 128 inputs of a row of x and per 128 x 128 block of W, with TMA
// and wgmma in persistent clusters of two CTAs. Tensor cores sum 128 inputs; float32 registers accumulate
// those sums times their scales.
//
//   tile        128 or 256 rows of x x 128 rows of W, K-blocks of 128; CTAs of a cluster share the rows of x
//   warps       2 consumer warpgroups multiply half of the rows each, 64 per wgmma m64n128k32; one thread of
//               a
//               producer warpgroup loads W and half of x, which is multicast, with TMA. While one warpgroup
//               scales, the other one multiplies
//   registers   240 per consumer thread: 64 or 128 sums, 64 sums of a K-block; 24 per producer thread
//   shared      7 or 4 stages of 32 or 48 KB, and 1 KB for mbarriers
//   bytes       per stage: 64 per row of x, and 128 per row of W
//   bound       tensor cores
#pragma once

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
#include "attend/kernels/common/cuda/sm90/pipeline_state.cuh"
#include "attend/kernels/gemm/cuda/sm90/cta_roles.cuh"
#include "attend/kernels/gemm/cuda/sm90/fp8_block/fp8_block_gemm_kernel.h"
#include "attend_generated/wgmma_e4m3_products.cuh"

namespace attend::kernels::cuda::sm90 {

// `kRowBlocks_`: blocks of 64 rows per warpgroup.
template <int kRowBlocks_>
struct Fp8BlockGemmConfig {
  static constexpr int kRowBlocks = kRowBlocks_, kWarpgroups = 2, kConsumerWarps = 4 * kWarpgroups;
  static constexpr int kThreads = 128 * (kWarpgroups + 1);
  static constexpr int kConsumerRegisters = 240, kProducerRegisters = 24;
  static constexpr int kRowsPerWarpgroup = 64 * kRowBlocks, kTileRows = kWarpgroups * kRowsPerWarpgroup;
  static constexpr int kXBytes = kTileRows * kFp8BlockInputs, kWeightBytes = kFp8TileOuts * kFp8BlockInputs;
  static constexpr int kStageBytes = kXBytes + kWeightBytes, kBarrierBytes = 1024;
  static constexpr int kStages = ((227 << 10) - kBarrierBytes) / kStageBytes;
  static constexpr int kSharedBytes = kStages * kStageBytes + kBarrierBytes;
  using Stages = KBlockStages<kStages, kXBytes, kWeightBytes>;
  static constexpr int kClusterSize = 2;
  static constexpr int kSums = kFp8TileOuts / 2;  // per thread and row block
};

// Order in which clusters compute tiles, two neighboring output tiles each: bands of a few row tiles, so that
// concurrent tiles read few rows of x and of W.
struct Fp8TileOrder {
  static constexpr int kBand = 8;
  int num_row_tiles, num_out_pairs;

  struct Tile {
    int row, out_pair;  // indices of the tile row and of the pair of output tiles
  };
  __device__ __forceinline__ int count() const { return num_row_tiles * num_out_pairs; }
  __device__ __forceinline__ Tile at(int i) const {
    const int band = i / (kBand * num_out_pairs), in_band = i - band * kBand * num_out_pairs;
    const int band_rows = min(kBand, num_row_tiles - band * kBand);
    return {band * kBand + in_band % band_rows, in_band / band_rows};
  }
};

template <class T, class Config>
class Fp8BlockGemmCta {
  using Sums = float[Config::kSums];
  // Scales of two rows of a thread per row block: its lane's row and the row eight below.
  using Scales = float[Config::kRowBlocks][2];

 public:
  __device__ __forceinline__ Fp8BlockGemmCta(const Fp8BlockGemmParams& params, const char* shared)
      : params_(params),
        stages_{ptx::shared_address(shared)},
        rank_(ptx::cluster_rank()),
        first_tile_(static_cast<int>(blockIdx.x) / Config::kClusterSize),
        tile_step_(static_cast<int>(gridDim.x) / Config::kClusterSize),
        tiles_{(params.num_rows + Config::kTileRows - 1) / Config::kTileRows,
               (params.num_out_tiles + Config::kClusterSize - 1) / Config::kClusterSize} {}

  __device__ __forceinline__ void run() const {
    begin_cta</*kCluster=*/true>(
        [&] { stages_.init_barriers(1, Config::kConsumerWarps * Config::kClusterSize); });
    run_roles<Config>(
        [&](int warpgroup) {
          wait_for_inputs();
          consume(warpgroup);
        },
        [&] { produce(); });
    end();
  }

 private:
  // A CTA exits only after the other one has arrived at its mbarriers for the last time.
  __device__ __forceinline__ static void end() {
    __syncwarp();
    ptx::cluster_arrive_relaxed();
    ptx::cluster_wait();
  }

  __device__ __forceinline__ int out_tile_idx(const Fp8TileOrder::Tile& tile) const {
    return tile.out_pair * Config::kClusterSize + rank_;
  }

  // Producer: loads W and half of x for all K-blocks of all tiles, each when both CTAs have released the
  // stage. Other clusters read both too.
  __device__ __forceinline__ void produce() const {
    constexpr int kHalfRows = Config::kTileRows / Config::kClusterSize;
    constexpr uint32_t kAllRanks = (1 << Config::kClusterSize) - 1;
    const uint64_t policy = ptx::createpolicy_evict_last();
    ptx::griddepcontrol_wait();
    PipelineState state;
    for (int i = first_tile_; i < tiles_.count(); i += tile_step_) {
      const auto tile = tiles_.at(i);
      for (int k_block = 0; k_block < params_.num_k_blocks; ++k_block) {
        ptx::mbarrier_wait(stages_.empty(state.stage), state.parity ^ 1);
        ptx::mbarrier_arrive_expect_tx(stages_.full(state.stage), Config::kStageBytes);
        ptx::cp_async_bulk_tensor_multicast(stages_.x_at(state.stage) + rank_ * kHalfRows * kFp8BlockInputs,
                                            &params_.x, k_block * kFp8BlockInputs,
                                            tile.row * Config::kTileRows + rank_ * kHalfRows,
                                            stages_.full(state.stage), kAllRanks, policy);
        ptx::cp_async_bulk_tensor(stages_.weights_at(state.stage), &params_.weight, k_block * kFp8BlockInputs,
                                  out_tile_idx(tile) * kFp8TileOuts, stages_.full(state.stage), policy);
        state.advance(Config::kStages);
      }
    }
  }

  __device__ __forceinline__ void release(int stage) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    if (lane < Config::kClusterSize)
      ptx::mbarrier_arrive_cluster_relaxed(ptx::mapa(stages_.empty(stage), lane));
  }

  // Returns the first row of x of a thread in a row block.
  __device__ __forceinline__ int thread_row(int first_row, int block) const {
    const int thread = static_cast<int>(threadIdx.x);
    return first_row + block * 64 + thread / 32 % 4 * 16 + thread % 32 / 4;
  }

  // Scales of both operands of a K-block. They are multiplied at their use, since converting a load
  // immediately would wait for it.
  struct BlockScales {
    Scales x;
    float weight;
  };
  // Addresses of the scales of a tile that are loaded next.
  struct ScalesAt {
    const float* x[Config::kRowBlocks][2];
    const float* weight;
  };
  __device__ __forceinline__ ScalesAt tile_scales(int first_row, int out_tile) const {
    ScalesAt at;
#pragma unroll
    for (int block = 0; block < Config::kRowBlocks; ++block)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        at.x[block][half] =
            params_.x_scales + min(thread_row(first_row, block) + 8 * half, params_.num_rows - 1);
    // If the number of tiles is odd, the last CTA multiplies an empty tile with the last scales.
    const int scaled_tile = min(out_tile, params_.num_out_tiles - 1);
    at.weight = params_.weight_scales + int64_t{scaled_tile / params_.group_tiles} * params_.num_k_blocks;
    return at;
  }
  __device__ __forceinline__ void load_scales(ScalesAt& at, BlockScales& to) const {
#pragma unroll
    for (int block = 0; block < Config::kRowBlocks; ++block)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        to.x[block][half] = *at.x[block][half];
        at.x[block][half] += params_.x_scale_stride;
      }
    to.weight = *at.weight++;
  }

  __device__ __forceinline__ void consume(int warpgroup) const {
    PipelineState state;
    for (int i = first_tile_; i < tiles_.count(); i += tile_step_) {
      const auto tile = tiles_.at(i);
      const int out_tile = out_tile_idx(tile);
      const int first_row = tile.row * Config::kTileRows + warpgroup * Config::kRowsPerWarpgroup;
      Sums sums[Config::kRowBlocks];
#pragma unroll
      for (auto& block_sums : sums)
#pragma unroll
        for (float& sum : block_sums) sum = 0.0f;
      BlockScales next;
      ScalesAt scales_at = tile_scales(first_row, out_tile);
      load_scales(scales_at, next);
      for (int k_block = 0; k_block < params_.num_k_blocks; ++k_block) {
        const BlockScales scales = next;
        if (k_block + 1 < params_.num_k_blocks) load_scales(scales_at, next);
        ptx::mbarrier_wait(stages_.full(state.stage), state.parity);
        const uint64_t x = ptx::smem_descriptor(stages_.x_at(state.stage) +
                                                warpgroup * Config::kRowsPerWarpgroup * kFp8BlockInputs);
        const uint64_t weight = ptx::smem_descriptor(stages_.weights_at(state.stage));
#pragma unroll
        for (int block = 0; block < Config::kRowBlocks; ++block) {
          Sums products;
          multiply(x + block * (64 * kFp8BlockInputs / 16), weight, products);
          if (block + 1 == Config::kRowBlocks) release(state.stage);
          add(products, scales.x[block], scales.weight, sums[block]);
        }
        state.advance(Config::kStages);
      }
#pragma unroll
      for (int block = 0; block < Config::kRowBlocks; ++block)
        write(thread_row(first_row, block), out_tile * kFp8TileOuts, sums[block]);
    }
  }

  // Computes products = x weight^T of a K-block.
  __device__ __forceinline__ static void multiply(uint64_t x, uint64_t weight, Sums& products) {
    ptx::wgmma_fence();
#pragma unroll
    for (int step = 0; step < kFp8BlockInputs / 32; ++step)
      ptx::wgmma_mma_async(products, x + 2 * step, weight + 2 * step, step > 0, __nv_fp8_e4m3{});
    ptx::wgmma_commit_group();
    ptx::wgmma_wait_group<0>();
    ptx::fence_operand(products);
  }

  __device__ __forceinline__ static void add(const Sums& products, const float (&x_scales)[2],
                                             float weight_scale, Sums& sums) {
    const float scales[2] = {x_scales[0] * weight_scale, x_scales[1] * weight_scale};
#pragma unroll
    for (int i = 0; i < Config::kSums; ++i) sums[i] = fmaf(products[i], scales[i / 2 % 2], sums[i]);
  }

  // Writes outputs. A thread holds two of every eight outputs, for two rows (wgmma_products.cuh.in). For
  // sixteen outputs, neighboring lanes exchange values, so that one writes four of the first eight and the
  // other four of the second: whole sectors of 32 bytes.
  __device__ __forceinline__ void write(int lane_row, int first_out, Sums& sums) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const bool odd = lane % 2 == 1;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = lane_row + 8 * half;
      const bool given = row < params_.num_rows;
      T* const to = static_cast<T*>(params_.out) + row * params_.out_stride;
      if (params_.accumulate && given) add_row(to + first_out, first_out, half, sums);
#pragma unroll
      for (int eight = 0; eight < kFp8TileOuts / 8; eight += 2) {
        const int out = first_out + (eight + (odd ? 1 : 0)) * 8 + lane % 4 / 2 * 4;
        const uint32_t first = load_pair(sums + 4 * eight + 2 * half),
                       second = load_pair(sums + 4 * eight + 4 + 2 * half);
        const uint32_t got = __shfl_xor_sync(0xffffffffu, odd ? first : second, 1);
        if (given && out < params_.out_features)
          *reinterpret_cast<uint2*>(to + out) = odd ? make_uint2(got, second) : make_uint2(first, got);
      }
    }
  }

  // Adds a row's existing outputs, which start at `from`, to a thread's sums.
  __device__ __forceinline__ void add_row(const T* from, int first_out, int half, Sums& sums) const {
#pragma unroll
    for (int eight = 0; eight < kFp8TileOuts / 8; ++eight) {
      const int column = eight * 8 + static_cast<int>(threadIdx.x) % 4 * 2;
      if (first_out + column >= params_.out_features) break;
      alignas(4) T pair[2];
      *reinterpret_cast<uint32_t*>(pair) = *reinterpret_cast<const uint32_t*>(from + column);
#pragma unroll
      for (int i = 0; i < 2; ++i) sums[4 * eight + 2 * half + i] += static_cast<float>(pair[i]);
    }
  }

  __device__ __forceinline__ static uint32_t load_pair(const float* sums) {
    const T pair[2] = {T(sums[0]), T(sums[1])};
    return *reinterpret_cast<const uint32_t*>(pair);
  }

  const Fp8BlockGemmParams& params_;
  const typename Config::Stages stages_;
  const int rank_, first_tile_, tile_step_;
  const Fp8TileOrder tiles_;
};

template <class T, class Config>
__global__ void __launch_bounds__(Config::kThreads, 1)
    fp8_block_gemm_kernel(const __grid_constant__ Fp8BlockGemmParams params) {
  extern __shared__ __align__(1024) char shared[];
  Fp8BlockGemmCta<T, Config>(params, shared).run();
}

template <class T, class Config>
void launch_fp8_block_gemm_instance(const Fp8BlockGemmParams& params, int num_sms, void* stream) {
  constexpr auto kKernel = fp8_block_gemm_kernel<T, Config>;
  allow_shared_memory<kKernel>(Config::kSharedBytes, "linear: shared memory");
  const int num_row_tiles = (params.num_rows + Config::kTileRows - 1) / Config::kTileRows;
  const int num_pairs = (params.num_out_tiles + Config::kClusterSize - 1) / Config::kClusterSize;
  const int num_clusters = min(num_sms / Config::kClusterSize, num_row_tiles * num_pairs);
  launch_dependent<Fp8BlockGemmParams>(kKernel, static_cast<unsigned>(num_clusters * Config::kClusterSize),
                                       Config::kThreads, static_cast<size_t>(Config::kSharedBytes), stream,
                                       params, "linear", Config::kClusterSize);
}

template <class T>
void launch_fp8_block_gemm(const Fp8BlockGemmParams& params, int tile_rows, int num_sms, void* stream) {
  if (tile_rows == Fp8BlockGemmConfig<2>::kTileRows)
    return launch_fp8_block_gemm_instance<T, Fp8BlockGemmConfig<2>>(params, num_sms, stream);
  launch_fp8_block_gemm_instance<T, Fp8BlockGemmConfig<1>>(params, num_sms, stream);
}

}  // namespace attend::kernels::cuda::sm90
