// Per-head GEMM: out[t, h] = W_h x[t, h] with mma.sync, with W_h read in its own layout or transposed.
//
//   tile        of one head: 16 tokens x 32 or 64 features, 64 x 32 or 64, 128 x 128; K-blocks of 64
//   warps       4 (16 tokens) or 8, all alike: all copy with cp.async and multiply with mma.m16n8k16,
//               inputs in ascending order, so a token's bits do not depend on the tile
//   registers   128 at most: two CTAs per SM
//   shared      stages of 6 to 32 KB: one per K-block, up to eight in 96 KB
//   bytes       per stage: 128 for each token of x and each feature of W
//   bound       bytes of W for few tokens, tensor cores for many
#pragma once

#include <algorithm>

#include "attend/kernels/common/cuda/device_attribute.h"
#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/common/cuda/ptx/copy.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/common/cuda/ptx/mma.cuh"
#include "attend/kernels/gemm/cuda/common/k_block_order.cuh"
#include "attend/kernels/gemm/cuda/sm80/skinny_gemm_kernel.h"
#include "attend/kernels/gemm/cuda/sm80/tiled_gemm.h"

namespace attend::kernels::cuda::sm80 {

// Output tile of a CTA for one head, and the part of each warp. kTransposed: W is stored as [inputs,
// features].
template <int kTokens_, int kFeatures_, int kTokenWarps, bool kTransposed_>
struct HeadTile {
  static constexpr bool kTransposed = kTransposed_;
  static constexpr int kTokens = kTokens_, kTileFeatures = kFeatures_;
  static constexpr int kWarps = kTokens == 16 ? 4 : 8, kThreads = 32 * kWarps;
  static constexpr int kFeatureWarps = kWarps / kTokenWarps;
  static constexpr int kWarpTokens = kTokens / kTokenWarps, kWarpFeatures = kTileFeatures / kFeatureWarps;
  static constexpr int kTokenPieces = kWarpTokens / 16, kFeaturePieces = kWarpFeatures / kFeatures;
  static constexpr int kXBytes = kTokens * kRowBytes;
  static constexpr int kStageBytes = kXBytes + kTileFeatures * kRowBytes;
  static constexpr int kStages = (96 << 10) / kStageBytes < 8 ? (96 << 10) / kStageBytes : 8;
  static_assert(kStages >= 3 && kTokenPieces * 16 == kWarpTokens &&
                kFeaturePieces * kFeatures == kWarpFeatures);
  // Rows of transposed W in shared memory are inputs, in panels of 64 features: 128 bytes per input.
  static constexpr int kPanelBytes = kBlockK * kRowBytes;
  static_assert(!kTransposed || kTileFeatures % 64 == 0);
};

__device__ inline void store_pair(void* out, int64_t i, float a, float b, __nv_bfloat16) {
  *reinterpret_cast<__nv_bfloat162*>(static_cast<__nv_bfloat16*>(out) + i) = __floats2bfloat162_rn(a, b);
}
__device__ inline void store_pair(void* out, int64_t i, float a, float b, __half) {
  *reinterpret_cast<__half2*>(static_cast<__half*>(out) + i) = __floats2half2_rn(a, b);
}

template <class T, class Tile>
class HeadGemmCta {
 public:
  __device__ HeadGemmCta(const HeadLinearParams& params, char* shared)
      : params_(params),
        shared_(ptx::shared_address(shared)),
        first_token_(static_cast<int>(blockIdx.x) * Tile::kTokens),
        first_feature_(static_cast<int>(blockIdx.y) * Tile::kTileFeatures),
        head_(static_cast<int>(blockIdx.z)),
        num_k_blocks_((params.in_features + kBlockK - 1) / kBlockK),
        weight_(static_cast<const T*>(params.weight) + head_ * params.weight_head_stride),
        x_(static_cast<const T*>(params.x.data) + head_ * params.x.head_stride) {}

  __device__ __forceinline__ void run() {
    // W does not depend on the previous kernel, so its first stages are loaded while that kernel finishes.
    const int num_first = min(Tile::kStages, num_k_blocks_);
    for (int k_block = 0; k_block < num_first; ++k_block) copy_weights(k_block, k_block);
    ptx::griddepcontrol_wait();
    ptx::launch_dependents();
#pragma unroll 1
    for (int k_block = 0; k_block < Tile::kStages; ++k_block) {
      if (k_block < num_first) copy_x(k_block, k_block);
      ptx::cp_async_commit_group();
    }
    const bool has_tokens = first_token_ + warp_token() < params_.num_tokens;
    Accumulators accumulators = {};
    int stage = 0;
#pragma unroll 1
    for (int k_block = 0; k_block < num_k_blocks_; ++k_block) {
      // All threads' copies of this K-block have arrived.
      ptx::cp_async_wait_group<Tile::kStages - 1>();
      __syncthreads();
      if (has_tokens) multiply(shared_ + stage * Tile::kStageBytes, accumulators);
      if (const int next = k_block + Tile::kStages; next < num_k_blocks_) {
        __syncthreads();  // no warp reads the stage any more
        copy_weights(next, stage);
        copy_x(next, stage);
      }
      ptx::cp_async_commit_group();
      stage = stage + 1 == Tile::kStages ? 0 : stage + 1;
    }
    if (has_tokens) write(accumulators);
  }

 private:
  // Lane l holds tokens l / 4 and l / 4 + 8 of a piece, features 2 (l % 4) and 2 (l % 4) + 1.
  using Accumulators = float[Tile::kTokenPieces][Tile::kFeaturePieces][4];

  __device__ int warp_token() const { return warp_ / Tile::kFeatureWarps * Tile::kWarpTokens; }
  __device__ int warp_feature() const { return warp_ % Tile::kFeatureWarps * Tile::kWarpFeatures; }

  __device__ __forceinline__ void copy_x(int k_block, int stage) const {
    const uint32_t to = shared_ + stage * Tile::kStageBytes;
#pragma unroll 2
    for (int i = 0; i < Tile::kTokens * kPieces; i += Tile::kThreads) {
      const int row = (i + static_cast<int>(threadIdx.x)) / kPieces,
                piece = static_cast<int>(threadIdx.x) % kPieces;
      const int input = k_block * kBlockK + piece * 8;
      const bool given = first_token_ + row < params_.num_tokens && input < params_.in_features;
      const int64_t element = given ? (first_token_ + row) * params_.x.token_stride + input : 0;
      ptx::cp_async_16(to + swizzled_piece(row, piece), x_ + element, given);
    }
  }

  __device__ __forceinline__ void copy_weights(int k_block, int stage) const {
    const uint32_t to = shared_ + stage * Tile::kStageBytes + Tile::kXBytes;
    if constexpr (Tile::kTransposed) {
      constexpr int kPiecesPerInput = Tile::kTileFeatures / 8;
#pragma unroll 2
      for (int i = 0; i < kBlockK * kPiecesPerInput; i += Tile::kThreads) {
        const int at = i + static_cast<int>(threadIdx.x);
        const int row = at / kPiecesPerInput, piece = at % kPiecesPerInput;
        const int input = k_block * kBlockK + row, feature = first_feature_ + piece * 8;
        const bool given = input < params_.in_features && feature < params_.out_features;
        const int64_t element = given ? input * params_.weight_in_stride + feature : 0;
        ptx::cp_async_16(to + piece / kPieces * Tile::kPanelBytes + swizzled_piece(row, piece % kPieces),
                         weight_ + element, given);
      }
    } else {
#pragma unroll 2
      for (int i = 0; i < Tile::kTileFeatures * kPieces; i += Tile::kThreads) {
        const int row = (i + static_cast<int>(threadIdx.x)) / kPieces,
                  piece = static_cast<int>(threadIdx.x) % kPieces;
        const int input = k_block * kBlockK + piece * 8, feature = first_feature_ + row;
        const bool given = feature < params_.out_features && input < params_.in_features;
        const int64_t element = given ? feature * params_.weight_out_stride + input : 0;
        ptx::cp_async_16(to + swizzled_piece(row, piece), weight_ + element, given);
      }
    }
  }

  // Loads inputs 32 half to 32 half + 31 of eight features of this warp, in the layout of mma.m16n8k16.
  __device__ __forceinline__ void load_weights(uint32_t (&fragments)[4], uint32_t weights, int n,
                                               int half) const {
    if constexpr (Tile::kTransposed) {
      const int piece = warp_feature() / 8 + n;
      ptx::ldmatrix_x4_trans(fragments, weights + piece / kPieces * Tile::kPanelBytes +
                                            swizzled_piece(half * 32 + lane_, piece % kPieces));
    } else {
      ptx::ldmatrix_x4(fragments, weights + (warp_feature() + n * kFeatures) * kRowBytes +
                                      (swizzled_piece(lane_ % 8, lane_ / 8) ^ (half * 64)));
    }
  }

  // Multiplies one K-block, 16 inputs per mma.
  __device__ __forceinline__ void multiply(uint32_t stage, Accumulators& accumulators) const {
    const uint32_t x_lane = swizzled_piece(lane_ % 16, lane_ / 16);
    const uint32_t x_from = stage + warp_token() * kRowBytes;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      uint32_t weights[Tile::kFeaturePieces][4];
#pragma unroll
      for (int n = 0; n < Tile::kFeaturePieces; ++n) load_weights(weights[n], stage + Tile::kXBytes, n, half);
#pragma unroll
      for (int m = 0; m < Tile::kTokenPieces; ++m)
#pragma unroll
        for (int step = 0; step < 2; ++step) {
          uint32_t x[4];
          ptx::ldmatrix_x4(x, x_from + m * 16 * kRowBytes + (x_lane ^ (half * 64 + step * 32)));
#pragma unroll
          for (int n = 0; n < Tile::kFeaturePieces; ++n)
            ptx::mma_m16n8k16(accumulators[m][n], x, weights[n][2 * step], weights[n][2 * step + 1], T{});
        }
    }
  }

  __device__ __forceinline__ void write(const Accumulators& accumulators) const {
#pragma unroll
    for (int n = 0; n < Tile::kFeaturePieces; ++n) {
      const int feature = first_feature_ + warp_feature() + n * kFeatures + 2 * (lane_ % 4);
      if (feature >= params_.out_features) continue;
#pragma unroll
      for (int m = 0; m < Tile::kTokenPieces; ++m)
#pragma unroll
        for (int high = 0; high < 2; ++high) {
          const int token = first_token_ + warp_token() + m * 16 + high * 8 + lane_ / 4;
          if (token >= params_.num_tokens) continue;
          store_pair(params_.out.data,
                     token * params_.out.token_stride + head_ * params_.out.head_stride + feature,
                     accumulators[m][n][2 * high], accumulators[m][n][2 * high + 1], T{});
        }
    }
  }

  const HeadLinearParams& params_;
  const uint32_t shared_;
  const int first_token_, first_feature_, head_, num_k_blocks_;
  const T* const weight_;
  const T* const x_;
  const int warp_ = static_cast<int>(threadIdx.x) / 32, lane_ = static_cast<int>(threadIdx.x) % 32;
};

template <class T, class Tile>
__global__ void __launch_bounds__(Tile::kThreads, 2)
    head_gemm_kernel(const __grid_constant__ HeadLinearParams params) {
  extern __shared__ __align__(128) char shared[];
  HeadGemmCta<T, Tile>(params, shared).run();
}

constexpr int64_t count_tiles(int count, int tile) { return (count + tile - 1) / tile; }

template <class Tile>
int64_t num_head_tiles(const HeadLinearParams& params) {
  return count_tiles(params.num_tokens, Tile::kTokens) *
         count_tiles(params.out_features, Tile::kTileFeatures) * params.num_heads;
}

template <class T, class Tile>
void launch_head_tile(const HeadLinearParams& params, void* stream) {
  constexpr auto kKernel = head_gemm_kernel<T, Tile>;
  const int64_t num_stages = std::min<int64_t>(Tile::kStages, count_tiles(params.in_features, kBlockK));
  allow_shared_memory<kKernel>(Tile::kStages * Tile::kStageBytes, "head_linear: shared memory");
  launch_dependent<HeadLinearParams>(
      kKernel,
      dim3(static_cast<unsigned>(count_tiles(params.num_tokens, Tile::kTokens)),
           static_cast<unsigned>(count_tiles(params.out_features, Tile::kTileFeatures)),
           static_cast<unsigned>(params.num_heads)),
      Tile::kThreads, static_cast<size_t>(num_stages * Tile::kStageBytes), stream, params, "head_linear");
}

// Selects tall tiles for many tokens. If features are contiguous in K, selects narrow ones while SMs would be
// idle.
template <class T, bool kTransposed>
void launch_head_gemm_tiles(const HeadLinearParams& params, void* stream) {
  using Large = HeadTile<128, 128, 2, kTransposed>;
  using Medium = HeadTile<64, 64, 2, kTransposed>;
  using Small = HeadTile<16, 64, 1, kTransposed>;
  if (params.num_tokens > 64 && num_head_tiles<Large>(params) >= num_sms())
    return launch_head_tile<T, Large>(params, stream);
  const bool few = params.num_tokens <= 16;
  if constexpr (!kTransposed) {
    if ((few ? num_head_tiles<Small>(params) : num_head_tiles<Medium>(params)) < num_sms())
      return few ? launch_head_tile<T, HeadTile<16, 32, 1, false>>(params, stream)
                 : launch_head_tile<T, HeadTile<64, 32, 4, false>>(params, stream);
  }
  if (few) return launch_head_tile<T, Small>(params, stream);
  launch_head_tile<T, Medium>(params, stream);
}

template <class T>
void launch_head_gemm(const HeadLinearParams& params, void* stream) {
  if (params.weight_in_stride == 1)
    launch_head_gemm_tiles<T, false>(params, stream);
  else
    launch_head_gemm_tiles<T, true>(params, stream);
}

}  // namespace attend::kernels::cuda::sm80
