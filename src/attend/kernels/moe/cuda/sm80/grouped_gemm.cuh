// Grouped GEMM: x W^T of each expert for its rows, on mma.sync.
//
//   tile        16 rows x 64 rows of W (few rows per expert: bound by reading W), or 64 x 128 (many rows); of
//               one expert. If gated, half of the rows of W are gate, half are up of the same outputs.
//               K-blocks of 64
//   warps       4 with 16 rows x 16 rows of W each; or 8, 2 x 4 of 32 x 32: all copy with cp.async and
//               multiply with mma.m16n8k16. If gated, a warp has gate and up of its outputs in the same lanes
//   registers   8 or 32 accumulators
//   shared      6 stages of 10 KB, or 4 stages of 24 KB
//   bytes       W once per tile of rows, from memory the first time; x once per tile of outputs
//   bound       reading W; with many rows tensor cores
//
// In every tile, outputs of a row are sums over K-blocks in the same order: their bits do not depend on the
// tile.
#pragma once

#include "attend/kernels/common/cuda/element.cuh"
#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/common/cuda/ptx/copy.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/common/cuda/ptx/mma.cuh"
#include "attend/kernels/gemm/cuda/common/k_block_order.cuh"
#include "attend/kernels/moe/cuda/common/grouped_tile.cuh"
#include "attend/kernels/moe/cuda/sm80/grouped_gemm_kernel.h"

namespace attend::kernels::cuda::sm80 {

inline constexpr int kPieceFeatures = 8;  // rows of W of one mma (n8)

// Tile of a CTA, and the pieces of 16 rows x 8 rows of W of each warp.
template <int kTileRows_, int kTileFeatures_, int kRowWarps_, int kFeatureWarps_, int kStages_>
struct ExpertTile {
  static constexpr int kRowWarps = kRowWarps_, kFeatureWarps = kFeatureWarps_;
  static constexpr int kThreads = 32 * kRowWarps * kFeatureWarps;
  static constexpr int kTileRows = kTileRows_, kTileFeatures = kTileFeatures_;
  static constexpr int kWarpRows = kTileRows / kRowWarps, kWarpFeatures = kTileFeatures / kFeatureWarps;
  static constexpr int kRowPieces = kWarpRows / 16, kFeaturePieces = kWarpFeatures / kPieceFeatures;
  static constexpr int kXBytes = kTileRows * kRowBytes;
  static constexpr int kStages = kStages_;
  static constexpr int kStageBytes = kXBytes + kTileFeatures * kRowBytes;
  static constexpr int kSharedBytes = kStages * kStageBytes;
  // 16-byte copies per thread and stage, of rows with a stride of kThreads / kPieces.
  static constexpr int kXCopies = kTileRows * kPieces / kThreads;
  static constexpr int kWeightCopies = kTileFeatures * kPieces / kThreads;
  static_assert(kXCopies >= 1 && kTileRows * kPieces % kThreads == 0 &&
                kTileFeatures * kPieces % kThreads == 0 && kFeaturePieces % 2 == 0);
};
using SmallTile = ExpertTile<kSmallTileRows, 64, 1, 4, 6>;
using LargeTile = ExpertTile<kLargeTileRows, 128, 2, 4, 4>;

template <class T, class Tile, bool kGated>
class GroupedGemmCta {
 public:
  static constexpr int kOutputs = kGated ? Tile::kTileFeatures / 2 : Tile::kTileFeatures;

  __device__ GroupedGemmCta(const GroupedGemmParams& params, const GroupedTile& tile, char* shared)
      : params_(params),
        tile_(tile),
        shared_(ptx::shared_address(shared)),
        num_k_blocks_((params.in_features + kBlockK - 1) / kBlockK) {
#pragma unroll
    for (int i = 0; i < Tile::kXCopies; ++i) {
      const int row = tile.first_row + copied_row(i);
      x_begin_[i] = row >= tile.end_row
                        ? -1
                        : (params.row_token != nullptr ? params.row_token[row] : row) * params.x_stride;
    }
#pragma unroll
    for (int i = 0; i < Tile::kWeightCopies; ++i) weight_begin_[i] = weight_begin(copied_row(i));
  }

  __device__ __forceinline__ void run() {
    for (int stage = 0; stage < Tile::kStages - 1; ++stage) copy(stage, stage);
    Accumulators accumulators = {};
#pragma unroll 1
    for (int k_block = 0; k_block < num_k_blocks_; ++k_block) {
      ptx::cp_async_wait_group<Tile::kStages - 2>();
      // All threads' copies of this K-block have arrived, and no warp reads the previous one.
      __syncthreads();
      const int next = k_block + Tile::kStages - 1;
      copy(next, next % Tile::kStages);
      multiply(shared_ + k_block % Tile::kStages * Tile::kStageBytes, accumulators);
    }
    write(accumulators);
  }

 private:
  // Lane l holds rows l / 4 and l / 4 + 8 of a piece, features 2 (l % 4) and 2 (l % 4) + 1.
  using Accumulators = float[Tile::kRowPieces][Tile::kFeaturePieces][4];

  __device__ int warp_row() const { return warp_ / Tile::kFeatureWarps * Tile::kWarpRows; }
  __device__ int feature_warp() const { return warp_ % Tile::kFeatureWarps; }
  __device__ int copied_row(int i) const {
    return (i * Tile::kThreads + static_cast<int>(threadIdx.x)) / kPieces;
  }
  // Returns the output of a row of W in the tile. The first half of a warp's rows is gate, the second half is
  // up.
  __device__ int find_output(int tile_feature) const {
    const int first = static_cast<int>(blockIdx.y) * kOutputs;
    if (!kGated) return first + tile_feature;
    constexpr int kHalf = Tile::kWarpFeatures / 2;
    return first + tile_feature / Tile::kWarpFeatures * kHalf + tile_feature % kHalf;
  }
  // Returns the index of the first element of the row of W, or -1 for none.
  __device__ int64_t weight_begin(int tile_feature) const {
    const int output = find_output(tile_feature);
    if (output >= params_.out_features) return -1;
    const bool up = kGated && tile_feature % Tile::kWarpFeatures >= Tile::kWarpFeatures / 2;
    return expert_weight_row(params_, tile_.expert, up ? 1 : 0, output) * params_.in_features;
  }

  template <int kCopies>
  __device__ __forceinline__ void copy_rows(const void* from, const int64_t (&begins)[kCopies], int k_block,
                                            uint32_t to) const {
    const int piece = static_cast<int>(threadIdx.x) % kPieces, input = k_block * kBlockK + piece * 8;
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      const bool given = begins[i] >= 0 && input < params_.in_features;
      const int64_t element = given ? begins[i] + input : 0;
      ptx::cp_async_16(to + swizzled_piece(copied_row(i), piece),
                       static_cast<const char*>(from) + 2 * element, given);
    }
  }
  // Commits a cp.async group even past the last K-block, so that groups count stages.
  __device__ __forceinline__ void copy(int k_block, int stage) const {
    if (k_block < num_k_blocks_) {
      const uint32_t to = shared_ + stage * Tile::kStageBytes;
      copy_rows(params_.x, x_begin_, k_block, to);
      copy_rows(params_.weight.data, weight_begin_, k_block, to + Tile::kXBytes);
    }
    ptx::cp_async_commit_group();
  }

  // Multiplies one K-block, 16 inputs per mma.
  __device__ __forceinline__ void multiply(uint32_t stage, Accumulators& accumulators) const {
    const uint32_t weights_lane = swizzled_piece(lane_ % 8, lane_ / 8),
                   x_lane = swizzled_piece(lane_ % 16, lane_ / 16);
    const uint32_t x_from = stage + warp_row() * kRowBytes;
    const uint32_t weights_from = stage + Tile::kXBytes + feature_warp() * Tile::kWarpFeatures * kRowBytes;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      uint32_t weights[Tile::kFeaturePieces][4];
#pragma unroll
      for (int n = 0; n < Tile::kFeaturePieces; ++n)
        ptx::ldmatrix_x4(weights[n],
                         weights_from + n * kPieceFeatures * kRowBytes + (weights_lane ^ (half * 64)));
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

  __device__ __forceinline__ void write(const Accumulators& accumulators) const {
    constexpr int kOutputPieces = kGated ? Tile::kFeaturePieces / 2 : Tile::kFeaturePieces;
#pragma unroll
    for (int n = 0; n < kOutputPieces; ++n)
#pragma unroll
      for (int column = 0; column < 2; ++column) {
        const int output =
            find_output(feature_warp() * Tile::kWarpFeatures + n * kPieceFeatures + 2 * (lane_ % 4) + column);
        if (output >= params_.out_features) continue;
#pragma unroll
        for (int m = 0; m < Tile::kRowPieces; ++m)
#pragma unroll
          for (int high = 0; high < 2; ++high) {
            const int row = tile_.first_row + warp_row() + m * 16 + high * 8 + lane_ / 4;
            if (row >= tile_.end_row) continue;
            const int i = 2 * high + column;
            float up = 0.0f;
            if constexpr (kGated) up = accumulators[m][n + kOutputPieces][i];
            const float value = expert_output(params_, tile_.expert, row, output, accumulators[m][n][i], up);
            static_cast<T*>(params_.out)[int64_t{row} * params_.out_features + output] = T(value);
          }
      }
  }

  const GroupedGemmParams& params_;
  const GroupedTile tile_;
  const uint32_t shared_;
  const int num_k_blocks_;
  const int warp_ = static_cast<int>(threadIdx.x) / 32, lane_ = static_cast<int>(threadIdx.x) % 32;
  // Indices of the first elements of the rows that this thread copies; -1: none.
  int64_t x_begin_[Tile::kXCopies], weight_begin_[Tile::kWeightCopies];
};

// Grid: one CTA per tile. CTAs of the same expert are neighbors.
template <class T, class Tile, bool kGated>
__global__ void __launch_bounds__(Tile::kThreads)
    grouped_gemm_kernel(const __grid_constant__ GroupedGemmParams params) {
  extern __shared__ __align__(128) char shared[];
  ptx::griddepcontrol_wait();
  ptx::launch_dependents();
  const GroupedTile tile = find_grouped_tile<Tile::kThreads, Tile::kTileRows>(params);
  if (tile.expert < 0) return;
  GroupedGemmCta<T, Tile, kGated>(params, tile, shared).run();
}

template <class T, class Tile, bool kGated>
void launch_expert_tiles(const GroupedGemmParams& params, void* stream) {
  constexpr auto kKernel = grouped_gemm_kernel<T, Tile, kGated>;
  constexpr int kOutputs = GroupedGemmCta<T, Tile, kGated>::kOutputs;
  allow_shared_memory<kKernel>(Tile::kSharedBytes, "moe_experts: shared memory");
  launch_dependent<GroupedGemmParams>(
      kKernel,
      dim3(static_cast<unsigned>(params.num_tiles),
           static_cast<unsigned>((params.out_features + kOutputs - 1) / kOutputs)),
      Tile::kThreads, Tile::kSharedBytes, stream, params, "moe_experts");
}

template <class T>
void launch_grouped_gemm(const GroupedGemmParams& params, int tile_rows, void* stream) {
  const bool few = tile_rows == kSmallTileRows;
  if (params.gated)
    few ? launch_expert_tiles<T, SmallTile, true>(params, stream)
        : launch_expert_tiles<T, LargeTile, true>(params, stream);
  else
    few ? launch_expert_tiles<T, SmallTile, false>(params, stream)
        : launch_expert_tiles<T, LargeTile, false>(params, stream);
}

}  // namespace attend::kernels::cuda::sm80
