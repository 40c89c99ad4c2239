// Batch-invariant GEMM: out = x W^T for any number of rows with mma.sync, bit for bit equal to the skinny
// GEMM of each row: K-blocks are in the same order (KBlockOrder), with the same 16 inputs per mma.
//
//   tile        128 rows x 128 features (32 if the GPU has more SMs than large tiles); K-blocks of 64
//   warps       8, all alike, 2 x 4 warps of 64 rows x 32 features (4 x 2 of 32 x 16): all copy with cp.async
//               and multiply with mma.m16n8k16
//   registers   206 to 221 (92 to 105), of which 128 (32) are two sets of accumulators: for the current slice
//               of K and for the previous slices
//   shared      stages of 32 KB (20 KB): 7 (11) in 227 KB, 3 (4) in 99 KB
//   bytes       per stage: 16 KB of x, 16 KB (4 KB) of W
//   bound       tensor cores
#pragma once

#include "attend/kernels/common/cuda/device_attribute.h"
#include "attend/kernels/common/cuda/element.cuh"
#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/common/cuda/ptx/copy.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/common/cuda/ptx/mma.cuh"
#include "attend/kernels/gemm/cuda/common/k_block_order.cuh"
#include "attend/kernels/gemm/cuda/sm80/skinny_gemm_kernel.h"
#include "attend/kernels/gemm/cuda/sm80/tiled_gemm.h"

namespace attend::kernels::cuda::sm80 {

// Output tile of a CTA, and the pieces of 16 rows x 8 features of each warp. One stage is multiplied while
// the others are being loaded.
template <int kTileFeatures_, int kFeatureWarps_, int kMaxSharedBytes>
struct OutputTile {
  static constexpr int kWarps = 8, kThreads = 32 * kWarps;
  static constexpr int kTileRows = 128, kTileFeatures = kTileFeatures_;
  static constexpr int kFeatureWarps = kFeatureWarps_, kRowWarps = kWarps / kFeatureWarps;
  static constexpr int kWarpRows = kTileRows / kRowWarps, kWarpFeatures = kTileFeatures / kFeatureWarps;
  static constexpr int kRowPieces = kWarpRows / 16, kFeaturePieces = kWarpFeatures / kFeatures;
  static constexpr int kXBytes = kTileRows * kRowBytes;
  static constexpr int kStageBytes = kXBytes + kTileFeatures * kRowBytes;
  static constexpr int kStages = kMaxSharedBytes / kStageBytes;
  static constexpr int kSharedBytes = kStages * kStageBytes;
  static_assert(kStages >= 3);
};
template <int kMaxSharedBytes>
using LargeTile = OutputTile<128, 4, kMaxSharedBytes>;
// Used for layers with fewer large tiles than the GPU has SMs.
template <int kMaxSharedBytes>
using NarrowTile = OutputTile<32, 2, kMaxSharedBytes>;

template <class T, class Tile>
class BatchInvariantGemmCta {
 public:
  __device__ BatchInvariantGemmCta(const BatchInvariantGemmParams& params, char* shared)
      : params_(params),
        shared_(ptx::shared_address(shared)),
        first_row_(static_cast<int>(blockIdx.x) * Tile::kTileRows),
        first_feature_(static_cast<int>(blockIdx.y) * Tile::kTileFeatures),
        num_k_blocks_((params.in_features + kBlockK - 1) / kBlockK) {}

  __device__ __forceinline__ void run() {
    start();
    KBlockOrder order{num_k_blocks_};
    Accumulators partial = {}, total = {};
    const bool has_rows = first_row_ + warp_row() < params_.num_rows;
    int stage = 0;
#pragma unroll 1
    for (int i = 0; i < num_k_blocks_; ++i) {
      ptx::cp_async_wait_group<Tile::kStages - 2>();
      // All threads' copies of this K-block have arrived, and no warp reads the previous one.
      __syncthreads();
      if (num_copied_ < num_k_blocks_) {
        copy_weights(next_.k_block, num_copied_ % Tile::kStages);
        copy_x(next_.k_block, num_copied_ % Tile::kStages);
        ++num_copied_;
        next_.advance();
      }
      ptx::cp_async_commit_group();
      if (has_rows) multiply(shared_ + stage * Tile::kStageBytes, partial);
      if (order.ends_slice()) add_partial(partial, total);
      order.advance();
      stage = stage + 1 == Tile::kStages ? 0 : stage + 1;
    }
    if (has_rows) write(total);
  }

 private:
  // Lane l holds rows l / 4 and l / 4 + 8 of a piece, features 2 (l % 4) and 2 (l % 4) + 1.
  using Accumulators = float[Tile::kRowPieces][Tile::kFeaturePieces][4];

  __device__ int warp_row() const { return warp_ / Tile::kFeatureWarps * Tile::kWarpRows; }
  __device__ int warp_feature() const { return warp_ % Tile::kFeatureWarps * Tile::kWarpFeatures; }

  // Prologue. W does not depend on the previous kernel, so its first stages are loaded while that kernel
  // finishes.
  __device__ __forceinline__ void start() {
    KBlockOrder weights{num_k_blocks_};
    for (int stage = 0; stage < Tile::kStages - 1 && stage < num_k_blocks_; ++stage) {
      copy_weights(weights.k_block, stage);
      weights.advance();
    }
    ptx::griddepcontrol_wait();
    ptx::launch_dependents();
    for (int stage = 0; stage < Tile::kStages - 1; ++stage) {
      if (num_copied_ < num_k_blocks_) {
        copy_x(next_.k_block, stage);
        ++num_copied_;
        next_.advance();
      }
      ptx::cp_async_commit_group();
    }
  }

  template <int kRows>
  __device__ __forceinline__ void copy_rows(const void* from, int64_t row_stride, int first, int end,
                                            int k_block, uint32_t to) const {
#pragma unroll
    for (int i = 0; i < kRows * kPieces; i += Tile::kThreads) {
      const int row = (i + static_cast<int>(threadIdx.x)) / kPieces, piece = threadIdx.x % kPieces;
      const int input = k_block * kBlockK + piece * 8;
      const bool given = first + row < end && input < params_.in_features;
      const int64_t element = given ? (first + row) * row_stride + input : 0;
      ptx::cp_async_16(to + swizzled_piece(row, piece), static_cast<const char*>(from) + 2 * element, given);
    }
  }
  __device__ __forceinline__ void copy_x(int k_block, int stage) const {
    copy_rows<Tile::kTileRows>(params_.x, params_.x_stride, first_row_, params_.num_rows, k_block,
                               shared_ + stage * Tile::kStageBytes);
  }
  __device__ __forceinline__ void copy_weights(int k_block, int stage) const {
    copy_rows<Tile::kTileFeatures>(params_.weight, params_.in_features, first_feature_, params_.out_features,
                                   k_block, shared_ + stage * Tile::kStageBytes + Tile::kXBytes);
  }

  // Multiplies one K-block, 16 inputs per mma.
  __device__ __forceinline__ void multiply(uint32_t stage, Accumulators& accumulators) const {
    const uint32_t weights_lane = swizzled_piece(lane_ % 8, lane_ / 8),
                   x_lane = swizzled_piece(lane_ % 16, lane_ / 16);
    const uint32_t x_from = stage + warp_row() * kRowBytes;
    const uint32_t weights_from = stage + Tile::kXBytes + warp_feature() * kRowBytes;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      uint32_t weights[Tile::kFeaturePieces][4];
#pragma unroll
      for (int n = 0; n < Tile::kFeaturePieces; ++n)
        ptx::ldmatrix_x4(weights[n], weights_from + n * kFeatures * kRowBytes + (weights_lane ^ (half * 64)));
#pragma unroll
      for (int m = 0; m < Tile::kRowPieces; ++m) {
        uint32_t x[2][4];
#pragma unroll
        for (int step = 0; step < 2; ++step)
          ptx::ldmatrix_x4(x[step], x_from + m * 16 * kRowBytes + (x_lane ^ (half * 64 + step * 32)));
#pragma unroll
        for (int n = 0; n < Tile::kFeaturePieces; ++n)
#pragma unroll
          for (int step = 0; step < 2; ++step)
            ptx::mma_m16n8k16(accumulators[m][n], x[step], weights[n][2 * step], weights[n][2 * step + 1],
                              T{});
      }
    }
  }

  __device__ __forceinline__ static void add_partial(Accumulators& partial, Accumulators& total) {
#pragma unroll
    for (int m = 0; m < Tile::kRowPieces; ++m)
#pragma unroll
      for (int n = 0; n < Tile::kFeaturePieces; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          total[m][n][i] += partial[m][n][i];
          partial[m][n][i] = 0.0f;
        }
  }

  __device__ __forceinline__ void write(const Accumulators& total) const {
#pragma unroll
    for (int n = 0; n < Tile::kFeaturePieces; ++n)
#pragma unroll
      for (int column = 0; column < 2; ++column) {
        const int feature = first_feature_ + warp_feature() + n * kFeatures + 2 * (lane_ % 4) + column;
        if (feature >= params_.out_features) continue;
        const DeviceVector& bias = params_.bias;
        const float shift = bias.data == nullptr ? 0.0f : load_element(bias.data, feature, bias.element);
#pragma unroll
        for (int m = 0; m < Tile::kRowPieces; ++m)
#pragma unroll
          for (int high = 0; high < 2; ++high) {
            const int row = first_row_ + warp_row() + m * 16 + high * 8 + lane_ / 4;
            if (row >= params_.num_rows) continue;
            const int64_t to = row * params_.out_stride + feature;
            float value = total[m][n][2 * high + column] + shift;
            if (params_.accumulate) value += load_element(params_.out, to, params_.out_element);
            store_element(params_.out, to, params_.out_element, value);
          }
      }
  }

  const BatchInvariantGemmParams& params_;
  const uint32_t shared_;
  const int first_row_, first_feature_, num_k_blocks_;
  const int warp_ = static_cast<int>(threadIdx.x) / 32, lane_ = static_cast<int>(threadIdx.x) % 32;
  KBlockOrder next_{num_k_blocks_};  // next K-block to copy
  int num_copied_ = 0;               // in K-blocks
};

// Grid: one CTA per tile. CTAs with the same rows of W are neighbors.
template <class T, class Tile>
__global__ void __launch_bounds__(Tile::kThreads, 1)
    batch_invariant_gemm_kernel(const __grid_constant__ BatchInvariantGemmParams params) {
  extern __shared__ __align__(128) char shared[];
  BatchInvariantGemmCta<T, Tile>(params, shared).run();
}

template <class T, class Tile>
void launch_tile(const BatchInvariantGemmParams& params, void* stream) {
  constexpr auto kKernel = batch_invariant_gemm_kernel<T, Tile>;
  const auto tiles = [](int count, int of) { return static_cast<unsigned>((count + of - 1) / of); };
  allow_shared_memory<kKernel>(Tile::kSharedBytes, "linear: shared memory");
  launch_dependent<BatchInvariantGemmParams>(
      kKernel, dim3(tiles(params.num_rows, Tile::kTileRows), tiles(params.out_features, Tile::kTileFeatures)),
      Tile::kThreads, Tile::kSharedBytes, stream, params, "linear");
}

template <class T, int kMaxSharedBytes>
void launch_with_shared(const BatchInvariantGemmParams& params, void* stream) {
  using Large = LargeTile<kMaxSharedBytes>;
  const auto tiles = [](int count, int of) { return int64_t{(count + of - 1) / of}; };
  const int64_t num_large =
      tiles(params.num_rows, Large::kTileRows) * tiles(params.out_features, Large::kTileFeatures);
  if (num_large < num_sms())
    launch_tile<T, NarrowTile<kMaxSharedBytes>>(params, stream);
  else
    launch_tile<T, Large>(params, stream);
}

template <class T>
void launch_batch_invariant_gemm(const BatchInvariantGemmParams& params, void* stream) {
  if (max_skinny_rows() == kMaxRowsWithRoom)
    launch_with_shared<T, kLargeSharedBytes>(params, stream);
  else
    launch_with_shared<T, kSmallSharedBytes>(params, stream);
}

}  // namespace attend::kernels::cuda::sm80
