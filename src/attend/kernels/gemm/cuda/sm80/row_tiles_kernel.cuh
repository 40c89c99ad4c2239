// Dense layers in tiles of rows: the kernel and its launch, for x and weights of type T.
//
// Every output is summed in the order of few_rows_kernel.cuh, so that both give the same bits (ChunkOrder).
// Within a chunk the tensor cores take the same 16 inputs together.
#pragma once

#include "attend/kernels/common/cuda/element.cuh"
#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/common/cuda/ptx/copy.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/common/cuda/ptx/mma.cuh"
#include "attend/kernels/gemm/cuda/common/chunk_order.cuh"
#include "attend/kernels/gemm/cuda/common/row_tiles_kernel.h"
#include "attend/kernels/gemm/cuda/sm80/few_rows_ring.cuh"

namespace attend::kernels::cuda {

// A CTA's tile of the output and how its warps share it; all warps take pieces of 16 rows by 8 features.
// Copies are under way for as many chunks of inputs as the shared memory holds, but one.
template <int kTileFeatures_, int kFeatureWarps_, int kMostSharedBytes>
struct OutputTile {
  static constexpr int kWarps = 8, kThreads = 32 * kWarps;
  static constexpr int kTileRows = 128, kTileFeatures = kTileFeatures_;
  static constexpr int kFeatureWarps = kFeatureWarps_, kRowWarps = kWarps / kFeatureWarps;
  static constexpr int kWarpRows = kTileRows / kRowWarps, kWarpFeatures = kTileFeatures / kFeatureWarps;
  static constexpr int kRowPieces = kWarpRows / 16, kFeaturePieces = kWarpFeatures / kFeatures;
  static constexpr int kXBytes = kTileRows * kRowBytes;
  static constexpr int kStageBytes = kXBytes + kTileFeatures * kRowBytes;
  static constexpr int kStages = kMostSharedBytes / kStageBytes;
  static constexpr int kSharedBytes = kStages * kStageBytes;
  static_assert(kStages >= 3);
};
template <int kMostSharedBytes>
using LargeTile = OutputTile<128, 4, kMostSharedBytes>;
// For layers that have fewer large tiles than the GPU has SMs.
template <int kMostSharedBytes>
using NarrowTile = OutputTile<32, 2, kMostSharedBytes>;

template <class T, class Tile>
class RowTilesCta {
 public:
  __device__ RowTilesCta(const RowTilesParams& params, char* shared)
      : params_(params),
        shared_(ptx::shared_address(shared)),
        first_row_(static_cast<int>(blockIdx.x) * Tile::kTileRows),
        first_feature_(static_cast<int>(blockIdx.y) * Tile::kTileFeatures),
        num_chunks_((params.in_features + kChunkElements - 1) / kChunkElements) {}

  __device__ __forceinline__ void run() {
    start();
    ChunkOrder order{num_chunks_};
    Sums part = {}, total = {};
    const bool has_rows = first_row_ + warp_row() < params_.num_rows;
    int stage = 0;
#pragma unroll 1
    for (int i = 0; i < num_chunks_; ++i) {
      ptx::wait_copies<Tile::kStages - 2>();
      // Everyone's copies of this chunk are there, and nobody reads the one before.
      __syncthreads();
      if (copied_ < num_chunks_) {
        copy_weights(next_.chunk, copied_ % Tile::kStages);
        copy_x(next_.chunk, copied_ % Tile::kStages);
        ++copied_;
        next_.advance();
      }
      ptx::commit_copies();
      if (has_rows) multiply(shared_ + stage * Tile::kStageBytes, part);
      if (order.ends_part()) end_part(part, total);
      order.advance();
      stage = stage + 1 == Tile::kStages ? 0 : stage + 1;
    }
    if (has_rows) write(total);
  }

 private:
  // Lane l holds rows l / 4 and l / 4 + 8 of a piece, features 2 (l % 4) and the next.
  using Sums = float[Tile::kRowPieces][Tile::kFeaturePieces][4];

  __device__ int warp_row() const { return warp_ / Tile::kFeatureWarps * Tile::kWarpRows; }
  __device__ int warp_feature() const { return warp_ % Tile::kFeatureWarps * Tile::kWarpFeatures; }

  // Where in a stage a piece of a row lies, as in few_rows_ring.cuh.
  __device__ static uint32_t swizzled(int row, int piece) {
    return static_cast<uint32_t>(row * kRowBytes + (piece ^ (row & 7)) * 16);
  }

  // Weights do not depend on the kernel before, so the first of them come while it ends.
  __device__ __forceinline__ void start() {
    ChunkOrder weights{num_chunks_};
    for (int stage = 0; stage < Tile::kStages - 1 && stage < num_chunks_; ++stage) {
      copy_weights(weights.chunk, stage);
      weights.advance();
    }
    ptx::wait_for_previous_kernel();
    ptx::allow_next_kernel();
    for (int stage = 0; stage < Tile::kStages - 1; ++stage) {
      if (copied_ < num_chunks_) {
        copy_x(next_.chunk, stage);
        ++copied_;
        next_.advance();
      }
      ptx::commit_copies();
    }
  }

  template <int kRows>
  __device__ __forceinline__ void copy_rows(const void* from, int64_t row_stride, int first, int end,
                                            int chunk, uint32_t to) const {
#pragma unroll
    for (int i = 0; i < kRows * kPieces; i += Tile::kThreads) {
      const int row = (i + static_cast<int>(threadIdx.x)) / kPieces, piece = threadIdx.x % kPieces;
      const int input = chunk * kChunkElements + piece * 8;
      const bool given = first + row < end && input < params_.in_features;
      const int64_t element = given ? (first + row) * row_stride + input : 0;
      ptx::copy_async_16(to + swizzled(row, piece), static_cast<const char*>(from) + 2 * element, given);
    }
  }
  __device__ __forceinline__ void copy_x(int chunk, int stage) const {
    copy_rows<Tile::kTileRows>(params_.x, params_.x_stride, first_row_, params_.num_rows, chunk,
                               shared_ + stage * Tile::kStageBytes);
  }
  __device__ __forceinline__ void copy_weights(int chunk, int stage) const {
    copy_rows<Tile::kTileFeatures>(params_.weight, params_.in_features, first_feature_, params_.out_features,
                                   chunk, shared_ + stage * Tile::kStageBytes + Tile::kXBytes);
  }

  // Adds one chunk, 16 inputs at a time.
  __device__ __forceinline__ void multiply(uint32_t stage, Sums& sums) const {
    const uint32_t weights_lane = swizzled(lane_ % 8, lane_ / 8), x_lane = swizzled(lane_ % 16, lane_ / 16);
    const uint32_t x_from = stage + warp_row() * kRowBytes;
    const uint32_t weights_from = stage + Tile::kXBytes + warp_feature() * kRowBytes;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      uint32_t weights[Tile::kFeaturePieces][4];
#pragma unroll
      for (int n = 0; n < Tile::kFeaturePieces; ++n)
        ptx::load_matrices(weights[n],
                           weights_from + n * kFeatures * kRowBytes + (weights_lane ^ (half * 64)));
#pragma unroll
      for (int m = 0; m < Tile::kRowPieces; ++m) {
        uint32_t x[2][4];
#pragma unroll
        for (int step = 0; step < 2; ++step)
          ptx::load_matrices(x[step], x_from + m * 16 * kRowBytes + (x_lane ^ (half * 64 + step * 32)));
#pragma unroll
        for (int n = 0; n < Tile::kFeaturePieces; ++n)
#pragma unroll
          for (int step = 0; step < 2; ++step)
            ptx::multiply_add(sums[m][n], x[step], weights[n][2 * step], weights[n][2 * step + 1], T{});
      }
    }
  }

  __device__ __forceinline__ static void end_part(Sums& part, Sums& total) {
#pragma unroll
    for (int m = 0; m < Tile::kRowPieces; ++m)
#pragma unroll
      for (int n = 0; n < Tile::kFeaturePieces; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          total[m][n][i] += part[m][n][i];
          part[m][n][i] = 0.0f;
        }
  }

  __device__ __forceinline__ void write(const Sums& total) const {
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

  const RowTilesParams& params_;
  const uint32_t shared_;
  const int first_row_, first_feature_, num_chunks_;
  const int warp_ = static_cast<int>(threadIdx.x) / 32, lane_ = static_cast<int>(threadIdx.x) % 32;
  ChunkOrder next_{num_chunks_};  // what is copied next
  int copied_ = 0;                // chunks
};

// A CTA per tile; those that share weights come together.
template <class T, class Tile>
__global__ void __launch_bounds__(Tile::kThreads, 1)
    row_tiles_kernel(const __grid_constant__ RowTilesParams params) {
  extern __shared__ __align__(128) char shared[];
  RowTilesCta<T, Tile>(params, shared).run();
}

template <class T, class Tile>
void launch_row_tile(const RowTilesParams& params, void* stream) {
  constexpr auto kKernel = row_tiles_kernel<T, Tile>;
  const auto tiles = [](int count, int of) { return static_cast<unsigned>((count + of - 1) / of); };
  allow_shared_memory<kKernel>(Tile::kSharedBytes, "linear: shared memory");
  launch_dependent<RowTilesParams>(
      kKernel, dim3(tiles(params.num_rows, Tile::kTileRows), tiles(params.out_features, Tile::kTileFeatures)),
      Tile::kThreads, Tile::kSharedBytes, stream, params, "linear");
}

template <class T, int kMostSharedBytes>
void launch_with_shared(const RowTilesParams& params, void* stream) {
  using Large = LargeTile<kMostSharedBytes>;
  const auto tiles = [](int count, int of) { return int64_t{(count + of - 1) / of}; };
  const int64_t num_large =
      tiles(params.num_rows, Large::kTileRows) * tiles(params.out_features, Large::kTileFeatures);
  if (num_large < num_sms())
    launch_row_tile<T, NarrowTile<kMostSharedBytes>>(params, stream);
  else
    launch_row_tile<T, Large>(params, stream);
}

template <class T>
void launch_row_tiles(const RowTilesParams& params, void* stream) {
  if (max_few_rows() == kMaxRowsWithRoom)
    launch_with_shared<T, kLargeSharedBytes>(params, stream);
  else
    launch_with_shared<T, kSmallSharedBytes>(params, stream);
}

}  // namespace attend::kernels::cuda
