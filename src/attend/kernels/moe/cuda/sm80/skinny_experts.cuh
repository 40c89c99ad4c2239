// Experts with few rows each, as in decode batches: bound by reading the weights of the experts with rows.
//
//   tile        16 outputs (gated: gate and up of each) x 8 rows of one expert; K-blocks are distributed over
//               the warps (sliced-K)
//   work        a CTA has an even share of all tiles; or 16 outputs of all experts, one after another, and
//               then sums a token's experts
//   warps       8, all alike: each loads its own K-blocks with cp.async, both W and rows of x, multiplies
//               them (expert_blocks.cuh) and stores partial sums in shared memory, which are added in the
//               order of K
//   registers   80 to 128
//   shared      stages of 3 to 5 KB per warp, partial sums twice, and the rows of all experts
//   bytes       W once per tile of rows; x once per tile, from L2
//   bound       reading W; with mxfp4 dequantizing it
//
// The tokens' experts are available before the first product starts, so the second product loads W while the
// first one finishes.
#pragma once

#include <algorithm>

#include "attend/kernels/common/cuda/device_attribute.h"
#include "attend/kernels/common/cuda/element.cuh"
#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/common/cuda/ptx/copy.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/gemm/cuda/sm80/skinny_gemm_kernel.h"
#include "attend/kernels/moe/cuda/common/expert_rows.cuh"
#include "attend/kernels/moe/cuda/common/grouped_tile.cuh"
#include "attend/kernels/moe/cuda/sm80/expert_blocks.cuh"
#include "attend/kernels/moe/cuda/sm80/skinny_experts_kernel.h"

namespace attend::kernels::cuda::sm80 {

enum class ExpertProduct : uint8_t { kGated, kRows, kSums };

// kRowPieces: pieces of eight rows of x. `Blocks`: policy of a warp's K-block (expert_blocks.cuh).
template <ExpertProduct kProduct_, template <class, int, int> class Blocks_, int kRowPieces_, int kMaxPairs_,
          int kStages_, int kCtasOfSm_>
struct SkinnyExpertsConfig {
  static constexpr ExpertProduct kProduct = kProduct_;
  static constexpr bool kGated = kProduct == ExpertProduct::kGated, kSums = kProduct == ExpertProduct::kSums;
  static constexpr int kRowPieces = kRowPieces_, kStages = kStages_, kMaxPairs = kMaxPairs_;
  static constexpr int kCtasPerSm = kCtasOfSm_;
  static constexpr int kWarps = kKSlices, kThreads = 32 * kWarps;
  static constexpr int kTileRows = 8 * kRowPieces;
  static constexpr int kHalves = kGated ? 2 : 1;  // gate and up
  template <class T>
  using Blocks = Blocks_<T, kHalves, kRowPieces>;
  static constexpr int kStageBytes = Blocks<__nv_bfloat16>::kStageBytes;  // per warp
  // Sums of a slice of K: the outputs of a row of x are contiguous, with a row stride that avoids bank
  // conflicts.
  static constexpr int kSumStride = 20;
  static constexpr int kSumsPerHalf = kTileRows * kSumStride, kSumsPerSlice = kHalves * kSumsPerHalf;
  static constexpr int kSumBytes = 2 * kKSlices * kSumsPerSlice * static_cast<int>(sizeof(float));
  static constexpr int kPipelineBytes = kWarps * kStages * kStageBytes;
  using Rows = ExpertRows<kThreads, kTileRows, kMaxPairs>;
  static constexpr int kRowsBytes = (static_cast<int>(sizeof(Rows)) + 15) / 16 * 16;
  // kSums needs space for the tokens' sums over their experts.
  static constexpr int shared_bytes(int num_tokens) {
    return kPipelineBytes + kSumBytes + kRowsBytes +
           (kSums ? num_tokens * kSkinnyOutputs * static_cast<int>(sizeof(float)) : 0);
  }
  static constexpr int kMaxSharedBytes = shared_bytes(std::min(kMaxPairs, kMaxSkinnyTokens));
  static_assert(kCtasPerSm * (kMaxSharedBytes + 1024) <= kLargeSharedBytes + 1024);
};

template <class T, class Config>
class SkinnyExpertsCta {
  using Rows = typename Config::Rows;
  using Blocks = typename Config::template Blocks<T>;
  using Accumulators = typename Blocks::Accumulators;
  static constexpr int kXCopies = Config::kTileRows / Blocks::kXRowsAtOnce;

 public:
  __device__ SkinnyExpertsCta(const SkinnyExpertsParams& params, char* shared)
      : params_(params),
        blocks_(params),
        sums_(reinterpret_cast<float*>(shared + Config::kPipelineBytes)),
        rows_(*reinterpret_cast<Rows*>(shared + Config::kPipelineBytes + Config::kSumBytes)),
        out_sums_(reinterpret_cast<float*>(shared + Config::kPipelineBytes + Config::kSumBytes +
                                           Config::kRowsBytes)),
        stages_(ptx::shared_address(shared) + warp() * Config::kStages * Config::kStageBytes),
        num_k_blocks_((params.in_features + Blocks::kInputs - 1) / Blocks::kInputs),
        chunks_(params.out_features / kSkinnyOutputs) {}

  __device__ __forceinline__ void run() {
    if constexpr (Config::kGated) {
      ptx::griddepcontrol_wait();
      // Not before the wait: the next kernel reads data early that the previous kernel has written.
      ptx::launch_dependents();
    }
    rows_.sort(params_.experts, params_.num_tokens * params_.top_k, params_.top_k, params_.num_experts);
    if constexpr (Config::kSums) {
      begin_ = 0;
      end_ = rows_.num_tiles();
      begin_sums();
    } else {
      const int64_t num_work_tiles = int64_t{rows_.num_tiles()} * chunks_;
      begin_ = static_cast<int>(num_work_tiles * blockIdx.x / gridDim.x);
      end_ = static_cast<int>(num_work_tiles * (blockIdx.x + 1) / gridDim.x);
    }
    fill();
    for (int work_tile_idx = begin_; work_tile_idx < end_; ++work_tile_idx) multiply_work_tile(work_tile_idx);
    if constexpr (Config::kSums) write_sums();
  }

 private:
  struct WorkTile {
    typename Rows::Tile tile;
    int first_output;
    int first_k_block;  // of the warp: its slice of K depends only on the tile's position in the weight
  };
  // Position of the next copy.
  struct Cursor {
    int work_tile_idx, k_block;
    typename Blocks::From from;
    int64_t x_rows[kXCopies];  // byte offsets of the rows that the lane copies; -1: none
  };

  __device__ static int warp() { return static_cast<int>(threadIdx.x) / 32; }
  __device__ static int lane() { return static_cast<int>(threadIdx.x) % 32; }

  __device__ __forceinline__ WorkTile work_tile_at(int work_tile_idx) const {
    const int tile = Config::kSums ? work_tile_idx : work_tile_idx / chunks_;
    const int chunk = Config::kSums ? static_cast<int>(blockIdx.x) : work_tile_idx % chunks_;
    WorkTile of;
    of.tile = rows_.tile(tile);
    of.first_output = chunk * kSkinnyOutputs;
    // The longer slices rotate among the warps.
    const int turn = num_k_blocks_ % kKSlices * (Config::kSums ? of.tile.expert : chunk);
    of.first_k_block = (warp() - turn) & (kKSlices - 1);
    return of;
  }

  __device__ __forceinline__ void begin_work_tile(Cursor& cursor) const {
    for (; cursor.work_tile_idx < end_; ++cursor.work_tile_idx) {
      const WorkTile of = work_tile_at(cursor.work_tile_idx);
      cursor.k_block = of.first_k_block;
      if (cursor.k_block >= num_k_blocks_) continue;
      cursor.from = blocks_.from(of.tile.expert, of.first_output);
#pragma unroll
      for (int i = 0; i < kXCopies; ++i)
        cursor.x_rows[i] = x_row(of.tile, Blocks::lane_x_row() + i * Blocks::kXRowsAtOnce);
      return;
    }
  }
  __device__ __forceinline__ int64_t x_row(const typename Rows::Tile& tile, int row) const {
    if (row >= tile.num_rows) return -1;
    const int pair = rows_.row_pair(tile.first_row + row);
    return 2 * int64_t{Config::kGated ? pair / params_.top_k : pair} * params_.in_features;
  }
  __device__ __forceinline__ Cursor begin() const {
    Cursor cursor{.work_tile_idx = begin_, .k_block = 0, .from = blocks_.from(0, 0), .x_rows = {}};
    begin_work_tile(cursor);
    return cursor;
  }
  __device__ __forceinline__ void advance(Cursor& cursor) const {
    cursor.k_block += kKSlices;
    if (cursor.k_block < num_k_blocks_) return;
    ++cursor.work_tile_idx;
    begin_work_tile(cursor);
  }

  __device__ __forceinline__ void copy_weights(const Cursor& cursor, uint32_t stage) const {
    blocks_.copy_weights(cursor.from, cursor.k_block, stage);
  }
  // Rows past the end are not copied: stale values affect only their own sums, which are not read.
  __device__ __forceinline__ void copy_x(const Cursor& cursor, uint32_t stage) const {
#pragma unroll
    for (int i = 0; i < kXCopies; ++i)
      if (cursor.x_rows[i] >= 0)
        blocks_.copy_x(Blocks::lane_x_row() + i * Blocks::kXRowsAtOnce, cursor.x_rows[i], cursor.k_block,
                       stage);
  }

  // Fills every stage. The second product fills some with W while the first one finishes. Not all of them,
  // because x would arrive after all earlier loads.
  __device__ __forceinline__ void fill() {
    constexpr int kPrefetched = Config::kGated ? 0 : (Config::kStages + 1) / 2;
    cursor_ = begin();
    if constexpr (!Config::kGated) {
      Cursor weights = cursor_;
#pragma unroll 1
      for (int stage = 0; stage < kPrefetched && weights.work_tile_idx < end_; ++stage) {
        copy_weights(weights, stages_ + stage * Config::kStageBytes);
        advance(weights);
      }
      ptx::griddepcontrol_wait();
      ptx::launch_dependents();
    }
#pragma unroll 1
    for (int stage = 0; stage < Config::kStages; ++stage) {
      if (cursor_.work_tile_idx < end_) {
        copy_x(cursor_, stages_ + stage * Config::kStageBytes);
        if (stage >= kPrefetched) copy_weights(cursor_, stages_ + stage * Config::kStageBytes);
        advance(cursor_);
      }
      ptx::cp_async_commit_group();
    }
  }

  __device__ __forceinline__ void multiply_work_tile(int work_tile_idx) {
    const WorkTile of = work_tile_at(work_tile_idx);
    const auto from = blocks_.from(of.tile.expert, of.first_output);
    Accumulators accumulators = {};
#pragma unroll 1
    for (int k_block = of.first_k_block; k_block < num_k_blocks_; k_block += kKSlices) {
      ptx::cp_async_wait_group<Config::kStages - 1>();
      __syncwarp();
      const uint32_t stage = stages_ + stage_ * Config::kStageBytes;
      blocks_.multiply(from, k_block, stage, accumulators);
      __syncwarp();
      if (cursor_.work_tile_idx < end_) {
        copy_x(cursor_, stage);
        copy_weights(cursor_, stage);
        advance(cursor_);
      }
      ptx::cp_async_commit_group();
      stage_ = stage_ + 1 == Config::kStages ? 0 : stage_ + 1;
    }
    // Double-buffered, so that the sums of a tile are read while the next ones are written.
    float* const sums = sums_ + work_tile_idx % 2 * (kKSlices * Config::kSumsPerSlice);
    if (of.first_k_block < num_k_blocks_)
      store_sums(sums + of.first_k_block * Config::kSumsPerSlice, accumulators);
    __syncthreads();
    reduce(of, work_tile_idx, sums);
  }

  // Lane l holds outputs l / 4 and l / 4 + 8 of rows 2 (l % 4) and 2 (l % 4) + 1.
  __device__ __forceinline__ void store_sums(float* sums, const Accumulators& accumulators) const {
#pragma unroll
    for (int half = 0; half < Config::kHalves; ++half)
#pragma unroll
      for (int n = 0; n < Config::kRowPieces; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          sums[half * Config::kSumsPerHalf + (n * 8 + 2 * (lane() % 4) + i % 2) * Config::kSumStride +
               lane() / 4 + i / 2 * 8] = accumulators[half][n][i];
  }

  __device__ __forceinline__ float total(const float* sums, int half, int row, int output) const {
    const float* const from = sums + half * Config::kSumsPerHalf + row * Config::kSumStride + output;
    const int num_slices = min(kKSlices, num_k_blocks_);
    float sum = 0.0f;
#pragma unroll
    for (int slice = 0; slice < kKSlices; ++slice)
      if (slice < num_slices) sum += from[slice * Config::kSumsPerSlice];
    return sum;
  }

  // Rotates this work among the threads, so that it does not always fall to the same warp.
  __device__ __forceinline__ void reduce(const WorkTile& of, int work_tile_idx, const float* sums) {
    constexpr int kOuts = Config::kTileRows * kSkinnyOutputs;
    static_assert(kOuts <= Config::kThreads);
    const int i = (static_cast<int>(threadIdx.x) + work_tile_idx % (Config::kThreads / kOuts) * kOuts) %
                  Config::kThreads;
    const int row = i / kSkinnyOutputs, output = i % kSkinnyOutputs;
    if (row >= of.tile.num_rows) return;
    const int pair = rows_.row_pair(of.tile.first_row + row);
    const float sum = total(sums, 0, row, output);
    const float up = Config::kGated ? total(sums, 1, row, output) : 0.0f;
    const int feature = of.first_output + output;
    GroupedGemmParams layout;
    layout.gated = Config::kGated;
    layout.alternating = params_.alternating;
    layout.out_features = params_.out_features;
    layout.epilogue = params_.epilogue;
    const float value = expert_output(layout, of.tile.expert, pair, feature, sum, up);
    if constexpr (Config::kSums) {
      const float weight = params_.weights == nullptr ? 1.0f : params_.weights[pair];
      float& to = out_sums_[pair / params_.top_k * kSkinnyOutputs + output];
      to = fmaf(weight, value, to);
    } else {
      static_cast<T*>(params_.out)[int64_t{pair} * params_.out_features + feature] = T(value);
    }
  }

  __device__ __forceinline__ int64_t out_at(int i) const {
    return int64_t{i / kSkinnyOutputs} * params_.out_features +
           static_cast<int>(blockIdx.x) * kSkinnyOutputs + i % kSkinnyOutputs;
  }
  __device__ __forceinline__ void begin_sums() {
    for (int i = static_cast<int>(threadIdx.x); i < params_.num_tokens * kSkinnyOutputs;
         i += Config::kThreads)
      out_sums_[i] = params_.accumulate ? float(static_cast<const T*>(params_.out)[out_at(i)]) : 0.0f;
  }
  __device__ __forceinline__ void write_sums() const {
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < params_.num_tokens * kSkinnyOutputs;
         i += Config::kThreads)
      static_cast<T*>(params_.out)[out_at(i)] = T(out_sums_[i]);
  }

  const SkinnyExpertsParams& params_;
  const Blocks blocks_;
  float* const sums_;
  Rows& rows_;
  float* const out_sums_;  // [tokens, outputs]
  const uint32_t stages_;  // per warp
  const int num_k_blocks_, chunks_;
  int begin_ = 0, end_ = 0;  // range of the CTA's work tiles
  int stage_ = 0;            // oldest stage
  Cursor cursor_;
};

template <class T, class Config>
__global__ void __launch_bounds__(Config::kThreads, Config::kCtasPerSm)
    skinny_experts_kernel(const __grid_constant__ SkinnyExpertsParams params) {
  extern __shared__ __align__(128) char shared[];
  SkinnyExpertsCta<T, Config>(params, shared).run();
}

template <class T, class Config>
void launch_skinny_experts_instance(const SkinnyExpertsParams& params, void* stream) {
  constexpr auto kKernel = skinny_experts_kernel<T, Config>;
  allow_shared_memory<kKernel>(Config::kMaxSharedBytes, "moe_experts: shared memory");
  const int num_ctas = Config::kSums ? params.out_features / kSkinnyOutputs : num_sms() * Config::kCtasPerSm;
  launch_dependent<SkinnyExpertsParams>(kKernel, dim3(static_cast<unsigned>(num_ctas)), Config::kThreads,
                                        static_cast<size_t>(Config::shared_bytes(params.num_tokens)), stream,
                                        params, "moe_experts");
}

template <class T, template <class, int, int> class Blocks, int kMaxPairs, int kGatedStages, int kDownStages,
          int kCtasPerSm = 1>
void launch_skinny_tiles(const SkinnyExpertsParams& params, void* stream) {
  using enum ExpertProduct;
  constexpr int kPieces = kSkinnyRows / 8;
  if (params.gated)
    launch_skinny_experts_instance<
        T, SkinnyExpertsConfig<kGated, Blocks, kPieces, kMaxPairs, kGatedStages, kCtasPerSm>>(params, stream);
  else if (params.sums)
    launch_skinny_experts_instance<
        T, SkinnyExpertsConfig<kSums, Blocks, kPieces, kMaxPairs, kDownStages, kCtasPerSm>>(params, stream);
  else
    launch_skinny_experts_instance<
        T, SkinnyExpertsConfig<kRows, Blocks, kPieces, kMaxPairs, kDownStages, kCtasPerSm>>(params, stream);
}

template <class T>
void launch_skinny_experts(const SkinnyExpertsParams& params, void* stream) {
  // With this few pairs, CTAs of both products fit on an SM: those of the second one wait there with W
  // loaded.
  params.num_tokens* params.top_k <= kTinyPairs
      ? launch_skinny_tiles<T, PlainBlocks, kTinyPairs, 2, 3>(params, stream)
      : launch_skinny_tiles<T, PlainBlocks, kMaxSkinnyPairs, 4, 6>(params, stream);
}

}  // namespace attend::kernels::cuda::sm80
